"""Times and durations: reading arguments and formatting output."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from detent.cli.local_zone import local_zone
from detent.errors import UsageError

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
LONGEST_SECONDS = 36_525 * 86_400
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)\s*")


def read_duration(flag: str, text: str) -> float:
    """Seconds: `90`, `1.5`, `90s`, `15m`, `1h30m`."""
    try:
        seconds = float(text)
    except ValueError:
        parts = _PART.findall(text.strip().lower())
        whole = "".join(f"{number}{unit}" for number, unit in parts)
        if not parts or whole != re.sub(r"\s", "", text.lower()):
            raise UsageError(f"{flag} is {text!r}: give a time such as 90s, 15m or 1h30m.") from None
        seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if not math.isfinite(seconds) or seconds < 0:
        raise UsageError(f"{flag} is {text!r}: give a time such as 90s, 15m or 1h30m.")
    return int(seconds) if seconds == int(seconds) else seconds


def read_instant(text: str | None) -> datetime | None:
    """An instant in the API's format."""
    return None if text is None else datetime.fromisoformat(text)


def start_of(text: str | None) -> datetime:
    """The time given with --from, or now."""
    from detent.domain.documents import utc_instant  # imports msgspec, which help must not wait for

    if text is None:
        return now()
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"--from is {text!r}: give a time such as 2030-01-31T12:00:00Z.") from None
    return utc_instant(instant if instant.tzinfo else instant.replace(tzinfo=UTC), "--from")


def read_moment(flag: str, text: str, *, ahead: bool) -> datetime:
    """A time, or a duration before now (`2h`), or after now where it lies `ahead`."""
    from detent.domain.documents import utc_instant  # imports msgspec, which help must not wait for

    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        try:
            seconds = read_duration(flag, text)
        except UsageError:
            raise UsageError(
                f"{flag} is {text!r}: give a time such as 2030-01-31T12:00:00Z, or a duration such as 90m or 2d."
            ) from None
        if seconds > LONGEST_SECONDS:
            raise UsageError(f"{flag} is {text!r}: give at most a hundred years.") from None
        return now() + timedelta(seconds=seconds if ahead else -seconds)
    return utc_instant(instant if instant.tzinfo else instant.replace(tzinfo=UTC), flag)


def written(instant: datetime) -> str:
    """An instant as text, in the API's format."""
    return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")


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
