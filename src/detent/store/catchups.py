"""Ranges of ticks besides the cursor: missed ticks that are still to run, and backfills."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal, NamedTuple

from detent.domain.audit_event import NewEvent
from detent.domain.identity import MANUAL
from detent.domain.misfire import MissedRange
from detent.store import sql
from detent.store.arrays import columns
from detent.store.audit_log import record
from detent.store.connection import Connection
from detent.store.db import Database, PoolName, Row
from detent.store.live_runs import admit_on
from detent.store.upkeep import JOBS_CHANNEL

CatchUpKind = Literal["missed", "backfill"]
ReleaseResult = Literal["released", "left out", "live", "queue", "lane"]


class DueCatchUp(NamedTuple):
    """A range that may be released. `dead`: its job has ended, and so has the range."""

    catchup: int
    job: int
    partition: int
    kind: CatchUpKind
    schedule: int
    since: datetime
    until: datetime
    next_tick: datetime
    descending: bool
    generation: int
    dead: bool
    status: str
    left_over: int = 1

    @property
    def untouched(self) -> bool:
        """Whether no tick of the range has been released yet."""
        return self.next_tick == (self.until if self.descending else self.since)


class Release(NamedTuple):
    """One tick of a range to release: compared with (tick, generation), set to `following` (None: it was the last)."""

    catchup: int
    tick: datetime
    generation: int
    following: datetime | None


class RangeDrop(NamedTuple):
    """A range to drop, its expected next tick, and its remaining ticks for the ledger."""

    catchup: int
    tick: datetime
    missed: Sequence[MissedRange] = ()


class NewBackfill(NamedTuple):
    """A range of past ticks to run; `generation` is that of the job as it was read."""

    job: int
    generation: int
    first: datetime
    last: datetime
    ticks: int
    concurrency: int
    descending: bool
    reprocess: bool
    by: str | None


class CatchUpStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def due(self, after: Mapping[int, int], limit: int) -> list[DueCatchUp]:
        """Ranges by partition, each partition from after the given range on, at most `limit` of each."""
        rows = await self._database.fetch(
            PoolName.WORK, sql.catch_up.LIST_DUE, list(after), list(after.values()), limit
        )
        return [DueCatchUp(*row.values()) for row in rows]

    async def release(
        self, node: int, incarnation: int, jobs: Sequence[int], batch: Sequence[Release]
    ) -> dict[int, ReleaseResult]:
        """Release one tick of each range whose job has a free lane and nothing else due. By range: its result; omitted
        ranges have changed, or another transaction has locked their job."""

        async def work(connection: Connection) -> dict[int, ReleaseResult]:
            locked = {row["job"] for row in await connection.fetch(sql.catch_up.LOCK_JOBS.text, node, sorted(jobs))}
            chosen = [item for job, item in zip(jobs, batch, strict=True) if job in locked]
            if not chosen:
                return {}
            rows = await connection.fetch(sql.catch_up.RELEASE.text, node, incarnation, MANUAL, *columns(4, chosen))
            await admit_on(connection, [row["job"] for row in rows if row["keyed"] and row["fate"] == "released"])
            return {row["catchup"]: row["fate"] for row in rows}

        results: dict[int, ReleaseResult] = await self._database.transaction(PoolName.WORK, work)
        return results

    async def drop(self, droppings: Sequence[RangeDrop], event: NewEvent | None = None) -> int:
        """Drop the remaining ticks of these ranges; returns how many. Ranges that have moved meanwhile stay. `event`:
        the change of which this is a part, if it is one."""
        ranges = [(item.catchup, *missed) for item in droppings for missed in item.missed]
        places = [(item.catchup, item.tick) for item in droppings]

        async def work(connection: Connection) -> int:
            rows = await connection.fetch(sql.catch_up.DROP.text, *columns(2, places), *columns(5, ranges))
            dropped: int = sum(row["left_over"] for row in rows)
            if dropped and event is not None:
                await record(connection, event._replace(before={"ticks": dropped}))
            return dropped

        dropped: int = await self._database.transaction(PoolName.REQUEST, work)
        return dropped

    async def of_job(self, job: int) -> list[Row]:
        return await self._database.fetch(PoolName.REQUEST, sql.catch_up.LIST_OF_JOB, job)

    async def add_backfill(self, backfill: NewBackfill, event: NewEvent) -> bool:
        """False: the job changed since it was read."""

        async def work(connection: Connection) -> bool:
            added = await connection.fetch(sql.catch_up.ADD_BACKFILL.text, *backfill)
            if added:
                await connection.fetch(sql.feed.NOTIFY.text, JOBS_CHANNEL, str(backfill.job))
                await record(connection, event)
            return bool(added)

        added: bool = await self._database.transaction(PoolName.REQUEST, work)
        return added

    async def schedules_of(self, partition: int) -> dict[int, int]:
        """How many active jobs of a partition have each schedule."""
        rows = await self._database.fetch(PoolName.WORK, sql.schedule.COUNT_IN_PARTITION, partition)
        return {row["schedule"]: row["jobs"] for row in rows}
