"""Ticks beside the schedule, as people ask for them: past ones that are to run, what is still to be made up for, and an
end to it.

A backfill is a range of ticks of the job's present schedule, as far back as one likes: also before the job was made. It
is released by the leader of the job's partition (`scheduler/releasing.py`), which decides about each tick when its turn
comes; what is told here beforehand is how it looks now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

import msgspec

from detent.contract.tick import Backfilled, BackfillRequest, OutstandingTicks
from detent.domain.identity import MANUAL
from detent.domain.job import JobSpec
from detent.domain.misfire import SHORTEST_STEP
from detent.domain.registration import schedule_of
from detent.domain.schedule import Schedule, ScheduleError
from detent.domain.schedule.instants import check_range
from detent.errors import Conflict, UsageError
from detent.store import sql
from detent.store.catchups import CatchUpStore, Dropping, Due, rest_of
from detent.store.cursors import CursorStore
from detent.store.db import Database, PoolName, Row
from detent.store.jobs import DEFAULT_TENANT, TRIES, busy, missing
from detent.store.runs import number_of
from detent.store.upkeep import JOBS_CHANNEL

MOST_TICKS = 100_000
MOST_LISTED = 100
AT_A_TIME = 256


class Extent(NamedTuple):
    """The ticks of a backfill: the first, the last and how many, and which of them are left out because they ran or
    are going to."""

    schedule: Schedule
    first: datetime
    last: datetime
    ticks: int
    ran: frozenset[datetime]
    owed: list[tuple[datetime, datetime]]

    def left_out(self, tick: datetime) -> bool:
        return tick in self.ran or any(first <= tick <= last for first, last in self.owed)

    def each(self, newest_first: bool) -> Iterator[datetime]:
        tick: datetime | None = self.last if newest_first else self.first
        while tick is not None and self.first <= tick <= self.last:
            yield tick
            if newest_first:
                tick = self.schedule.latest(self.first, tick - SHORTEST_STEP)
            else:
                tick = self.schedule.next_after(tick)


class BackfillStore:
    def __init__(self, database: Database, catchups: CatchUpStore, cursors: CursorStore) -> None:
        self._database = database
        self._catchups = catchups
        self._cursors = cursors

    async def add(
        self, job_id: UUID, wanted: BackfillRequest, *, tenant: int = DEFAULT_TENANT, by: str | None = None
    ) -> Backfilled:
        """Let the past ticks of a stretch of time run; with `dry_run` only say which those are."""
        for _ in range(TRIES):
            row = await self._job(job_id, tenant)
            extent = await self._extent(row, wanted)
            if extent is None:
                return Backfilled(dry_run=wanted.dry_run, ticks=0, left_out=0, first=None, last=None, items=[])
            answer = await _answer(extent, wanted)
            if wanted.dry_run or not answer.ticks or await self._begin(row, await _trimmed(extent), wanted, by):
                return answer
        raise busy(row["name"])

    async def _job(self, job_id: UUID, tenant: int) -> Row:
        rows = await self._database.fetch(PoolName.REQUEST, sql.job.READ_FOR_CHANGE, tenant, job_id, None)
        if not rows:
            raise missing(job_id)
        return rows[0]

    async def _extent(self, row: Row, wanted: BackfillRequest) -> Extent | None:
        since, until = wanted.from_, wanted.to or row["now"]
        _check(since, until, row["now"])
        spec = msgspec.json.decode(row["definition"], type=JobSpec)
        schedule = schedule_of(spec, row["job"], row["created_at"])
        if row["next_tick"] is not None:
            until = min(until, row["next_tick"] - SHORTEST_STEP)  # what is due now is not the past yet
        first = schedule.next_after(since - SHORTEST_STEP)
        last = schedule.latest(first, until) if first is not None and first <= until else None
        if first is None or last is None:
            return None
        ticks = 1 + schedule.count_between(first, last)
        if ticks > MOST_TICKS:
            raise UsageError(
                f"There are {ticks:,} ticks from {_written(since)} to {_written(until)}, and {MOST_TICKS:,} are "
                "allowed: backfill a shorter stretch at a time.",
                "/to",
            )
        return Extent(schedule, first, last, ticks, *await self._left_out(row, wanted, first, last, schedule))

    async def _left_out(
        self, row: Row, wanted: BackfillRequest, first: datetime, last: datetime, schedule: Schedule
    ) -> tuple[frozenset[datetime], list[tuple[datetime, datetime]]]:
        if wanted.reprocess:
            return frozenset(), []
        limit = 2 * MOST_TICKS
        rows = await self._database.fetch(
            PoolName.REQUEST, sql.ledger.LIST_TICKS_THAT_RAN, row["job"], first, last, MANUAL, limit
        )
        ran = set()
        for position, found in enumerate(rows):
            if position % AT_A_TIME == 0:
                await asyncio.sleep(0)  # this loop also fires
            tick = found["scheduled_at"]
            if schedule.latest(tick, tick) is not None:  # not one of a former schedule
                ran.add(tick)
        owed = await self._database.fetch(PoolName.REQUEST, sql.catch_up.LIST_OF_JOB, row["job"])
        ranges = [(item["next_tick"], item["until"]) for item in owed if item["kind"] == "missed"]
        return frozenset(ran), ranges

    async def _begin(self, row: Row, extent: Extent, wanted: BackfillRequest, by: str | None) -> bool:
        """False: the job was changed meanwhile."""
        if row["status"] == "paused":
            raise Conflict(f"The job {row['name']!r} is paused, and so would be its backfill: resume it first.")
        made = await self._database.fetch(
            PoolName.REQUEST, sql.catch_up.ADD_BACKFILL, row["job"], row["generation"],
            extent.first, extent.last, extent.ticks, wanted.concurrency, wanted.order == "newest", wanted.reprocess, by,
        )  # fmt: skip
        if made:
            await self._database.fetch(PoolName.REQUEST, sql.feed.NOTIFY, JOBS_CHANNEL, str(row["job"]))
        return bool(made)

    # -- what is under way

    async def outstanding(self, job_id: UUID, *, tenant: int = DEFAULT_TENANT) -> list[OutstandingTicks]:
        """What of a job is still to run beside its schedule."""
        number = await number_of(self._database, job_id, tenant)
        rows = await self._database.fetch(PoolName.REQUEST, sql.catch_up.LIST_OF_JOB, number)
        return [
            OutstandingTicks(
                kind=row["kind"],
                first=row["since"],
                last=row["until"],
                next=row["next_tick"],
                left=row["left_over"],
                order="newest" if row["descending"] else "oldest",
                concurrency=row["concurrent"],
                reprocess=row["reprocess"],
                created_at=row["created_at"],
                created_by=row["created_by"],
            )
            for row in rows
        ]

    async def drop(self, job_id: UUID, *, tenant: int = DEFAULT_TENANT) -> int:
        """Give up what is left of it; how many ticks that is. Missed ones are in the ledger as `missed: dropped`."""
        number = await number_of(self._database, job_id, tenant)
        dropped = 0
        for _ in range(TRIES):
            rows = await self._database.fetch(PoolName.REQUEST, sql.catch_up.LIST_OF_JOB, number)
            if not rows:
                return dropped
            schedules = await self._cursors.schedules({row["schedule"] for row in rows})
            dropped += await self._catchups.drop([_dropping(row, schedules[row["schedule"]]) for row in rows])
        raise busy(str(job_id))


def _dropping(row: Row, schedule: Schedule) -> Dropping:
    due = Due(
        row["catchup"], row["job"], row["partition"], row["kind"], row["schedule"], row["since"], row["until"],
        row["next_tick"], row["descending"], 0, False, "",
    )  # fmt: skip
    return Dropping(due.catchup, due.next_tick, rest_of(schedule, due, "dropped"))


async def _answer(extent: Extent, wanted: BackfillRequest) -> Backfilled:
    owed = sum(
        1 + extent.schedule.count_between(first, last)
        for start, end in extent.owed
        if (first := max(start, extent.first)) <= (last := min(end, extent.last))
    )
    left_out = len(extent.ran) + owed
    return Backfilled(
        dry_run=wanted.dry_run,
        ticks=extent.ticks - left_out,
        left_out=left_out,
        first=extent.first,
        last=extent.last,
        items=await _listed(extent, wanted.order == "newest") if wanted.dry_run else [],
    )


async def _trimmed(extent: Extent) -> Extent:
    """Without what is left out at either end: of a backfill that is repeated, most has often run already."""
    first = await _first_to_run(extent, newest_first=False)
    last = await _first_to_run(extent, newest_first=True)
    return extent._replace(first=first, last=last, ticks=1 + extent.schedule.count_between(first, last))


async def _first_to_run(extent: Extent, *, newest_first: bool) -> datetime:
    found = await _listed(extent, newest_first, 1)
    return found[0] if found else extent.first


async def _listed(extent: Extent, newest_first: bool, most: int = MOST_LISTED) -> list[datetime]:
    """The first of those that would run, in their order."""
    listed: list[datetime] = []
    for position, tick in enumerate(extent.each(newest_first)):
        if position % AT_A_TIME == 0:
            await asyncio.sleep(0)
        if not extent.left_out(tick):
            listed.append(tick)
            if len(listed) == most:
                break
    return listed


def _check(since: datetime, until: datetime, now: datetime) -> None:
    if until > now:
        raise UsageError(
            f"to is {_written(until)}, which is to come: a backfill is for ticks that are past, so give a time up to "
            "now, or leave it out.",
            "/to",
        )
    try:
        check_range(since)
    except ScheduleError as error:
        raise UsageError(error.message, "/from") from error
    if since > until:
        raise UsageError(f"from is {_written(since)}, which is after the end, {_written(until)}: swap them.", "/from")


def _written(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
