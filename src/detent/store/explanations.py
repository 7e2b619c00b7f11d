"""What is on record about one instant of a job."""

from __future__ import annotations

from datetime import datetime, timedelta

from detent.contract.cluster import ClusterHold
from detent.domain.identity import RunKey
from detent.store import sql
from detent.store.db import Database, PoolName, Row
from detent.store.run_rows import key_of

MICROSECOND = timedelta(microseconds=1)


class ExplanationStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def job(self, number: int) -> Row:
        return (await self._database.fetch(PoolName.REQUEST, sql.job.READ_FOR_EXPLANATION, number))[0]

    async def on_demand(self, key: RunKey) -> Row:
        """What an on-demand run waits for."""
        return (await self._database.fetch(PoolName.REQUEST, sql.task.READ_FOR_EXPLANATION, *key))[0]

    async def wait(self, key: RunKey) -> Row | None:
        """What a live run that is not on demand waits for, if no worker has claimed it."""
        return _first(await self._database.fetch(PoolName.REQUEST, sql.run.READ_WAIT, *key))

    async def host_limit(self, job: int) -> Row | None:
        """`url` and `calls` of a job that limits the calls to its host."""
        return _first(await self._database.fetch(PoolName.REQUEST, sql.job.READ_HOST_LIMIT, job))

    async def revision_at(self, job: int, at: datetime) -> Row | None:
        """`revision`, `made_at` and `changed_by` of the definition at this time, if it is still kept."""
        return _first(await self._database.fetch(PoolName.REQUEST, sql.revision.FIND_AT, job, at))

    async def skips(self, job: int) -> list[Row]:
        return await self._database.fetch(PoolName.REQUEST, sql.skip.LIST_OF_JOB, job)

    async def entry_after(self, job: int, tick: datetime) -> datetime | None:
        """The first tick after this one that became a run."""
        row = _first(await self._database.fetch(PoolName.REQUEST, sql.ledger.FIND_NEXT_ENTRY, job, tick))
        return None if row is None else row["scheduled_at"]

    async def span_at(self, job: int, at: datetime) -> Row | None:
        rows = await self._database.fetch(PoolName.REQUEST, sql.ledger.LIST_SPANS, [job], at - MICROSECOND, at)
        return next((row for row in rows if row["since"] is not None and row["opened"] != "backfill"), None)

    async def leader_at(self, partition: int, at: datetime) -> Row | None:
        """The election of a partition that was in force: `node`, `term`, `at`."""
        return _first(await self._database.fetch(PoolName.REQUEST, sql.partition.FIND_LEADER_AT, partition, at))

    async def hold(self) -> ClusterHold | None:
        """Since when all ticks are paused, if they are."""
        (row,) = await self._database.fetch(PoolName.REQUEST, sql.cluster.READ_HOLD)
        return None if row["at"] is None else ClusterHold(at=row["at"], by=row["by"], reason=row["reason"])

    async def blocking_run(self, job: int, at: datetime, longest: timedelta) -> RunKey | None:
        """The newest run of a job that was unfinished at this time and no longer than `longest`."""
        row = _first(await self._database.fetch(PoolName.REQUEST, sql.run.FIND_BLOCKING, job, at, longest))
        return None if row is None else key_of(row)


def _first(rows: list[Row]) -> Row | None:
    return rows[0] if rows else None
