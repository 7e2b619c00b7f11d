"""Steps of runs as people see them, and the removal of steps and marks that are no longer needed. Handlers write them
on connections of their own: effects.py."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

from detent.contract.run import RunStep
from detent.domain.identity import EPOCH, RunKey
from detent.store import sql
from detent.store.connection import Connection
from detent.store.db import Database, PoolName

PURGE_PAGE = 1_000
_MILLISECOND = timedelta(milliseconds=1)


class EffectLedgerStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def purge_steps(self) -> AsyncIterator[int]:
        """Delete steps of runs that have ended and cannot be retried; yields how many after each page."""
        after: tuple[object, ...] = (0, EPOCH, 0, "")
        while True:
            rows = await self._database.fetch(PoolName.WORK, sql.effect.PURGE_STEPS, *after, PURGE_PAGE)
            if not rows:
                return
            gone, *last = rows[0].values()
            yield gone
            after = tuple(last)

    async def purge_marks(self) -> int:
        """Delete marks of effects that are no longer kept; returns how many."""
        return len(await self._database.fetch(PoolName.WORK, sql.effect.PURGE_MARKS, PURGE_PAGE))


async def steps_of(connection: Connection, key: RunKey) -> list[RunStep]:
    """The stored steps of a run, without their results."""
    rows = await connection.fetch(sql.effect.READ_STEPS.text, *key)
    return [
        RunStep(
            name=row["name"],
            attempt=row["attempt"],
            finished_at=row["stored_at"],
            duration_ms=row["took"] // _MILLISECOND,
        )
        for row in rows
    ]
