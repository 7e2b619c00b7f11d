"""Ranges of ticks beside the live cursor: missed ones that are still to run, and backfills."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal, NamedTuple

from detent.domain.identity import MANUAL
from detent.domain.misfire import SHORTEST_STEP, MissedRange, split_by_day
from detent.domain.schedule import Schedule
from detent.store import sql
from detent.store.arrays import columns
from detent.store.connection import Connection
from detent.store.db import Database, PoolName

Kind = Literal["missed", "backfill"]
Fate = Literal["released", "left out", "live", "queue", "lane"]


class Due(NamedTuple):
    """A range that may be released. `dead`: its job is over, and so is the range."""

    catchup: int
    job: int
    partition: int
    kind: Kind
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
        """Nothing of it has been released yet."""
        return self.next_tick == (self.until if self.descending else self.since)


class Release(NamedTuple):
    """One tick of a range to let go: compared with (tick, generation), set to `following` (None: it was the last)."""

    catchup: int
    tick: datetime
    generation: int
    following: datetime | None


class Dropping(NamedTuple):
    """What is left of a range, from the tick it should stand on, and how the ledger says it."""

    catchup: int
    tick: datetime
    missed: Sequence[MissedRange] = ()


def following(schedule: Schedule, due: Due) -> datetime | None:
    """The tick after the one that a range stands on, in its own direction; None: that is the last."""
    schedule = schedule.anchored(due.next_tick)
    if due.descending:
        return schedule.latest(due.since, due.next_tick - SHORTEST_STEP)
    tick = schedule.next_after(due.next_tick)
    return tick if tick is not None and tick <= due.until else None


def rest_of(schedule: Schedule, due: Due, reason: str) -> list[MissedRange]:
    """What the ledger says of a range that is given up. Ticks of a backfill have their line already, or need none."""
    if due.kind == "backfill":
        return []
    return split_by_day(schedule.anchored(due.next_tick), due.next_tick, due.until, reason)


class CatchUpStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def due(self, after: Mapping[int, int], limit: int) -> list[Due]:
        """Ranges of these partitions, each behind the range that is named, at most `limit` of each partition."""
        rows = await self._database.fetch(
            PoolName.WORK, sql.catch_up.LIST_DUE, list(after), list(after.values()), limit
        )
        return [Due(*row.values()) for row in rows]

    async def release(
        self, node: int, incarnation: int, jobs: Sequence[int], batch: Sequence[Release]
    ) -> dict[int, Fate]:
        """Let one tick of each range go, where the job has room and nothing else is due. By range: its fate; those left
        out have changed, or somebody has their job in hand."""

        async def work(connection: Connection) -> dict[int, Fate]:
            locked = {row["job"] for row in await connection.fetch(sql.catch_up.LOCK_JOBS.text, node, sorted(jobs))}
            chosen = [item for job, item in zip(jobs, batch, strict=True) if job in locked]
            if not chosen:
                return {}
            rows = await connection.fetch(sql.catch_up.RELEASE.text, node, incarnation, MANUAL, *columns(4, chosen))
            return {row["catchup"]: row["fate"] for row in rows}

        fates: dict[int, Fate] = await self._database.transaction(PoolName.WORK, work)
        return fates

    async def drop(self, droppings: Sequence[Dropping]) -> int:
        """Give up what is left of these; how many ticks that is. Those that have moved meanwhile stay."""
        ranges = [(item.catchup, *missed) for item in droppings for missed in item.missed]
        places = [(item.catchup, item.tick) for item in droppings]
        rows = await self._database.fetch(PoolName.REQUEST, sql.catch_up.DROP, *columns(2, places), *columns(5, ranges))
        return sum(row["left_over"] for row in rows)

    async def schedules_of(self, partition: int) -> dict[int, int]:
        """How many active jobs of a partition have each schedule."""
        rows = await self._database.fetch(PoolName.WORK, sql.schedule.COUNT_IN_PARTITION, partition)
        return {row["schedule"]: row["jobs"] for row in rows}
