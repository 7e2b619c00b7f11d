"""Cursors: the next tick of each job, and the statements that fire it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import NamedTuple

from detent.domain.misfire import MAX_MISSED, RUN_ONCE, CatchUp, MissedRange
from detent.domain.schedule import Schedule
from detent.store import sql
from detent.store.arrays import agreed, columns
from detent.store.db import Database, LockTimeout, PoolName, Rejected, Row
from detent.store.stored_schedules import MAX_CACHED, LoadedSchedules, UnreadableSchedule, read_schedule
from detent.telemetry.log import logger

log = logger("store")

BEGINNING = datetime.min.replace(tzinfo=UTC)
LANE_KEY = "live_runs_pkey"


class Cursor(NamedTuple):
    """A job's next tick, with everything needed to fire it."""

    job: int
    next_tick: datetime | None
    fire_at: datetime | None
    generation: int
    bounded: bool
    queue: int
    schedule: int
    revision: int
    grace: int
    partition: int
    priority: int
    lanes: int
    once: bool
    missed: int = RUN_ONCE
    max_missed: int = MAX_MISSED


class Advance(NamedTuple):
    """A tick to fire: the cursor where it must be, and where it moves to."""

    cursor: Cursor
    next_tick: datetime | None
    fire_at: datetime | None

    @property
    def moved(self) -> Cursor:
        # As _replace, at a third of its cost.
        return Cursor._make((self.cursor.job, self.next_tick, self.fire_at, *self.cursor[3:]))


_job_of, _tick_of, _generation_of = (
    itemgetter(Cursor._fields.index(name)) for name in ("job", "next_tick", "generation")
)


class Exceptional(NamedTuple):
    """A tick that did not become a run in lane 0.

    `why` is None for a run in another lane, 'key' for a run that waits for a place of its concurrency key, 'overlap' or
    'by request' for a skipped tick, and 'refused' if the cursor was not as expected: another node fired the tick, the
    job changed, or this node is evicted.
    """

    job: int
    lane: int | None
    why: str | None


class Leap(NamedTuple):
    """A cursor that moves past missed ticks, up to and including `passed`: some never run, some are caught up later.
    None: its last tick stays what it was. `suspended`: they are skipped, because the tenant is suspended."""

    cursor: Cursor
    next_tick: datetime | None
    fire_at: datetime | None
    passed: datetime | None
    missed: Sequence[MissedRange]
    catch_up: CatchUp | None = None
    suspended: bool = False


class DelayLook(NamedTuple):
    """A cursor whose tick counts from the end of the run before: the delay, how long to wait while a run is unfinished,
    and the end of the schedule."""

    job: int
    tick: datetime
    generation: int
    delay: timedelta
    look: timedelta
    ends_at: datetime | None


class DelaysSeen(NamedTuple):
    """Cursors that were moved, with where they are now (None: the schedule has ended), and those that were locked or
    not as expected. The ticks of all other cursors may fire."""

    moved: dict[int, datetime | None]
    busy: set[int]


