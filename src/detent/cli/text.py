"""Untrusted text made safe to print, and messages, which go to stderr.

A job's name, output and errors may contain anything. Control characters are escaped, so that no output of a target can
move the cursor, change the terminal's title or reverse the direction of the text that follows.
"""

from __future__ import annotations

import sys
import unicodedata

_DIRECTIONS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def clean(text: str) -> str:
    """The text with control characters escaped; line ends and tabs stay."""
    if text.isprintable():
        return text
    return "".join(
        character.encode("unicode_escape").decode() if _controls(character) else character for character in text
    )


def flat(text: str) -> str:
    """The text on one line, for a cell."""
    if text.isprintable():
        return text
    return clean(" ".join(text.split()) if any(end in text for end in "\n\t\r") else text)


def message(line: str) -> None:
    """Print a message to stderr; it is never part of the data."""
    if sys.stderr is not None:  # a closed stderr: print would fall back to stdout
        print(line, file=sys.stderr)


def _controls(character: str) -> bool:
    # Cs is half of a surrogate pair, which cannot be encoded.
    return character in _DIRECTIONS or (unicodedata.category(character) in ("Cc", "Cs") and character not in "\n\t")
