"""Schedules as stored in rows: decoded once, cached within bounds, or the reason why they cannot be decoded."""

from __future__ import annotations

import msgspec

from detent.domain.schedule import OtherZoneRules, Schedule, ScheduleError
from detent.errors import DetentError

# A parsed schedule takes a few kilobytes at most. Beyond this many, the oldest are read again when they are due.
MAX_CACHED = 50_000


class UnreadableSchedule(DetentError):  # noqa: N818 - it says what is wrong
    """A job's schedule is missing, was written by a newer version, or refuses the zone data of this process."""


def read_schedule(number: int, stored: str | None) -> Schedule:
    """The schedule of a row of `schedules`; `stored` None: there is no such row."""
    if stored is None:
        raise UnreadableSchedule(f"Schedule {number} is not in the table of schedules: edit the job to write it again.")
    try:
        return Schedule.from_stored(msgspec.json.decode(stored))
    except OtherZoneRules as error:
        raise UnreadableSchedule(error.message) from error
    except ScheduleError as error:
        raise UnreadableSchedule(f"Schedule {number} cannot be read by this version of detent: {error}") from error
    except Exception as error:
        raise UnreadableSchedule(f"Schedule {number} cannot be read by this version of detent: {error!r}.") from error


class LoadedSchedules(dict[int, Schedule]):
    """Schedules by number. Accessing one that could not be read raises the reason."""

    def __init__(self, unreadable: dict[int, str]) -> None:
        super().__init__()
        self.unreadable = unreadable

    def __missing__(self, number: int) -> Schedule:
        raise UnreadableSchedule(self.unreadable.get(number) or f"Schedule {number} has not been read.")
