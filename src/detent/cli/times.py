"""Times and durations: reading arguments and formatting output."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta, tzinfo
from zoneinfo import ZoneInfo

from detent.cli.local_zone import local_zone
from detent.cli.text import clean, message
from detent.domain import moments
from detent.errors import UsageError

LAST_OF_DAY = time(23, 59, 59, 999_000)
# The zone of a time without an offset; asked for only where it is needed.
ZoneName = str | Callable[[], str] | None
_EXAMPLES = "such as now, 10m, 2h ago, tomorrow 09:00 or 2030-01-31T12:00:00Z"


def read_duration(flag: str, text: str) -> float:
    """Seconds: `90`, `1.5`, `90s`, `15m`, `1h30m`, `2 hours`."""
    seconds = moments.seconds_of(text)
    if seconds is None or not math.isfinite(seconds) or seconds < 0:
        raise UsageError(f"{flag} is {text!r}: give a time such as 90s, 15m or 1h30m.")
    return int(seconds) if seconds == int(seconds) else seconds


def read_instant(text: str | None) -> datetime | None:
    """An instant in the API's format."""
    return None if text is None else datetime.fromisoformat(text)


def read_moment(flag: str, text: str, *, ahead: bool, zone: ZoneName = None, end_of_day: bool = False) -> datetime:
    """A time as people write it, in UTC, see `domain/moments.py`. A plain duration lies `ahead` of now, or behind it.

    Without an offset it is on the wall clock of `zone`, or of this machine, which is reported. A day stands for its
    start, or for its end."""
    from detent.domain.documents import utc_instant  # imports msgspec, which help must not wait for

    seconds = moments.offset_of(text, ahead=ahead)
    if seconds is not None:
        if abs(seconds) > moments.LONGEST_SECONDS:
            raise UsageError(f"{flag} is {text!r}: give at most a hundred years.")
        return _to_millisecond(now() + timedelta(seconds=seconds))
    reading = moments.iso(text.strip())
    if reading is not None and reading.instant is not None:
        return utc_instant(_to_millisecond(reading.instant), flag)
    name = (zone() if callable(zone) else zone) or local_zone()
    found = _on_wall(flag, text, name, ahead, end_of_day)
    instant = utc_instant(found, flag)
    _report_reading(text, found, name)
    return instant


def _on_wall(flag: str, text: str, zone: str, ahead: bool, end_of_day: bool) -> datetime:
    info = _zone_info(zone)
    reading = moments.read(text, now().astimezone(info), ahead=ahead)
    if reading is None or reading.wall is None:
        raise UsageError(f"{flag} is {text!r}: give a time {_EXAMPLES}.")
    wall = _to_millisecond(reading.wall)
    if reading.day and end_of_day:
        wall = datetime.combine(wall.date(), LAST_OF_DAY)
    return wall.replace(tzinfo=info)


def _report_reading(text: str, found: datetime, zone: str) -> None:
    from detent.cli.invocation import invocation

    if invocation().format == "text" and not (zone == "UTC" and moments.iso(text)):
        message(f"{clean(text)} is {found:%a %Y-%m-%d %H:%M:%S %z} ({zone}).")


def needs_zone(text: str) -> bool:
    """Whether this is a time of a wall clock, which is another instant in each zone."""
    found = moments.iso(text.strip())
    return moments.offset_of(text, ahead=True) is None and (found is None or found.instant is None)


def wall_time(flag: str, text: str, zone: str, *, ahead: bool) -> str:
    """A time of the wall clock of `zone`, without an offset: it may not exist there, or twice."""
    reading = moments.read(text, now().astimezone(_zone_info(zone)), ahead=ahead)
    if reading is None or reading.wall is None:
        raise UsageError(f"{flag} is {text!r}: give a time {_EXAMPLES}.")
    return reading.wall.isoformat()


def _zone_info(name: str) -> tzinfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        from detent.domain.schedule.zones import check_timezone

        return check_timezone(name)  # which names the zones that may be meant


def _to_millisecond(moment: datetime) -> datetime:
    """Rounded down, as everywhere: ticks are in whole milliseconds."""
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def written(instant: datetime) -> str:
    """An instant as text, in the API's format."""
    return instant.astimezone(UTC).isoformat(timespec=_precision(instant)).replace("+00:00", "Z")


def _precision(instant: datetime) -> str:
    if instant.microsecond % 1000:
        return "microseconds"
    return "milliseconds" if instant.microsecond else "seconds"


def now() -> datetime:
    return datetime.now(UTC)


def relative(text: str | None, at: datetime) -> str:
    """`in 12 s`, `3 min ago`, `in 40 days`."""
    instant = read_instant(text)
    if instant is None:
        return ""
    seconds = (instant - at).total_seconds()
    if abs(seconds) < 1:
        return "now"
    return f"in {_rough(seconds)}" if seconds > 0 else f"{_rough(-seconds)} ago"


def _rough(seconds: float) -> str:
    """One number and one unit; the next unit starts where two digits are no longer enough."""
    for limit, size, unit in ((60, 1, "s"), (3600, 60, "min"), (48 * 3600, 3600, "h")):
        if round(seconds / size) * size < limit:
            return f"{round(seconds / size)} {unit}"
    return f"{round(seconds / 86_400)} days"


def absolute(text: str | None, zone: str = "UTC") -> str:
    instant = read_instant(text)
    if instant is None:
        return ""
    try:
        return f"{instant.astimezone(ZoneInfo(zone)):%Y-%m-%d %H:%M:%S} {zone}"
    except (KeyError, ValueError, OSError):  # a zone that the server knows and this machine does not
        return f"{instant:%Y-%m-%d %H:%M:%S} UTC"


def local(text: str | None) -> str:
    """An instant in the zone of this machine, which is named."""
    instant = read_instant(text)
    return "" if instant is None else f"{clock(text)} {local_zone()}"


def clock(text: str | None) -> str:
    """An instant in the zone of this machine, where the zone is named nearby."""
    instant = read_instant(text)
    return "" if instant is None else f"{instant.astimezone(ZoneInfo(local_zone())):%Y-%m-%d %H:%M:%S}"


def local_both(text: str | None, at: datetime) -> str:
    return "" if text is None else f"{local(text)} ({relative(text, at)})"


def wall(text: str) -> str:
    """A local time with its day of the week."""
    return f"{datetime.fromisoformat(text):%a %Y-%m-%d %H:%M:%S %z}"


def both(text: str | None, at: datetime, zone: str = "UTC") -> str:
    return "" if text is None else f"{absolute(text, zone)} ({relative(text, at)})"


def span(milliseconds: float | None) -> str:
    """A duration: `12 ms`, `1.5 s`, `3 min 20 s`, `2 h 5 min`."""
    if milliseconds is None:
        return ""
    if abs(milliseconds) < 1000:
        return f"{milliseconds:.0f} ms"
    seconds = milliseconds / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, seconds = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s" if seconds else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"
