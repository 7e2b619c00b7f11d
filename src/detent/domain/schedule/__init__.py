"""Schedules: when a job ticks. Pure: nothing here reads a clock or does I/O beyond loading zone data."""

from detent.domain.schedule.errors import ScheduleError
from detent.domain.schedule.preview import PlannedTick, SchedulePreview, SuppressedTick
from detent.domain.schedule.schedule import Schedule
from detent.domain.schedule.zones import OtherZoneRules, check_timezone, tzdata_version

__all__ = [
    "OtherZoneRules",
    "PlannedTick",
    "Schedule",
    "ScheduleError",
    "SchedulePreview",
    "SuppressedTick",
    "check_timezone",
    "tzdata_version",
]
