"""Untrusted text made safe to print (see domain/text.py), and messages, which go to stderr."""

from __future__ import annotations

import sys

from detent.domain.text import visible


def clean(text: str) -> str:
    """The text with controls and other unseen characters escaped; line ends and tabs stay."""
    return visible(text)


def flat(text: str) -> str:
    """The text on one line, for a cell."""
    return clean(" ".join(text.split()) if any(end in text for end in "\n\t\r") else text)


def message(line: str) -> None:
    """Print a message to stderr; it is never part of the data."""
    if sys.stderr is not None:  # a closed stderr: print would fall back to stdout
        print(line, file=sys.stderr)
