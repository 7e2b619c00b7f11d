"""Text from strangers, made safe to read.

A name, an error or the output of a target may contain anything: sequences that move a terminal's cursor, controls that
reverse the direction of the text that follows, characters that are not seen at all. Names with such characters are
refused, because two of them look alike; stored text with them is shown with these characters spelled out.
"""

from __future__ import annotations

import re
import unicodedata
from itertools import pairwise

from detent.errors import UsageError

# Categories: control, format (directions, zero width), half a surrogate pair, line and paragraph separator.
_UNSEEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
# Letters, marks and symbols that are drawn as nothing: grapheme joiner, Hangul and Khmer fillers, empty Braille, and
# the selectors of variants, which most characters do not have.
_UNSEEN = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0") | frozenset(
    map(chr, (*range(0x180B, 0x180E), 0x180F, *range(0xFE00, 0xFE0E), *range(0xE0100, 0xE01F0)))
)
# They choose between the two drawings of a symbol, and are not seen after a letter.
_STYLES = frozenset("\ufe0e\ufe0f")
_SUSPECT = _UNSEEN | _STYLES
_FORMULA = re.compile(r"[=+\-@\t\r\n]")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def is_unseen(character: str) -> bool:
    return character in _UNSEEN or unicodedata.category(character) in _UNSEEN_CATEGORIES


def _is_seen(text: str) -> bool:
    """A quick answer: True is certain, and False only means that each character has to be checked."""
    return text.isprintable() and (text.isascii() or _SUSPECT.isdisjoint(text))


def visible(text: str, keep: str = "\n\t") -> str:
    """The text with unseen characters escaped, except those to keep."""
    if _is_seen(text):
        return text
    return "".join(
        character.encode("unicode_escape").decode() if is_unseen(character) and character not in keep else character
        for character in text
    )


def visible_json(encoded: str) -> str:
    """The JSON text with unseen characters escaped as JSON escapes them, so that it reads back as the same."""
    if _is_seen(encoded):
        return encoded
    return "".join(
        _json_escape(character) if is_unseen(character) and character not in "\n\t\r" else character
        for character in encoded
    )


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[index]:02x}{units[index + 1]:02x}" for index in range(0, len(units), 2))


def csv_cell(text: str) -> str:
    """The text as a spreadsheet shows it: a cell that would be read as a formula begins with an apostrophe."""
    harmless = not _FORMULA.match(text) or _NUMBER.fullmatch(text)
    return visible(text) if harmless else f"'{visible(text)}"


def check_seen(text: str, what: str, pointer: str = "") -> None:
    """Refuse a name with a character that cannot be seen. `what` begins the sentence: 'The name'."""
    if _is_seen(text):
        return
    for before, character in pairwise(f" {text}"):
        after_symbol = unicodedata.category(before).startswith("S")
        if is_unseen(character) or (character in _STYLES and not after_symbol):
            raise UsageError(
                f'{what} "{visible(text, "")}" has the character U+{ord(character):04X} ({_name_of(character)}), '
                "which cannot be seen: remove it.",
                pointer,
            )


def _name_of(character: str) -> str:
    return unicodedata.name(character, "a control character").lower()
