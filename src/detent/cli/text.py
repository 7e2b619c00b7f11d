"""Text that others wrote, made safe to show; and talk, which goes to stderr.

A job's name, output and errors may hold anything. Control characters are spelled out, so that nothing a target
said can move the cursor, change the title of a terminal or turn the direction of what follows.
"""

from __future__ import annotations

import sys
import unicodedata

_DIRECTIONS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def clean(text: str) -> str:
    """The text with control characters spelled out; line ends and tabs stay."""
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


def talk(line: str) -> None:
    """To people, never part of the data."""
    if sys.stderr is not None:  # a closed stderr: print would fall back to stdout
        print(line, file=sys.stderr)


def _controls(character: str) -> bool:
    # Cs is half of a character, which cannot be written.
    return character in _DIRECTIONS or (unicodedata.category(character) in ("Cc", "Cs") and character not in "\n\t")
