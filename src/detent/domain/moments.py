"""Times as people write them: `now`, `10m`, `2h ago`, `tomorrow 09:00`, `monday 9:00`, 2030-01-31T12:00:00Z.

A time of day, a day, or an instant without an offset is on the wall clock of a zone that the caller names: of the job
that the command is about, or of this machine. Everything here is arithmetic; the present is an argument.
"""

from __future__ import annotations

import math
import re
from datetime import date, datetime, time, timedelta
from typing import NamedTuple

DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
NAMED_DAYS = {"yesterday": -1, "today": 0, "tomorrow": 1}
NAMED_TIMES = {"midnight": time(0), "noon": time(12)}
UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
LONGEST_SECONDS = 36_525 * 86_400

_WORDS = {
    "millisecond": "ms",
    "sec": "s",
    "second": "s",
    "min": "m",
    "minute": "m",
    "hr": "h",
    "hour": "h",
    "day": "d",
    "week": "w",
}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)[\s,]*(?:and\s+)?", re.ASCII)
_TIME = re.compile(r"(\d{1,2})(?::(\d\d)(?::(\d\d)(\.\d+)?)?)?\s*(am|pm)?", re.ASCII | re.IGNORECASE)


class TimeReading(NamedTuple):
    """An instant, or a `wall` time that is one only in a zone. A whole `day` has no time of its own."""

    instant: datetime | None = None
    wall: datetime | None = None
    day: bool = False


def seconds_of(text: str) -> float | None:
    """`90`, `90s`, `15m`, `1h30m`, `2 hours`; None if the text is no duration."""
    try:
        return float(text)
    except ValueError:
        pass
    cleaned, total, position = text.strip().lower(), 0.0, 0
    while position < len(cleaned):
        part = _PART.match(cleaned, position)
        if part is None:
            return None
        unit = part[2] if part[2] in UNITS else _WORDS.get(part[2].removesuffix("s"))
        if unit is None:
            return None
        total += float(part[1]) * UNITS[unit]
        position = part.end()
    return total if cleaned else None


def offset_of(text: str, *, ahead: bool) -> float | None:
    """Seconds from now of `10m`, `+10m`, `in 10m`, `-1h`, `1h ago`, `now`. A plain duration lies `ahead`, or behind."""
    cleaned = " ".join(text.lower().split())
    if cleaned == "now":
        return 0
    for mark, side in (("+", 1), ("in ", 1), ("-", -1)):
        if cleaned.startswith(mark):
            return _signed(cleaned.removeprefix(mark), side)
    for mark, side in ((" ago", -1), (" from now", 1)):
        if cleaned.endswith(mark):
            return _signed(cleaned.removesuffix(mark), side)
    return _signed(cleaned, 1 if ahead else -1)


def _signed(text: str, side: int) -> float | None:
    seconds = seconds_of(text)
    return None if seconds is None or not 0 <= seconds < math.inf else side * seconds


def read(text: str, here: datetime, *, ahead: bool) -> TimeReading | None:
    """What the text means, `here` being the present on the wall clock of its zone. None: it is no time.

    A day of the week, or a time without a day, is the next one `ahead`, or the latest one that is over."""
    written = iso(text.strip())
    if written is not None:
        return written
    words = text.lower().replace(",", " ").split()
    clock, day, side = None, None, None
    while words:
        word = words.pop(0)
        if word in ("at", "on", "this"):
            continue
        if word in ("next", "last") and side is None:
            side = word
        elif day is None and (found := _day(word)) is not None:
            day = found
        elif clock is None and (found_time := _time(word, words)) is not None:
            clock = found_time
        else:
            return None
    if day is None and (clock is None or side is not None):
        return None
    return _placed(day, clock, here, ahead if side is None else side == "next")


def _placed(day: date | str | None, clock: time | None, here: datetime, ahead: bool) -> TimeReading | None:
    if isinstance(day, date):
        return TimeReading(wall=datetime.combine(day, clock or time(0)), day=clock is None)
    if day in NAMED_DAYS:
        found = here.date() + timedelta(days=NAMED_DAYS[day])
        return TimeReading(wall=datetime.combine(found, clock or time(0)), day=clock is None)
    present = here.replace(tzinfo=None)
    wanted = datetime.combine(present.date(), clock or time(0))
    step = timedelta(days=1 if day is None else 7)
    if day is not None:
        wanted += timedelta(days=(DAYS.index(day) - wanted.weekday()) % 7)
    if ahead and wanted <= present:
        wanted += step
    if not ahead and wanted > present:
        wanted -= step
    return TimeReading(wall=wanted, day=clock is None)


def iso(text: str) -> TimeReading | None:
    """An instant or a day as ISO 8601 writes it."""
    try:
        found = datetime.fromisoformat(text.upper() if text.endswith("z") else text)
    except ValueError:
        return None
    if found.tzinfo is not None:
        return TimeReading(instant=found)
    return TimeReading(wall=found, day=len(text) <= len("2030-01-31"))


def _day(word: str) -> date | str | None:
    if word in NAMED_DAYS:
        return word
    if len(word) >= 3:
        named = [day for day in DAYS if day.startswith(word)]
        if named:
            return named[0]
    try:
        return date.fromisoformat(word) if len(word) == len("2030-01-31") else None
    except ValueError:
        return None


def _time(word: str, following: list[str]) -> time | None:
    if word in NAMED_TIMES:
        return NAMED_TIMES[word]
    if following and following[0] in ("am", "pm"):
        word += following.pop(0)
    found = _TIME.fullmatch(word)
    if found is None or (found[2] is None and found[5] is None):
        return None
    hour, half = int(found[1]), found[5]
    if half is not None:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if half.lower() == "pm" else 0)
    try:
        fraction = round(float(found[4] or 0) * 1000) * 1000 % 1_000_000
        return time(hour, int(found[2] or 0), int(found[3] or 0), fraction)
    except ValueError:
        return None
