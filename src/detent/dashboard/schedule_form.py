"""What belongs to a schedule besides its kind, in the job form: `also`, `exclude`, `anchor` and `after`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from detent.dashboard.changes import Form, text_of
from detent.errors import UsageError

EMPTY_PARTS = {"also": "", "exclude": "", "anchor": "", "after": ""}


def parts_from(form: Form, *, interval: bool = False) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in ("also", "exclude"):
        items = [_item(name, line) for line in map(str.strip, text_of(form, name).splitlines()) if line]
        if items:
            found[name] = items
    for name in ("anchor", "after") if interval else ():
        if text_of(form, name):
            found[name] = text_of(form, name)
    return found


def parts_of(schedule: Mapping[str, Any]) -> dict[str, str]:
    """One item a line: text as it is, everything else as JSON. A rule of several lines is JSON, too."""
    lists = {name: "\n".join(map(_line, schedule.get(name) or ())) for name in ("also", "exclude")}
    return {**lists, **{name: str(schedule.get(name) or "") for name in ("anchor", "after")}}


def _line(item: Any) -> str:
    plain = isinstance(item, str) and item.isprintable() and not item.startswith(("{", '"'))
    return item if plain else msgspec.json.encode(item).decode()


def _item(name: str, line: str) -> Any:
    if not line.startswith(("{", '"')):
        return line
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise UsageError(
            f"{line!r} is not JSON ({error}): write one schedule per line.", f"/schedule/{name}"
        ) from error
