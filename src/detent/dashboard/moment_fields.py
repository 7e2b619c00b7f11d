"""Times in forms, as people write them: `10m`, `tomorrow 09:00`, 2026-12-24T18:00:00Z. See `domain/moments.py`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from detent.domain import moments
from detent.domain.documents import utc_instant
from detent.domain.schedule.zones import check_timezone
from detent.errors import UsageError


def instant_from(text: str, name: str, zone: str, now: datetime) -> datetime:
    """The instant that a field means. Without an offset it is on the wall clock of `zone`."""
    seconds = _offset_of(text)
    if seconds is not None and abs(seconds) <= moments.LONGEST_SECONDS:
        return _to_millisecond(now + timedelta(seconds=seconds))
    info = check_timezone(zone)
    reading = None if seconds is not None else moments.read(text, now.astimezone(info), ahead=True)
    found = None if reading is None else reading.instant or (reading.wall and reading.wall.replace(tzinfo=info))
    if found is None:
        raise UsageError(
            f"{name} is {text!r}: give a time such as 2h, tomorrow 09:00 or 2026-12-24T18:00:00Z.", f"/{name}"
        )
    return utc_instant(_to_millisecond(found), name, f"/{name}")


def at_from(text: str, zone: str, now: datetime) -> str:
    """The same as a schedule has it: a time of the wall clock stays one, because it may not exist in the zone, or
    twice. What is no time stays as it is, for the sentence that refuses it."""
    if moments.iso(text) is not None:
        return text.replace(" ", "T", 1)
    if _offset_of(text) is not None:
        return f"{instant_from(text, 'at', zone, now).astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
    reading = moments.read(text, now.astimezone(check_timezone(zone)), ahead=True)
    return text if reading is None or reading.wall is None else reading.wall.isoformat()


def _offset_of(text: str) -> float | None:
    """With a unit: 18 may be meant as an hour, and 2026 as a year."""
    return None if text.strip().lstrip("+").isdigit() else moments.offset_of(text, ahead=True)


def _to_millisecond(moment: datetime) -> datetime:
    """Rounded down, as everywhere: ticks are in whole milliseconds."""
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)
