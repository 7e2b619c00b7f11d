"""Fixed intervals: every N seconds from an anchor, in real time, independent of the wall clock."""

from __future__ import annotations

import re
import reprlib

from detent.domain.schedule.errors import ScheduleError

SHORTEST_MS = 1_000
LONGEST_MS = 3_660 * 86_400_000
UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
WORDS = {
    "ms": "ms",
    "millisecond": "ms",
    "s": "s",
    "sec": "s",
    "second": "s",
    "m": "m",
    "min": "m",
    "minute": "m",
    "h": "h",
    "hr": "h",
    "hour": "h",
    "d": "d",
    "day": "d",
    "w": "w",
    "week": "w",
}
EXAMPLE = "write for example 'every 15m', 'every 1h30m' or 'every 2 days'"
ISO_DURATION = re.compile(
    r"P(?:(?P<w>\d+)W)?(?:(?P<d>\d+)D)?(?:T(?:(?P<h>\d+)H)?(?:(?P<m>\d+)M)?(?:(?P<s>\d+)S)?)?", re.ASCII
)
TERM = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)\s*([a-z]+)[\s,]*(?:and\s+)?", re.ASCII)


class IntervalTicks:
    """Ticks at anchor + n * every, in milliseconds."""

    __slots__ = ("anchor", "every", "floating")

    def __init__(self, every: int, anchor: int | None) -> None:
        self.every = every
        self.anchor = anchor or 0
        self.floating = anchor is None
        """The anchor belongs to the job and is not known here."""

    def seen_from(self, tick: int) -> IntervalTicks:
        """While the anchor is unknown, `tick` is a tick of this schedule and serves as the anchor."""
        return IntervalTicks(self.every, tick) if self.floating else self

    def next(self, instant: int) -> int | None:
        return instant + self.every - (instant - self.anchor) % self.every

    def latest(self, since: int, until: int) -> int | None:
        tick = until - (until - self.anchor) % self.every
        return tick if tick >= since else None

    def count(self, after: int, until: int) -> int:
        return (until - self.anchor) // self.every - (after - self.anchor) // self.every


def parse_every(value: object) -> int:
    """A duration in milliseconds, from '15m', '1h30m', 'PT15M', '90 seconds' or a number of seconds."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ScheduleError(f"The interval is {reprlib.repr(value)}, which is not a duration; {EXAMPLE}.")
    milliseconds = _from_text(value) if isinstance(value, str) else _from_number(value)
    if milliseconds < SHORTEST_MS:
        raise ScheduleError(f"The interval {value!r} is shorter than a second; the shortest is 'every 1s'.")
    if milliseconds > LONGEST_MS:
        raise ScheduleError(f"The interval {value!r} is longer than ten years; use a cron expression or an instant.")
    return milliseconds


def _from_number(value: float) -> int:
    if value != value or abs(value) > LONGEST_MS:
        raise ScheduleError(f"The interval is {value!r} seconds; {EXAMPLE}.")
    milliseconds = value * 1000
    if milliseconds != int(milliseconds):
        raise ScheduleError(f"The interval {value!r} is finer than a millisecond; round it.")
    return int(milliseconds)


def _from_text(text: str) -> int:
    cleaned = text.strip()
    if not cleaned.isascii():
        raise ScheduleError(f"The interval {text!r} contains a character that is not plain ASCII; {EXAMPLE}.")
    iso = ISO_DURATION.fullmatch(cleaned)
    if iso is not None and any(iso.groups()):
        return sum(int(number[:12]) * UNITS_MS[unit] for unit, number in iso.groupdict().items() if number)
    lowered = cleaned.lower()
    if lowered.isalpha() and WORDS.get(lowered) not in (None, "ms"):
        lowered = f"1 {lowered}"
    total, position, seen = 0, 0, set[str]()
    while position < len(lowered):
        term = TERM.match(lowered, position)
        if term is None:
            raise _unreadable(text)
        unit = _unit(term[2], text)
        if unit in seen:
            raise ScheduleError(f"The interval {text!r} names a unit twice; {EXAMPLE}.")
        seen.add(unit)
        total += _exact(term[1], unit, text)
        position = term.end()
    if not seen:
        raise _unreadable(text)
    return total


def _unit(word: str, text: str) -> str:
    unit = WORDS.get(word) or WORDS.get(word.removesuffix("s"))
    if unit is None:
        why = f"{word!r} is not one of s, m, h, d, w"
        if word.startswith(("mo", "y")):
            why = "months and years differ in length, so use '@monthly', '@yearly' or a cron expression"
        raise ScheduleError(f"The interval {text!r} cannot be read: {why}; {EXAMPLE}.")
    return unit


def _exact(number: str, unit: str, text: str) -> int:
    whole, _, fraction = number.partition(".")
    scaled = int(whole + fraction.ljust(3, "0")) * UNITS_MS[unit]
    if scaled % 1000:
        raise ScheduleError(f"The interval {text!r} is finer than a millisecond; round it.")
    return scaled // 1000


def _unreadable(text: str) -> ScheduleError:
    if re.fullmatch(r"\d+", text.strip(), re.ASCII):
        return ScheduleError(f"The interval {text!r} has no unit; write for example '{text.strip()}s'.")
    return ScheduleError(f"The interval {text!r} cannot be read; {EXAMPLE}.")


def format_every(milliseconds: int) -> str:
    """The shortest text that parse_every reads as the same duration: '1h30m'."""
    parts = []
    for unit in ("d", "h", "m", "s", "ms"):
        number, milliseconds = divmod(milliseconds, UNITS_MS[unit])
        if number:
            parts.append(f"{number}{unit}")
    return "".join(parts)
