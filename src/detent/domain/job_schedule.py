"""The schedule of a job, from its definition. No I/O."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

import msgspec

from detent.domain.job import JobSpec
from detent.domain.schedule import Schedule, ScheduleError
from detent.domain.schedule.cron_fields import uses_hash
from detent.domain.schedule.schedule import NO_LIMIT
from detent.domain.schedule.stagger import stagger_start
from detent.domain.schedule.steps import CostlySchedule, Steps, batch_limit
from detent.domain.schedule.zones import OUR_RULES
from detent.errors import UsageError


def hash_key_of(tenant: int, name: str) -> str:
    """What `H` is hashed from: a job that is deleted and created again keeps its times, and jobs of the same name of
    different tenants have different ones. By the tenant's number, because workers and lists compute schedules without
    reading names of tenants; outside the default tenant it is another one in another cluster."""
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
            stagger_ms=stagger_start(spec.priority) if spec.release == "staggered" else None,
            zone_rules=OUR_RULES if spec.tzdata_policy == "refuse" else None,
            steps=steps,
            new=new,
        )
    except ScheduleError as error:
        raise UsageError(error.message, error.pointer or "/schedule") from error


def schedule_in_force(
    spec: JobSpec, cron: str | None, tenant: int, created_at: datetime, steps: Steps = NO_LIMIT
) -> Schedule:
    """The schedule by which a stored job ticks. `cron` is the expression that was computed for it: nodes of an older
    version hash `H` from another key, and what they registered ticks at those times until it is registered again."""
    if cron is not None and spec.schedule is not None and may_hash(spec.schedule):
        spec = msgspec.structs.replace(spec, schedule=cron, dialect="unix")
    return schedule_of(spec, tenant, created_at, steps)


def first_not_skipped(
    spec: JobSpec, tenant: int, created_at: datetime, tick: datetime | None, skips: Collection[datetime]
) -> datetime | None:
    """The next tick from `tick` on that an operator did not ask to skip."""
    if tick not in skips:
        return tick
    try:
        schedule = schedule_of(spec, tenant, created_at, Steps(batch_limit(1)))
        schedule = schedule.anchored(tick) if tick is not None and schedule.kind == "once" else schedule
        while tick is not None and tick in skips:
            tick = schedule.next_after(tick)
    except (CostlySchedule, UsageError):  # its zone is gone, for example: then the cursor is all that is known
        pass
    return tick


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
