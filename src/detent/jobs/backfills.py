"""Backfills: run past ticks of a job, list the ticks that are still to run besides the schedule, and drop them.

A backfill is a range of ticks of the job's present schedule, as far back as the operator wants, even before the job was
created. The leader of the job's partition releases it (`scheduler/catch_up.py`) and decides about each tick when its
turn comes; the answer here is a forecast.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from detent.contract.tick import Backfilled, BackfillRequest, OutstandingTicks
from detent.domain.audit_event import NewEvent
from detent.domain.delay_rules import ticks_unknown
from detent.domain.misfire import SHORTEST_STEP
from detent.domain.schedule import Schedule, ScheduleError
from detent.domain.schedule.instants import check_range
from detent.domain.schedule.steps import RANGE_STEPS, Steps
from detent.domain.task_rules import without_ticks
from detent.errors import Conflict, UsageError
from detent.jobs import job_events
from detent.jobs.catch_up_ranges import dropped_ticks
from detent.jobs.limits import busy
from detent.jobs.moves import schedule_of_row
from detent.jobs.register import ATTEMPTS
from detent.runtime.arithmetic import compute
from detent.store import Store
from detent.store.catchups import DueCatchUp, NewBackfill, RangeDrop
from detent.store.db import Row
from detent.store.jobs import DEFAULT_TENANT, number_of

MAX_TICKS = 100_000
MAX_LISTED = 100
AT_A_TIME = 256


class Extent(NamedTuple):
    """The ticks of a backfill: the first, the last and how many, and which are left out because they ran or will run
    anyway."""

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


class Backfills:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def add(
        self, job_id: UUID, wanted: BackfillRequest, *, tenant: int = DEFAULT_TENANT, by: str | None = None
    ) -> Backfilled:
        """Run the past ticks of a time range; with `dry_run` only list them."""
        for _ in range(ATTEMPTS):
            row = await self._store.jobs.to_change(tenant, job_id)
            extent = await self._extent(row, wanted)
            if extent is None:
                return Backfilled(dry_run=wanted.dry_run, ticks=0, left_out=0, first=None, last=None, items=[])
            answer = await _answer(extent, wanted)
            if wanted.dry_run or not answer.ticks or await self._begin(row, await _trimmed(extent), wanted, by):
                return answer
        raise busy(row["name"])

    async def _extent(self, row: Row, wanted: BackfillRequest) -> Extent | None:
        since, until = wanted.from_, wanted.to or row["now"]
        _check(since, until, row["now"])
        if row["next_tick"] is not None:
            until = min(until, row["next_tick"] - SHORTEST_STEP)  # a due tick belongs to the schedule
        counted = await compute(_count, row, since, until)
        if counted is None:
            return None
        first, last, ticks = counted
        schedule = schedule_of_row(row)
        if ticks > MAX_TICKS:
            raise UsageError(
                f"There are {ticks:,} ticks from {_written(since)} to {_written(until)}, and {MAX_TICKS:,} are "
                "allowed: backfill a shorter range at a time.",
                "/to",
            )
        return Extent(schedule, first, last, ticks, *await self._left_out(row, wanted, first, last, schedule))

    async def _left_out(
        self, row: Row, wanted: BackfillRequest, first: datetime, last: datetime, schedule: Schedule
    ) -> tuple[frozenset[datetime], list[tuple[datetime, datetime]]]:
        if wanted.reprocess:
            return frozenset(), []
        limit = 2 * MAX_TICKS
        ran = set()
        for position, tick in enumerate(await self._store.runs.ticks_that_ran(row["job"], first, last, limit)):
            if position % AT_A_TIME == 0:
                await asyncio.sleep(0)  # this loop also fires
            if schedule.latest(tick, tick) is not None:  # a tick of the present schedule
                ran.add(tick)
        owed = await self._store.catchups.of_job(row["job"])
        ranges = [(item["next_tick"], item["until"]) for item in owed if item["kind"] == "missed"]
        return frozenset(ran), ranges

    async def _begin(self, row: Row, extent: Extent, wanted: BackfillRequest, by: str | None) -> bool:
        """False: the job changed meanwhile."""
        if row["status"] == "paused":
            raise Conflict(f"The job {row['name']!r} is paused, so its backfill would not run: resume it first.")
        return await self._store.catchups.add_backfill(
            NewBackfill(
                row["job"], row["generation"], extent.first, extent.last, extent.ticks, wanted.concurrency,
                wanted.order == "newest", wanted.reprocess, by,
            ),
            job_events.of_job(row, "job.backfill", None, _facts(extent, wanted)),
        )  # fmt: skip

    async def outstanding(self, job_id: UUID, *, tenant: int = DEFAULT_TENANT) -> list[OutstandingTicks]:
        """The ticks of a job that are still to run besides its schedule."""
        number = await number_of(self._store.database, job_id, tenant)
        rows = await self._store.catchups.of_job(number)
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
        """Drop those ticks; returns how many. The ledger records missed ones as `missed: dropped`."""
        number = await number_of(self._store.database, job_id, tenant)
        event = NewEvent("job.drop-catchup", tenant, "job", str(job_id))
        dropped = 0
        for _ in range(ATTEMPTS):
            rows = await self._store.catchups.of_job(number)
            if not rows:
                return dropped
            schedules = await self._store.cursors.schedules({row["schedule"] for row in rows})
            dropping = [_dropping(row, schedules[row["schedule"]]) for row in rows]
            dropped += await self._store.catchups.drop(dropping, event)
        raise busy(str(job_id))


def _count(row: Row, since: datetime, until: datetime) -> tuple[datetime, datetime, int] | None:
    """The first tick of the range, the last and how many; None: it has none."""
    schedule = schedule_of_row(row, Steps(RANGE_STEPS, "count the ticks of this range"))
    if schedule.never:
        raise without_ticks(row["name"])
    if schedule.delay is not None:
        raise ticks_unknown(row["name"])
    first = schedule.next_after(since - SHORTEST_STEP)
    last = schedule.latest(first, until) if first is not None and first <= until else None
    if first is None or last is None:
        return None
    return first, last, 1 + schedule.count_between(first, last)


def _dropping(row: Row, schedule: Schedule) -> RangeDrop:
    due = DueCatchUp(
        row["catchup"], row["job"], row["partition"], row["kind"], row["schedule"], row["since"], row["until"],
        row["next_tick"], row["descending"], 0, False, "",
    )  # fmt: skip
    return RangeDrop(due.catchup, due.next_tick, dropped_ticks(schedule, due, "dropped"))


def _facts(extent: Extent, wanted: BackfillRequest) -> dict[str, Any]:
    return {
        "from": job_events.written(extent.first),
        "to": job_events.written(extent.last),
        "ticks": extent.ticks,
        "reprocess": wanted.reprocess,
    }


def _owed(extent: Extent) -> int:
    return sum(
        1 + extent.schedule.count_between(first, last)
        for start, end in extent.owed
        if (first := max(start, extent.first)) <= (last := min(end, extent.last))
    )


async def _answer(extent: Extent, wanted: BackfillRequest) -> Backfilled:
    left_out = len(extent.ran) + await compute(_owed, extent)
    return Backfilled(
        dry_run=wanted.dry_run,
        ticks=extent.ticks - left_out,
        left_out=left_out,
        first=extent.first,
        last=extent.last,
        items=await _listed(extent, wanted.order == "newest") if wanted.dry_run else [],
    )


async def _trimmed(extent: Extent) -> Extent:
    """Without the ticks left out at either end: most of a repeated backfill has often run already."""
    first = await _first_to_run(extent, newest_first=False)
    last = await _first_to_run(extent, newest_first=True)
    ticks = 1 + await compute(extent.schedule.count_between, first, last)
    return extent._replace(first=first, last=last, ticks=ticks)


async def _first_to_run(extent: Extent, *, newest_first: bool) -> datetime:
    found = await _listed(extent, newest_first, 1)
    return found[0] if found else extent.first


async def _listed(extent: Extent, newest_first: bool, most: int = MAX_LISTED) -> list[datetime]:
    """The first ticks that would run, in their order."""
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
            f"to is {_written(until)}, which is in the future: a backfill runs past ticks, so give a time up to now, "
            "or leave it out.",
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
