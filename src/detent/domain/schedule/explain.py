"""`detent cron explain` and `POST /schedules/preview`: the same answer for both."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from detent.domain.schedule.errors import ScheduleError
from detent.domain.schedule.instants import format_instant
from detent.domain.schedule.preview import MAX_TICKS, clock_changes
from detent.domain.schedule.schedule import Schedule
from detent.domain.schedule.steps import QUESTION_STEPS, Steps


def explain_text(
    spec: str | Mapping[str, Any] | None,
    timezone: str,
    count: int,
    now: datetime,
    **options: Any,
) -> dict[str, Any]:
    """Words, the next `count` ticks after `now` and warnings. `options` are those of Schedule.parse."""
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_TICKS:
        raise ScheduleError(f"count is {count!r}; ask for 1 to {MAX_TICKS} ticks.", "/count")
    steps = Steps(QUESTION_STEPS, f"list its next {count} ticks" if count > 1 else "find its next tick")
    schedule = Schedule.parse(spec, timezone=timezone, steps=steps, **{"anchor": now} | options)
    found = schedule.preview(now, count)
    return {
        "description": schedule.describe(),
        "timezone": schedule.timezone,
        "ticks": [{"at": format_instant(tick.at), "local": tick.local, "dst": tick.dst} for tick in found.ticks],
        "skipped": [{"local": skipped.local, "why": skipped.why} for skipped in found.skipped],
        "clock_changes": [
            {"at": format_instant(change.at), "on": change.on, "effect": change.effect, "why": change.why}
            for change in clock_changes(schedule, now)
        ],
        "warnings": [*_translated(schedule, options.get("dialect")), *found.warnings],
    }


def _translated(schedule: Schedule, dialect: str | None) -> list[str]:
    """An expression of another dialect, as it is stored."""
    if dialect in (None, "unix") or schedule.kind != "cron":
        return []
    return [f"In the unix dialect this is {schedule.to_stored()['cron']!r}."]