class CursorStore:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._schedules: dict[int, Schedule] = {}

    async def window(
        self, partitions: Sequence[int], lower: datetime | None, upper: datetime, limit: int
    ) -> list[Cursor]:
        """Cursors that fire from `lower` (None: from the beginning) to `upper`, at most `limit` of each partition."""
        bounds = [lower or BEGINNING] * len(partitions)
        return _cursors(
            await self._database.fetch(PoolName.WORK, sql.cursor.READ_WINDOW, list(partitions), bounds, upper, limit)
        )

    async def load(self, jobs: Sequence[int]) -> list[Cursor]:
        return _cursors(await self._database.fetch(PoolName.WORK, sql.cursor.READ, list(jobs)))

    async def schedules(self, numbers: set[int]) -> LoadedSchedules:
        """Schedules by number; rows never change, so they are cached, within bounds. One that this version cannot read
        is left out, so that only its own jobs stop firing; accessing it raises the reason."""
        known = self._schedules
        unknown = [number for number in numbers if number not in known]
        found = LoadedSchedules({})
        if unknown:
            rows = await self._database.fetch(PoolName.WORK, sql.schedule.READ, unknown)
            stored = {row["schedule"]: row["stored"] for row in rows}
            for number in unknown:
                self._read(number, stored.get(number), found)
        found.update((number, known[number]) for number in numbers if number in known)
        self._evict_oldest()
        return found

    def _read(self, number: int, stored: str | None, found: LoadedSchedules) -> None:
        try:
            self._schedules[number] = read_schedule(number, stored)
        except UnreadableSchedule as error:
            found.unreadable[number] = error.message
            log.error("a schedule cannot be read", schedule=stored, error=error.message)

    def _evict_oldest(self) -> None:
        while len(self._schedules) > MAX_CACHED:
            del self._schedules[next(iter(self._schedules))]

    async def fire(
        self,
        node: int,
        incarnation: int,
        hand_off: bool,
        batch: Sequence[Advance],
        *,
        careful: bool = False,
        patient: bool = False,
    ) -> list[Exceptional]:
        """Turn a batch of ticks, sorted by job, into runs. `hand_off`: this node owns the runs immediately.
        `careful`: for bounded jobs; skips locked cursors. `patient`: as careful, and a tick without a free lane
        stays due."""
        cursors, nexts, fire_ats = zip(*batch, strict=True)
        jobs, ticks, generations = (list(map(column, cursors)) for column in (_job_of, _tick_of, _generation_of))
        by = (node, incarnation, node if hand_off else None)
        later = None if fire_ats == nexts else fire_ats
        if careful or patient:
            batched: tuple[object, ...] = (jobs, ticks, generations, nexts, later, patient)
            rows = await self._database.fetch_guarded(PoolName.FIRE, sql.cursor.FIRE_CAREFUL, "S4", "S5", *by, *batched)
        else:
            batched = (jobs, *agreed(ticks), *agreed(generations), *agreed(nexts), later)
            try:
                rows = await self._database.fetch_guarded(PoolName.FIRE, sql.cursor.FIRE, "S4", "S5", *by, *batched)
            except Rejected as refused:
                if refused.constraint != LANE_KEY:
                    raise
                raise LockTimeout("a job of the batch got another run in the meantime") from refused
        return [Exceptional(row["job"], row["lane"], row["why"]) for row in rows]

    async def look_at_delays(self, node: int, batch: Sequence[DelayLook]) -> DelaysSeen:
        """Move cursors whose tick is earlier than the end of the previous run plus the delay. A job that is not
        returned may be fired."""
        arguments = columns(6, sorted(batch))
        rows = await self._database.fetch(PoolName.FIRE, sql.cursor.LOOK_AT_DELAYS, node, *arguments)
        moved = {row["job"]: row["next_tick"] for row in rows if not row["busy"]}
        return DelaysSeen(moved, {row["job"] for row in rows if row["busy"]})

    async def miss(self, node: int, batch: Sequence[Leap], *, suspended: bool = False) -> set[int]:
        """Record missed ticks and move the cursors past them; returns the jobs whose cursor was as expected.
        `suspended`: all of these are of suspended tenants; otherwise none is."""
        moves = [
            (cursor.job, cursor.next_tick, cursor.generation, next_tick, fire_at, passed)
            for cursor, next_tick, fire_at, passed, *_ in batch
        ]
        ranges = [(leap.cursor.job, *missed) for leap in batch for missed in leap.missed]
        catch_ups = [(leap.cursor.job, *leap.catch_up) for leap in batch if leap.catch_up is not None]
        arguments = (*columns(6, moves), *columns(5, ranges), *columns(4, catch_ups), suspended)
        rows = await self._database.fetch(PoolName.FIRE, sql.cursor.MISS, node, *arguments)
        return {row["job"] for row in rows}


def _cursors(rows: list[Row]) -> list[Cursor]:
    return [Cursor(*row.values()) for row in rows]
