"""How pages write numbers, durations, times and states."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

import msgspec

NOTHING = "\N{EN DASH}"
# Colour alone is not readable for everyone: each state also has its own sign.
SIGNS = {
    "succeeded": "✓",
    "dead": "✕",
    "running": "▶",
    "retrying": "↻",
    "pending": "○",
    "cancelled": "⊘",
    "skipped": NOTHING,
    "missed": "◇",
    "active": "●",
    "paused": "‖",
    "completed": "◉",
    "deleted": "⊘",
    "failed": "✕",
    "timeout": "◷",
    "lost": "⚡",
    "stale": "⊝",
    "alive": "●",
    "draining": "◐",
    "evicted": "✕",
    "left": "◌",
    "unaccounted": "?",
}
MAX_SHOWN_CHARACTERS = 20_000


def number(value: float | None) -> str:
    if value is None:
        return NOTHING
    return f"{value:,.0f}" if float(value).is_integer() or value >= 100 else f"{value:,.1f}"


def rate(per_second: float, what: str) -> str:
    """`320 runs/s`, `4.2 runs/s`, `12 runs/min`"""
    if per_second >= 1:
        return f"{number(per_second)} {what}/s"
    return f"{number(round(per_second * 60, 1))} {what}/min"


def seconds(value: float | timedelta | None) -> str:
    """`340 µs`, `12 ms`, `1.5 s`, `2 s`, `3 min 20 s`, `2 h 5 min`, `40 d`"""
    if value is None:
        return NOTHING
    amount = value.total_seconds() if isinstance(value, timedelta) else float(value)
    if amount < 0.001:
        return f"{amount * 1e6:.0f} µs" if amount > 0 else "0 ms"
    if amount < 1:
        return f"{amount * 1000:.0f} ms"
    if amount < 60:
        return f"{amount:.1f} s" if amount < 10 and not amount.is_integer() else f"{amount:.0f} s"
    minutes, rest = divmod(round(amount), 60)
    hours, minutes_left = divmod(minutes, 60)
    if not hours:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    if hours < 48:
        return f"{hours} h {minutes_left} min" if minutes_left else f"{hours} h"
    return f"{hours // 24} d"


def milliseconds(value: float | None) -> str:
    """The value counts whole milliseconds, so 0 means less than one."""
    if value == 0:
        return "<1 ms"
    return seconds(None if value is None else value / 1000)


def iso(moment: datetime) -> str:
    text = moment.astimezone(UTC).isoformat(timespec="milliseconds" if moment.microsecond else "seconds")
    return text.replace("+00:00", "Z")


def plain_time(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"


def pretty(value: Any) -> str:
    """A value as indented JSON; a string, also inside raw JSON, as its text."""
    if isinstance(value, msgspec.Raw):
        value = msgspec.json.decode(bytes(value))
    if isinstance(value, str):
        return _cut(value)
    return _cut(json.dumps(msgspec.to_builtins(value), indent=2, ensure_ascii=False))


def _cut(text: str) -> str:
    if len(text) <= MAX_SHOWN_CHARACTERS:
        return text
    hidden = len(text) - MAX_SHOWN_CHARACTERS
    return f"{text[:MAX_SHOWN_CHARACTERS]}\n… {hidden:,} more characters: the API returns the full text."


def query(path: str, **values: object) -> str:
    given = {name: str(value) for name, value in values.items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path


def sign(state: str) -> str:
    return SIGNS.get(str(state), "·")


def state_class(state: str) -> str:
    return f"s-{str(state).replace(' ', '-')}"
