"""The time window of a run: from the tick before its own to its own, by the schedule it was fired with.

It is computed, which takes a few microseconds once the schedule has been parsed. Jobs with the same schedule text share
the parsed schedule; where it depends on the job itself, those of the most recent jobs are kept.
"""

from __future__ import annotations

from collections import OrderedDict
from datetime import UTC, datetime, timedelta

from detent.domain.job import Definition, JobSpec
from detent.domain.job_schedule import schedule_of, whole_milliseconds
from detent.domain.run import Claim
from detent.domain.schedule import Schedule
from detent.domain.schedule.cron_fields import uses_hash
from detent.domain.schedule.exclusions import EverythingExcluded
from detent.errors import UsageError

MILLISECOND = timedelta(milliseconds=1)
FAR = timedelta(days=366 * 100)
EARLIEST = datetime.min.replace(tzinfo=UTC)
MAX_KNOWN = 10_000


def previous_tick(schedule: Schedule, tick: datetime) -> datetime | None:
    if tick < EARLIEST + MILLISECOND:
        return None
    return schedule.latest(max(tick, EARLIEST + FAR) - FAR, tick - MILLISECOND)


class Windows:
    def __init__(self) -> None:
        self._known: OrderedDict[tuple[object, ...], Schedule | None] = OrderedDict()

    def start(self, claim: Claim, definition: Definition) -> datetime | None:
        """The tick before that of a run; for a run that was triggered by hand, the last tick before it. None: there
        is no such tick."""
        schedule = self._schedule(claim, definition)
        try:
            return None if schedule is None else previous_tick(schedule, claim.scheduled_at)
        except EverythingExcluded:  # before it, for longer than is searched
            return None

    def _schedule(self, claim: Claim, definition: Definition) -> Schedule | None:
        spec, created_at = definition.spec, definition.created_at
        if created_at is None or spec.schedule is None:
            return None
        if isinstance(spec.schedule, str) and not uses_hash(spec.schedule):  # H stands for another value in each job
            bounds = (spec.starts_at, spec.ends_at)
            rules = (spec.timezone, spec.dst_gap, spec.dst_overlap, spec.day_match, spec.dialect)
            shared = self._read((spec.schedule, *rules, *bounds), spec, definition.tenant, created_at)
            if shared is None or shared.kind in ("cron", "once"):
                return shared
            if shared.kind == "interval":
                return shared.anchored(whole_milliseconds(created_at) if claim.key.manual else claim.scheduled_at)
        own = self._read((definition.job_id, claim.revision), spec, definition.tenant, created_at)
        return own if own is None or claim.key.manual else own.anchored(claim.scheduled_at)

    def _read(self, key: tuple[object, ...], spec: JobSpec, tenant: int, created_at: datetime) -> Schedule | None:
        if key in self._known:
            self._known.move_to_end(key)
            return self._known[key]
        try:
            schedule = schedule_of(spec, tenant, created_at)
        except UsageError:  # its zone is gone from the zone data, for instance
            schedule = None
        self._known[key] = schedule
        if len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)
        return schedule
