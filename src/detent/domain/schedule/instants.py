"""Aware datetimes in and out; whole numbers inside."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from detent.domain.schedule.errors import ScheduleError
from detent.domain.schedule.zones import Zone

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LOWEST_MS = int((datetime(1900, 1, 2, tzinfo=UTC) - EPOCH).total_seconds()) * 1000
HIGHEST_MS = int((datetime(9990, 1, 1, tzinfo=UTC) - EPOCH).total_seconds()) * 1000
INSTANT = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?([Zz]|[+-]\d\d:\d\d)?", re.ASCII)
LOOKS_LIKE_INSTANT = re.compile(r"\d{4}-\d\d-\d\d|\d{8}T\d", re.ASCII)


def to_ms(moment: datetime) -> int:
    """Whole milliseconds since 1970, rounded down."""
    try:
        delta = moment - EPOCH
    except TypeError:
        raise ScheduleError(f"The time {moment.isoformat()} has no zone; give an aware datetime in UTC.") from None
    return delta.days * 86_400_000 + delta.seconds * 1000 + delta.microseconds // 1000


def from_ms(milliseconds: int) -> datetime:
    return EPOCH + timedelta(milliseconds=milliseconds)


def from_seconds(seconds: int) -> datetime:
    return EPOCH + timedelta(seconds=seconds)


def format_instant(moment: datetime) -> str:
    """RFC 3339 in UTC with `Z`, milliseconds only where there are any."""
    spec = "milliseconds" if moment.microsecond else "seconds"
    return moment.astimezone(UTC).isoformat(timespec=spec).replace("+00:00", "Z")


def parse_instant(text: object, zone: Zone, gap: str, overlap: str) -> datetime:
    """An ISO 8601 instant, rounded down to the millisecond; without an offset it is a wall time in `zone`."""
    example = "write for example '2030-12-24T18:00:00Z' or '2030-12-24T18:00:00+01:00'"
    if isinstance(text, datetime):
        moment = text
    else:
        found = INSTANT.fullmatch(text.strip()) if isinstance(text, str) else None
        if found is None:
            raise ScheduleError(f"The instant {text!r} is not an ISO 8601 date and time; {example}.")
        try:
            moment = datetime.fromisoformat(found[0].upper().replace("Z", "+00:00"))
        except ValueError as error:
            raise ScheduleError(f"The instant {text!r} does not exist ({error}); {example}.") from None
    if moment.tzinfo is None:
        _check_year(moment, moment)  # the walls of other years may have no instant
        moment = _resolve_wall(moment, zone, gap, overlap)
    return check_range(moment)


def check_range(moment: datetime) -> datetime:
    """The instant in UTC, in whole milliseconds."""
    try:
        found = moment.astimezone(UTC)
    except OverflowError:  # the first or the last hours of the calendar, with an offset
        found = datetime(1, 1, 1, tzinfo=UTC)
    _check_year(found, moment)
    return found.replace(microsecond=found.microsecond // 1000 * 1000)


def _check_year(found: datetime, moment: datetime) -> None:
    if not 1971 <= found.year <= 9000:
        raise ScheduleError(f"The instant {moment.isoformat()} is out of range; years 1971 to 9000 are kept.")


def _resolve_wall(wall: datetime, zone: Zone, gap: str, overlap: str) -> datetime:
    first = wall.replace(tzinfo=zone.info, fold=0).astimezone(UTC)
    last = wall.replace(tzinfo=zone.info, fold=1).astimezone(UTC)
    if first.astimezone(zone.info).replace(tzinfo=None) == wall:
        return last if overlap == "last" else first
    # In a gap fold 0 counts with the offset before it, which lands as much later as the gap is long.
    if gap == "skip":
        raise ScheduleError(
            f"{wall.isoformat()} does not exist in {zone.name}: the clock is put forward over it; "
            "choose another time or dst_gap 'run'."
        )
    if gap == "shift":
        return first
    return from_seconds(zone.segment(to_ms(first) // 1000).start)
