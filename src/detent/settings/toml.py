"""TOML within bounds. The standard library's reader recurses for each bracket, and takes quadratic time for a key of
many parts: a key of 100 KB keeps it busy for minutes."""

from __future__ import annotations

import re
import tomllib
from typing import Any

MAX_DEPTH = 64

# Text and comments; only their line breaks are kept, so that brackets and dots inside them do not count. Three quotes
# that close a text may follow one or two of its own. Text that is not closed ends with its line or the document: a
# search for its end, repeated for every quote, takes quadratic time.
_TEXT = re.compile(
    r'"""(?:[^\\]|\\.|\\\Z)*?(?:"{3,5}|\Z)|\'\'\'.*?(?:\'{3,5}|\Z)|"(?:[^"\\\n]|\\.)*"?|\'[^\'\n]*\'?|#[^\n]*',
    re.DOTALL,
)
_BRACKET = re.compile(r"[\[\]{}]")
_LONG_KEY = re.compile(rf"(?<![\w-])(?:[\w-]+[ \t]*\.[ \t]*){{{MAX_DEPTH}}}")


class TooDeep(ValueError):  # noqa: N818 - it says what the document is
    """The document is nested deeper than MAX_DEPTH, by brackets or by a key of many parts."""

    def __init__(self, line: int) -> None:
        super().__init__(f"it is nested deeper than {MAX_DEPTH} levels on line {line}: make it flatter")
        self.line = line


def parse_toml(text: str) -> dict[str, Any]:
    """The document, or a ValueError: TOMLDecodeError or TooDeep."""
    _check_depth(_TEXT.sub(_blank, text))
    return tomllib.loads(text)


def _blank(found: re.Match[str]) -> str:
    # A quoted part of a key counts as a part.
    return "" if found[0].startswith("#") else "x" + "\n" * found[0].count("\n")


def _check_depth(bare: str) -> None:
    if found := _LONG_KEY.search(bare):
        raise TooDeep(_line(bare, found.start()))
    depth = 0
    for found in _BRACKET.finditer(bare):
        depth += 1 if found[0] in "[{" else -1
        if depth > MAX_DEPTH:
            raise TooDeep(_line(bare, found.start()))


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1
