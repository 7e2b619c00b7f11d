"""Rows that are no longer needed: former revisions and spans, schedules and queues without a job.

They are scanned page by page, each page one short statement, and removed by key.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from detent.store import sql
from detent.store.db import Database, PoolName

SCANNED_AT_ONCE = 5_000
BEGINNING = datetime.fromisoformat("0001-01-01T00:00:00+00:00")


# Rows that jobs share: one for each distinct value.
Shared = Literal["schedules", "queues"]
Used = dict[Shared, set[int]]
BY_USE = {"schedules": sql.schedule.LIST_BY_USE, "queues": sql.queue.LIST_BY_USE}
MARK = {"schedules": sql.schedule.MARK_UNUSED, "queues": sql.queue.MARK_UNUSED}
PURGE = {"schedules": sql.schedule.PURGE, "queues": sql.queue.PURGE}


class MarkedRow(NamedTuple):
    """A schedule or a queue, and whether it is marked as unused."""

    number: int
    marked: bool


class LeftoverStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def purge_revisions(self, kept: int) -> AsyncIterator[int]:
        """Remove former revisions beyond the newest `kept` of each job; yields how many after each page."""
        job, revision = 0, 0
        while True:
            (row,) = await self._database.fetch(
                PoolName.REQUEST, sql.revision.PURGE, kept, job, revision, SCANNED_AT_ONCE
            )  # fmt: skip
            if row["job"] is None:
                return
            job, revision = row["job"], row["revision"]
            yield row["gone"]

    async def purge_segments(self, days: int, at: datetime | None = None) -> AsyncIterator[int]:
        """Remove spans that history no longer covers; yields how many after each page."""
        job, since = 0, BEGINNING
        while True:
            (row,) = await self._database.fetch(
                PoolName.REQUEST, sql.ledger.PURGE_SEGMENTS, days, job, since, SCANNED_AT_ONCE, at
            )
            if row["job"] is None:
                return
            job, since = row["job"], row["since"]
            yield row["gone"]

    # -- schedules and queues

    async def used(self) -> AsyncIterator[Used]:
        """References from jobs, then from spans, then from live runs: a reference only ever moves in that direction, so
        every schedule or queue in use is found, even if it moves meanwhile."""
        job = 0
        while True:
            (row,) = await self._database.fetch(
                PoolName.REQUEST, sql.schedule.LIST_USED_BY_CURSORS, job, SCANNED_AT_ONCE
            )
            if row["last"] is None:
                break
            job = row["last"]
            yield {"schedules": set(row["schedules"]), "queues": set(row["queues"])}
        job, since = 0, BEGINNING
        while True:
            (row,) = await self._database.fetch(
                PoolName.REQUEST, sql.schedule.LIST_USED_BY_SEGMENTS, job, since, SCANNED_AT_ONCE
            )
            if row["job"] is None:
                break
            job, since = row["job"], row["since"]
            yield {"schedules": set(row["schedules"])}
        (row,) = await self._database.fetch(PoolName.REQUEST, sql.schedule.LIST_USED_BY_WORK)
        yield {"schedules": set(row["schedules"]), "queues": set(row["queues"])}

    async def listed(self, kind: Shared, behind: int) -> list[MarkedRow]:
        rows = await self._database.fetch(PoolName.REQUEST, BY_USE[kind], behind, SCANNED_AT_ONCE)
        return [MarkedRow(*row.values()) for row in rows]

    async def mark(self, kind: Shared, unused: Sequence[int], used: Sequence[int]) -> None:
        await self._database.fetch(PoolName.REQUEST, MARK[kind], list(unused), list(used))

    async def purge_unused(
        self, kind: Shared, unused: Sequence[int], after: timedelta, at: datetime | None = None
    ) -> int:
        """Remove those that were marked at least `after` ago; returns how many."""
        return len(await self._database.fetch(PoolName.REQUEST, PURGE[kind], list(unused), after, at))
