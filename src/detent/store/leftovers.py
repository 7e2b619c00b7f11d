"""What nothing needs any more: former revisions and spans, schedules and queues without a job, sessions that are over.

All of it is looked through page by page, each page one short statement, and removed by key.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from detent.store import sql
from detent.store.db import Database, PoolName

LOOKED_AT_ONCE = 5_000
FORGOTTEN_AT_ONCE = 500
BEGINNING = datetime.fromisoformat("0001-01-01T00:00:00+00:00")


# What jobs share: one row for each distinct one.
Shared = Literal["schedules", "queues"]
Used = dict[Shared, set[int]]
BY_USE = {"schedules": sql.schedule.LIST_BY_USE, "queues": sql.queue.LIST_BY_USE}
MARK = {"schedules": sql.schedule.MARK_UNUSED, "queues": sql.queue.MARK_UNUSED}
PURGE = {"schedules": sql.schedule.PURGE, "queues": sql.queue.PURGE}


class Marked(NamedTuple):
    """A schedule or a queue, and whether it is marked as unused."""

    number: int
    marked: bool


class LeftoverStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def forget_revisions(self, kept: int) -> AsyncIterator[int]:
        """Former revisions beyond the newest so many of each job; after each page, how many are gone."""
        job, revision = 0, 0
        while True:
            (row,) = await self._database.fetch(
                PoolName.REQUEST, sql.revision.PURGE, kept, job, revision, LOOKED_AT_ONCE
            )  # fmt: skip
            if row["job"] is None:
                return
            job, revision = row["job"], row["revision"]
            yield row["gone"]

    async def forget_segments(self, days: int, at: datetime | None = None) -> AsyncIterator[int]:
        """Spans of which history keeps nothing; after each page, how many are gone."""
        job, since = 0, BEGINNING
        while True:
            (row,) = await self._database.fetch(
                PoolName.REQUEST, sql.ledger.PURGE_SEGMENTS, days, job, since, LOOKED_AT_ONCE, at
            )
            if row["job"] is None:
                return
            job, since = row["job"], row["since"]
            yield row["gone"]

    async def forget_sessions(self, at: datetime | None = None) -> int:
        return len(await self._database.fetch(PoolName.REQUEST, sql.session.PURGE, FORGOTTEN_AT_ONCE, at))

    # -- schedules and queues

    async def used(self) -> AsyncIterator[Used]:
        """What jobs have, then what spans have, then what is under way: a schedule or a queue only ever moves in that
        direction, so one that is in use is seen, wherever it goes meanwhile."""
        job = 0
        while True:
            (row,) = await self._database.fetch(
                PoolName.REQUEST, sql.schedule.LIST_USED_BY_CURSORS, job, LOOKED_AT_ONCE
            )
            if row["last"] is None:
                break
            job = row["last"]
            yield {"schedules": set(row["schedules"]), "queues": set(row["queues"])}
        job, since = 0, BEGINNING
        while True:
            (row,) = await self._database.fetch(
                PoolName.REQUEST, sql.schedule.LIST_USED_BY_SEGMENTS, job, since, LOOKED_AT_ONCE
            )
            if row["job"] is None:
                break
            job, since = row["job"], row["since"]
            yield {"schedules": set(row["schedules"])}
        (row,) = await self._database.fetch(PoolName.REQUEST, sql.schedule.LIST_USED_BY_WORK)
        yield {"schedules": set(row["schedules"]), "queues": set(row["queues"])}

    async def listed(self, kind: Shared, behind: int) -> list[Marked]:
        rows = await self._database.fetch(PoolName.REQUEST, BY_USE[kind], behind, LOOKED_AT_ONCE)
        return [Marked(*row.values()) for row in rows]

    async def mark(self, kind: Shared, unused: Sequence[int], used: Sequence[int]) -> None:
        await self._database.fetch(PoolName.REQUEST, MARK[kind], list(unused), list(used))

    async def forget_unused(
        self, kind: Shared, unused: Sequence[int], after: timedelta, at: datetime | None = None
    ) -> int:
        """Those of them that were marked so long ago; how many."""
        return len(await self._database.fetch(PoolName.REQUEST, PURGE[kind], list(unused), after, at))
