"""Runs once more: a deliberate re-run of a finished one, and dead runs brought back to life.

The two differ in what the receiver is told. A re-run is new work for the same tick: a new serial, and a key of its own.
A re-drive finishes what was begun: the run is the same, with its id and its key, so that a receiver that had done the
work although no answer came can say so. Both use the job as it is now, since what is wrong was often put right in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from detent.domain.identity import MANUAL, RunKey, run_id
from detent.domain.states import FINAL
from detent.errors import Conflict, NotFound
from detent.store import sql
from detent.store.connection import Connection
from detent.store.db import Database, PoolName
from detent.store.jobs import DEFAULT_TENANT
from detent.store.live import make_way
from detent.store.run_rows import key_of, status_of
from detent.store.runs import number_of
from detent.store.upkeep import RUNS_CHANNEL

MOST_REDRIVEN = 1_000


class Redriven(NamedTuple):
    """Which runs live again, which have to wait for a free lane, and whether there may be more to come."""

    runs: list[RunKey]
    waiting: list[RunKey]
    more: bool


class RerunStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def retry(self, key: RunKey, *, tenant: int = DEFAULT_TENANT) -> RunKey:
        """Run a finished run once more, at once."""
        again: RunKey = await self._database.transaction(PoolName.REQUEST, lambda c: _retry(c, key, tenant))
        return again

    async def retry_latest(self, job_id: UUID, *, tenant: int = DEFAULT_TENANT) -> RunKey:
        """Run the newest finished run of a job once more, at once."""
        number = await number_of(self._database, job_id, tenant)
        rows = await self._database.fetch(PoolName.REQUEST, sql.run.FIND_LATEST_FINISHED, number)
        if not rows:
            raise Conflict(f"The job {job_id} has no finished run to run again: trigger it instead.")
        return await self.retry(RunKey(number, rows[0]["scheduled_at"], rows[0]["serial"]), tenant=tenant)

    async def redrive(self, keys: Sequence[RunKey], *, tenant: int = DEFAULT_TENANT) -> Redriven:
        """Bring these runs back to life, where they are dead and their jobs have room."""
        if not keys:
            return Redriven([], [], False)
        done: Redriven = await self._database.transaction(PoolName.REQUEST, lambda c: _redrive(c, keys, tenant))
        return done


async def _retry(connection: Connection, key: RunKey, tenant: int) -> RunKey:
    rows = await connection.fetch(sql.run.READ.text, *key, tenant)
    if not rows:
        raise NotFound(f"There is no run {run_id(key)}: list the runs to see those there are.")
    status = status_of(rows[0])
    if status not in FINAL:
        raise Conflict(f"The run {run_id(key)} is still {status}: wait for its end, or cancel it first.")
    await connection.fetch(sql.run.LOCK_JOB.text, key.job)
    first = key.first.serial
    (made,) = await connection.fetch(sql.run.RERUN.text, key.job, key.scheduled_at, first, first + MANUAL)
    if made["status"] == "deleted":
        raise Conflict(f"The job {made['name']!r} is deleted: its runs cannot be run again.")
    if made["serial"] is None:
        raise Conflict(
            f"The job {made['name']!r} runs already, as often at once as it may: wait for the end of that run, "
            "or cancel it."
        )
    await connection.fetch(sql.feed.NOTIFY.text, RUNS_CHANNEL, str(made["queue"]))
    await make_way(connection, made)
    return key._replace(serial=made["serial"])


async def _redrive(connection: Connection, keys: Sequence[RunKey], tenant: int) -> Redriven:
    await connection.fetch(sql.run.LOCK_JOBS.text, sorted({key.job for key in keys}), tenant)
    columns = zip(*dict.fromkeys(keys), strict=True)
    rows = await connection.fetch(sql.run.REDRIVE.text, *columns, tenant, MOST_REDRIVEN)
    redriven = [row for row in rows if row["queue"] is not None]
    for queue in sorted({row["queue"] for row in redriven}):
        await connection.fetch(sql.feed.NOTIFY.text, RUNS_CHANNEL, str(queue))
    waiting = [key_of(row) for row in rows if row["queue"] is None]
    return Redriven([key_of(row) for row in redriven], waiting, len(redriven) == MOST_REDRIVEN and bool(waiting))
