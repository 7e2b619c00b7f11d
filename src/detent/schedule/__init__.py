"""Schedules: when a job ticks. Pure: nothing here reads a clock or does I/O beyond loading zone data."""

from detent.schedule.errors import ScheduleError
from detent.schedule.preview import Preview, PreviewTick, SkippedTick
from detent.schedule.schedule import Schedule
from detent.schedule.zones import check_timezone, tzdata_version

__all__ = [
    "Preview",
    "PreviewTick",
    "Schedule",
    "ScheduleError",
    "SkippedTick",
    "check_timezone",
    "tzdata_version",
]
