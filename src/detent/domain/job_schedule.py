"""The schedule of a job, from its definition. No I/O."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from detent.domain.job import JobSpec
from detent.domain.schedule import Schedule, ScheduleError
from detent.domain.schedule.cron_fields import uses_hash
from detent.domain.schedule.schedule import NO_LIMIT
from detent.domain.schedule.steps import CostlySchedule, Steps, batch_limit
from detent.errors import UsageError


def schedule_of(
    spec: JobSpec, number: int, created_at: datetime, steps: Steps = NO_LIMIT, *, new: bool = False
) -> Schedule:
    """The schedule of a job; an interval counts from the creation of its job. A new one that never ticks is refused."""
    try:
        return Schedule.parse(
            spec.schedule,
            timezone=spec.timezone,
            anchor=whole_milliseconds(created_at),
            hash_key=str(number),
            dst_gap=spec.dst_gap,
            dst_overlap=spec.dst_overlap,
            day_match=spec.day_match,
            dialect=spec.dialect,
            starts_at=spec.starts_at,
            ends_at=spec.ends_at,
            jitter_seconds=spec.jitter_seconds,
            steps=steps,
            new=new,
        )
    except ScheduleError as error:
        raise UsageError(error.message, error.pointer or "/schedule") from error


def may_hash(schedule: str | dict[str, Any]) -> bool:
    """Whether it contains `H`, which is another time for each job."""
    if isinstance(schedule, str):
        return uses_hash(schedule)
    others = [*(schedule.get("also") or ()), *(schedule.get("exclude") or ())]
    texts = [schedule.get("cron"), *(item.get("cron") if isinstance(item, dict) else item for item in others)]
    return any(uses_hash(text) for text in texts if isinstance(text, str))


class Descriptions:
    """The schedules of the jobs of a page in words. Reading them has the steps of a batch; a rule beyond that is not
    read."""

    def __init__(self, rows: int) -> None:
        self._steps = Steps(batch_limit(rows))

    def of(self, spec: JobSpec, number: int, created_at: datetime) -> str:
        before = self._steps.spent
        try:
            return schedule_of(spec, number, created_at, self._steps).describe()
        except CostlySchedule:
            self._steps.spent = before  # so that shorter rules after it are read
            return "A long recurrence rule"
        except UsageError as error:
            return error.message


def whole_milliseconds(moment: datetime) -> datetime:
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)
