"""The schedule of a job, from its definition. No I/O."""

from __future__ import annotations

from datetime import datetime

from detent.domain.job import JobSpec
from detent.domain.schedule import Schedule, ScheduleError
from detent.domain.schedule.schedule import NO_LIMIT
from detent.domain.schedule.steps import CostlySchedule, Steps, batch_limit
from detent.errors import UsageError


def hash_key_of(tenant: int, name: str) -> str:
    """What `H` is hashed from: a job that is deleted and created again keeps its times, and jobs of the same name of
    different tenants have different ones."""
    return f"{tenant}/{name}"


def schedule_of(
    spec: JobSpec, tenant: int, created_at: datetime, steps: Steps = NO_LIMIT, *, new: bool = False
) -> Schedule:
    """The schedule of a job of this tenant; an interval counts from the creation of its job. A new one that never ticks
    is refused."""
    try:
        return Schedule.parse(
            spec.schedule,
            timezone=spec.timezone,
            anchor=whole_milliseconds(created_at),
            hash_key=None if spec.name is None else hash_key_of(tenant, spec.name),
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


class Descriptions:
    """The schedules of the jobs of a page in words. Reading them has the steps of a batch; a rule beyond that is not
    read."""

    def __init__(self, rows: int) -> None:
        self._steps = Steps(batch_limit(rows))

    def of(self, spec: JobSpec, tenant: int, created_at: datetime) -> str:
        before = self._steps.spent
        try:
            return schedule_of(spec, tenant, created_at, self._steps).describe()
        except CostlySchedule:
            self._steps.spent = before  # so that shorter rules after it are read
            return "A long recurrence rule"
        except UsageError as error:
            return error.message


def whole_milliseconds(moment: datetime) -> datetime:
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)
