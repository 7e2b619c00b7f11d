"""Schedules in plain English."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from detent.schedule.schedule import Schedule


def describe(schedule: Schedule) -> str:
    stored = schedule.to_stored()
    if schedule.kind == "interval":
        return f"Every {stored['every']}"
    if schedule.kind == "once":
        return "Once" if schedule.at is None else f"Once, at {schedule.at.isoformat()}"
    if schedule.kind == "rrule":
        return str(stored["rrule"])
    get_description = importlib.import_module("cron_descriptor").get_description

    return str(get_description(stored["cron"]))
