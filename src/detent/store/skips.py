"""Single ticks that are marked to be skipped."""

from __future__ import annotations

from datetime import datetime

from detent.contract.tick import Skip
from detent.store import sql
from detent.store.connection import Connection
from detent.store.db import Database, PoolName, Row
from detent.store.job_writes import Moved


class SkipStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(self, job: int) -> list[Skip]:
        """Ticks of a job that are marked, future ones and those that history still covers."""
        return [_skip(row) for row in await self._database.fetch(PoolName.REQUEST, sql.skip.LIST_OF_JOB, job)]


async def skips_of(connection: Connection, job: int) -> set[datetime]:
    return {row["tick"] for row in await connection.fetch(sql.skip.LIST_OF_JOB.text, job)}


async def add_skip(connection: Connection, row: Row, at: datetime, reason: str | None, by: str | None) -> Skip:
    """Mark a tick of the job in `row`; or Moved."""
    kept = await connection.fetch(sql.skip.ADD.text, row["job"], at, reason, by, row["generation"])
    if not kept:
        raise Moved
    return Skip(at=at, reason=reason, created_at=kept[0]["created_at"], created_by=by)


async def remove_skip(connection: Connection, row: Row, at: datetime) -> None:
    """Remove the mark; or Moved."""
    if not await connection.fetch(sql.skip.REMOVE.text, row["job"], at, row["generation"]):
        raise Moved


def _skip(row: Row) -> Skip:
    return Skip(at=row["tick"], reason=row["reason"], created_at=row["created_at"], created_by=row["created_by"])
