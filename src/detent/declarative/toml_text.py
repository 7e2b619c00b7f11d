"""TOML with line numbers: the standard library reads it, and a second, shallow pass finds the lines of keys.

The second pass knows headers, keys and where a value ends. It knows no lines inside inline tables and lists, so a
mistake there is reported on the line of its key.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from datetime import date, time
from typing import Any

from detent.declarative.located import LocatedValue, Path, Unreadable
from detent.settings.toml import MAX_DEPTH, TooDeep, parse_toml

_WHERE = re.compile(r"\(at line (\d+), column \d+\)|\(at end of document\)")
_PART = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([A-Za-z0-9_-]+))\s*""")
_HEADER = re.compile(r"\s*(\[\[?)(.*?)\]")
_QUOTES = re.compile(r'"""|\'\'\'|"(?:[^"\\]|\\.)*"|\'[^\']*\'|#|[\[\]{}]')


def read_toml(text: str) -> LocatedValue:
    try:
        document = parse_toml(text)
    except TooDeep as error:
        raise Unreadable(error.line, f"This is nested deeper than {MAX_DEPTH} levels: make it flatter.") from None
    except tomllib.TOMLDecodeError as error:
        place = _WHERE.search(str(error))
        line = int(place[1]) if place and place[1] else len(text.splitlines())
        reason = _WHERE.sub("", str(error)).strip()
        raise Unreadable(line, f"This is not TOML ({reason}): check this line.") from None
    return LocatedValue(_plain(document), dict(_locate(text)))


def _plain(value: Any) -> Any:
    """Times as text, as in the other formats."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, date | time):
        return value.isoformat()
    return value


def _locate(text: str) -> Iterator[tuple[Path, int]]:
    counts: dict[Path, int] = {}
    table: Path = ()
    skipper = _Skipper()
    for number, line in enumerate(text.splitlines(), 1):
        if skipper.inside:
            skipper.feed(line)
            continue
        header = _HEADER.match(line)
        if header:
            table = _indexed(_parts(header[2]), counts, new=header[1] == "[[")
            yield table, number
            continue
        key = _parts(line)
        if key:
            for length in range(1, len(key) + 1):
                yield (*table, *key[:length]), number
            skipper.feed(line.partition("=")[2])


def _indexed(parts: Path, counts: dict[Path, int], *, new: bool) -> Path:
    """`jobs.target` below the second `[[jobs]]` is (jobs, 1, target)."""
    path: Path = ()
    for position, part in enumerate(parts):
        path = (*path, part)
        last = position == len(parts) - 1
        if last and new:
            counts[path] = counts.get(path, -1) + 1
        if path in counts:
            path = (*path, counts[path])
    return path


def _parts(text: str) -> Path:
    """The parts of a dotted key at the beginning of the text."""
    parts: list[str | int] = []
    at = 0
    while found := _PART.match(text, at):
        parts.append(next(part for part in found.groups() if part is not None))
        at = found.end()
        if text[at : at + 1] != ".":
            break
        at += 1
    return tuple(parts)


class _Skipper:
    """Whether a value that began on an earlier line continues."""

    def __init__(self) -> None:
        self._quote = ""
        self._depth = 0

    @property
    def inside(self) -> bool:
        return bool(self._quote) or self._depth > 0

    def feed(self, line: str) -> None:
        at = 0
        while at < len(line):
            if self._quote:
                end = line.find(self._quote, at)
                if end < 0:
                    return
                at, self._quote = end + 3, ""
                continue
            found = _QUOTES.search(line, at)
            if found is None or found[0] == "#":
                return
            at = found.end()
            if found[0] in ('"""', "'''"):
                self._quote = found[0]
            elif found[0] in "[{":
                self._depth += 1
            elif found[0] in "]}":
                self._depth -= 1
