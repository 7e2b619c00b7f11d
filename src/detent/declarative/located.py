"""A document from a file, with the line of each of its parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

Path = tuple[str | int, ...]

MAX_DEPTH = 64
MAX_ALIASED = 100_000
"""So many values may aliases and merges add to those that are written: those of aliases double with each level."""


class LocatedValue(NamedTuple):
    """`lines` is keyed by path; a part without its own line has that of its nearest container. `faults` are mistakes of
    the format that did not stop the reading."""

    value: Any
    lines: Mapping[Path, int]
    faults: Sequence[tuple[int, str]] = ()

    def line(self, path: Path) -> int:
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


class FileFault(NamedTuple):
    """One mistake: where it is, and the sentence that says what was read and what to write."""

    source: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.source}:{self.line}: {self.message}"


class Unreadable(Exception):  # noqa: N818 - named after what the text is
    """The text does not follow its format; nothing after this line can be trusted."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.message = message


def decode_pointer(pointer: str) -> list[str]:
    """The parts of a JSON pointer, as text: whether one is an index depends on what it points into."""
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def resolve(document: Any, pointer: str) -> Path:
    """The path that a JSON pointer names in this document, which may not contain all of it."""
    path: list[str | int] = []
    value = document
    for part in decode_pointer(pointer):
        if isinstance(value, list) and part.isdecimal():
            path.append(int(part))
            value = value[int(part)] if int(part) < len(value) else None
        else:
            path.append(part)
            value = value.get(part) if isinstance(value, dict) else None
    return tuple(path)
