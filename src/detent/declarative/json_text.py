"""JSON with line numbers, which the standard library's decoder does not keep. This one is as strict."""

from __future__ import annotations

import bisect
import json
import re
from json.decoder import scanstring  # type: ignore[attr-defined]  # public in all but name: the string reader itself
from typing import Any

from detent.declarative.located import MAX_DEPTH, LocatedValue, Path, Unreadable

_SPACE = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?")
_WORDS = {"true": True, "false": False, "null": None}


def read_json(text: str) -> LocatedValue:
    reader = _Reader(text)
    value, end = reader.value(reader.skip(0), ())
    if reader.skip(end) != len(text):
        raise reader.fault(reader.skip(end), "There is more text after the end of the JSON: remove it")
    return LocatedValue(value, reader.lines, reader.faults)


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.lines: dict[Path, int] = {}
        self.faults: list[tuple[int, str]] = []
        self._ends = [match.start() for match in re.finditer("\n", text)]

    def line(self, position: int) -> int:
        return bisect.bisect_left(self._ends, position) + 1

    def fault(self, position: int, message: str) -> Unreadable:
        found = repr(self.text[position]) if position < len(self.text) else "the end"
        return Unreadable(self.line(position), f"{message} (here is {found}).")

    def skip(self, position: int) -> int:
        found = _SPACE.match(self.text, position)
        return found.end() if found else position

    def value(self, at: int, path: Path) -> tuple[Any, int]:
        if len(path) > MAX_DEPTH:
            raise Unreadable(self.line(at), f"This is nested deeper than {MAX_DEPTH} levels: make it flatter.")
        self.lines.setdefault(path, self.line(at))
        match self.text[at : at + 1]:
            case "{":
                return self._object(self.skip(at + 1), path)
            case "[":
                return self._array(self.skip(at + 1), path)
            case '"':
                return self._string(at)
        for word, meaning in _WORDS.items():
            if self.text.startswith(word, at):
                return meaning, at + len(word)
        return self._number(at)

    def _object(self, at: int, path: Path) -> tuple[dict[str, Any], int]:
        made: dict[str, Any] = {}
        while self.text[at : at + 1] != "}":
            if self.text[at : at + 1] != '"':
                raise self.fault(at, "A name in double quotes is missing")
            key, colon = self._string(at)
            colon = self.skip(colon)
            if self.text[colon : colon + 1] != ":":
                raise self.fault(colon, "A colon is missing after the name")
            if key in made:
                self.faults.append((self.line(at), f"The key {key!r} is given twice: keep one of the two."))
            self.lines[(*path, key)] = self.line(at)
            made[key], at = self.value(self.skip(colon + 1), (*path, key))
            at = self._behind(at, "}")
        return made, at + 1

    def _array(self, at: int, path: Path) -> tuple[list[Any], int]:
        made: list[Any] = []
        while self.text[at : at + 1] != "]":
            item, at = self.value(at, (*path, len(made)))
            made.append(item)
            at = self._behind(at, "]")
        return made, at + 1

    def _behind(self, at: int, end: str) -> int:
        """The next item, or the bracket that ends the list."""
        at = self.skip(at)
        if self.text[at : at + 1] == end:
            return at
        if self.text[at : at + 1] != ",":
            raise self.fault(at, f"A comma or {end} is missing")
        following = self.skip(at + 1)
        if self.text[following : following + 1] == end:
            raise self.fault(at, "There is a comma after the last item: remove it")
        return following

    def _string(self, at: int) -> tuple[str, int]:
        try:
            text, end = scanstring(self.text, at + 1, True)
        except json.JSONDecodeError as error:
            raise Unreadable(error.lineno, f"This text is not JSON ({error.msg}): check its quotes.") from None
        return str(text), int(end)

    def _number(self, at: int) -> tuple[int | float, int]:
        found = _NUMBER.match(self.text, at)
        if found is None:
            raise self.fault(at, "A value is missing: write text in double quotes, a number, true, false, null, { or [")
        if found[1] or found[2]:
            return float(found[0]), found.end()
        try:
            return int(found[0]), found.end()
        except ValueError:
            raise self.fault(at, "This number has too many digits: write it as text") from None
