"""The time window of a run: from the tick before its own to its own, by the schedule it was fired with.

It is computed, which takes 4 to 10 µs once the schedule was parsed. Jobs with the same schedule text share the parsed
schedule and its windows (1 µs); where it depends on the job itself, the schedules of the most recent jobs are kept.
"""

from __future__ import annotations

from collections import OrderedDict
from datetime import UTC, datetime, timedelta

from detent.domain.identity import MANUAL
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
# Their windows depend only on their text and on the tick of the run, unless the run was triggered by hand.
SHARED_KINDS = ("cron", "once", "interval")


def previous_tick(schedule: Schedule, tick: datetime) -> datetime | None:
    if tick < EARLIEST + MILLISECOND:
        return None
    return schedule.latest(max(tick, EARLIEST + FAR) - FAR, tick - MILLISECOND)


def _before(schedule: Schedule | None, tick: datetime) -> datetime | None:
    try:
        return None if schedule is None else previous_tick(schedule, tick)
    except EverythingExcluded:  # before it, for longer than is searched
        return None


def _shared_key(spec: JobSpec) -> tuple[object, ...] | None:
    """What the schedule depends on, if that is not the job itself."""
    if not isinstance(spec.schedule, str) or uses_hash(spec.schedule):  # H stands for another value in each job
        return None
    rules = (spec.timezone, spec.dst_gap, spec.dst_overlap, spec.day_match, spec.dialect)
    return (spec.schedule, *rules, spec.starts_at, spec.ends_at)


class Windows:
    def __init__(self) -> None:
        self._known: OrderedDict[tuple[object, ...], Schedule | None] = OrderedDict()
        self._starts: OrderedDict[tuple[object, ...], datetime | None] = OrderedDict()

    def start(self, claim: Claim, definition: Definition) -> datetime | None:
        """The tick before that of a run; for a run that was triggered by hand, the last tick before it. None: there
        is no such tick."""
        spec, created_at = definition.spec, definition.created_at
        if created_at is None or spec.schedule is None:
            return None
        shared = _shared_key(spec)
        if shared is None or claim.serial >= MANUAL:
            return _before(self._schedule(claim, definition, created_at, shared), claim.scheduled_at)
        key = (shared, claim.scheduled_at)
        if key in self._starts:
            return self._starts[key]
        schedule = self._schedule(claim, definition, created_at, shared)
        start = _before(schedule, claim.scheduled_at)
        if schedule is None or schedule.kind in SHARED_KINDS:
            self._starts[key] = start
            if len(self._starts) > MAX_KNOWN:
                self._starts.popitem(last=False)
        return start

    def _schedule(
        self, claim: Claim, definition: Definition, created_at: datetime, shared: tuple[object, ...] | None
    ) -> Schedule | None:
        if shared is not None:
            found = self._read(shared, definition.spec, definition.tenant, created_at)
            if found is None or found.kind in ("cron", "once"):
                return found
            if found.kind == "interval":
                return found.anchored(whole_milliseconds(created_at) if claim.key.manual else claim.scheduled_at)
        own = self._read((definition.job_id, claim.revision), definition.spec, definition.tenant, created_at)
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
