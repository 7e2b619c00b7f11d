"""Housekeeping: history partitions created ahead, jobs that have completed, hints to other nodes."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import cache
from time import monotonic
from typing import NamedTuple
from uuid import UUID

from detent.store import migrate, sql
from detent.store.db import Database, PoolName
from detent.store.requests import ANSWERS_KEPT_FOR

JOBS_CHANNEL = "detent_jobs"
RUNS_CHANNEL = "detent_runs"


class ClusterIdentity(NamedTuple):
    id: UUID
    incarnation: int
    server_version: int


class Pulse(NamedTuple):
    """The state of a database that answers; `known` is the last migration that this code knows, `set_aside` how many
    jobs cannot be fired."""

    took: float
    migration: int
    known: int
    history_days: int
    held_at: datetime | None
    original: bool
    set_aside: int


class PendingUpkeep(NamedTuple):
    """Which upkeep is needed: jobs whose last tick has fired, expired leases of pulled runs, runs that wait for their
    predecessor, answers and hints that were kept long enough, sessions that have ended, pauses that end soon; whether
    there are ticks to catch up, and deadlines; events of the audit log that are not chained yet; and on-demand runs
    that wait, some of which may be of deleted jobs."""

    ended: bool
    leases: bool
    waiting: bool
    requests: bool
    changes: bool
    sessions: bool
    pauses: bool
    catchups: bool
    expectations: bool
    events: bool
    backlog: bool


class UpkeepStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def cluster(self) -> ClusterIdentity:
        row = (await self._database.fetch(PoolName.WORK, sql.cluster.READ))[0]
        return ClusterIdentity(row["id"], row["incarnation"], row["server_version"])

    async def now(self) -> datetime:
        """The database's time."""
        moment: datetime = (await self._database.fetch(PoolName.REQUEST, sql.database.CLOCK))[0]["now"]
        return moment

    async def now_within(self, seconds: float) -> datetime:
        """As `now`, to check whether the database answers: it fails after `seconds`."""
        moment: datetime = (await self._database.fetch_within(seconds, PoolName.REQUEST, sql.database.CLOCK))[0]["now"]
        return moment

    async def pulse(self) -> Pulse:
        began = monotonic()
        (row,) = await self._database.fetch(PoolName.REQUEST, sql.database.PING)
        return Pulse(
            monotonic() - began, row["migration"], _known(), row["history_days"],
            row["held_at"], row["original"], row["set_aside"],
        )  # fmt: skip

    async def make_history_days(self, ahead: int) -> int:
        rows = await self._database.fetch(PoolName.REQUEST, sql.history.ADD_DAYS, ahead)
        return sum(row["made"] for row in rows)

    async def due(self, at: datetime, soon: timedelta) -> PendingUpkeep:
        """`at`: the time of the caller's clock; `soon`: report pauses that end within this."""
        (row,) = await self._database.fetch(PoolName.WORK, sql.upkeep.FIND_DUE, ANSWERS_KEPT_FOR, at, soon)
        return PendingUpkeep(*row.values())

    async def complete_jobs(self, limit: int = 1000) -> list[int]:
        return [row["job"] for row in await self._database.fetch(PoolName.WORK, sql.job.COMPLETE, limit)]

    async def end_deleted(self, limit: int = 1000) -> int:
        """Cancel waiting runs of deleted jobs; returns how many. They were running when their job was deleted."""
        jobs = [row["job"] for row in await self._database.fetch(PoolName.WORK, sql.job.LIST_DELETED_WITH_RUNS, limit)]
        return len(await self._database.fetch(PoolName.WORK, sql.run.END_OF_DELETED_JOBS, jobs)) if jobs else 0

    async def purge_changes(self) -> None:
        await self._database.fetch(PoolName.WORK, sql.feed.PURGE)

    async def wake(self, channel: str, payload: str, *, pool: PoolName = PoolName.WORK) -> None:
        await self._database.fetch(pool, sql.feed.NOTIFY, channel, payload)


@cache
def _known() -> int:
    return len(migrate.known())
