"""Statements that run a finished run again.

A re-run is new work for the same tick: it has a new serial and its own idempotency key. A re-drive continues a dead
run: it keeps its id and its key, so that a receiver that has done the work, although its answer was lost, recognises
it. Both use the present definition of the job, because that is where the cause of a failure is usually fixed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from detent.domain.audit_event import Facts, of_runs
from detent.domain.identity import MANUAL, RunKey
from detent.store import sql
from detent.store.audit_log import record
from detent.store.connection import Connection
from detent.store.db import Database, PoolName, Row
from detent.store.job_limits import job_limits
from detent.store.jobs import DEFAULT_TENANT
from detent.store.live_runs import admit_on, make_way, wake_queue
from detent.store.run_rows import key_of
from detent.store.tasks import redrive_on_demand

MOST_REDRIVEN = 1_000


class RedrivenRuns(NamedTuple):
    """Runs that are live again, runs that wait for a free lane, and whether a further call may find more."""

    runs: list[RunKey]
    waiting: list[RunKey]
    more: bool


class RerunStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def latest_finished(self, job: int) -> RunKey | None:
        rows = await self._database.fetch(PoolName.REQUEST, sql.run.FIND_LATEST_FINISHED, job)
        return RunKey(job, rows[0]["scheduled_at"], rows[0]["serial"]) if rows else None

    async def latest_dead(self, jobs: Sequence[int]) -> list[RunKey]:
        """The newest run of each job that is dead."""
        return [
            key_of(row) for row in await self._database.fetch(PoolName.REQUEST, sql.overview.LIST_LATEST_DEAD, jobs)
        ]

    async def redrive(
        self, keys: Sequence[RunKey], asked: Facts | None = None, *, tenant: int = DEFAULT_TENANT
    ) -> RedrivenRuns:
        """Revive those of the runs that are dead and whose jobs have a free lane. `asked`: what they were found by."""
        if not keys:
            return RedrivenRuns([], [], False)
        done: RedrivenRuns = await self._database.transaction(PoolName.REQUEST, partial(_redrive, keys, asked, tenant))
        return done


async def rerun(connection: Connection, key: RunKey) -> Row:
    """Create a new run for the tick of a finished one. `status` is that of its job; `serial` is None if no lane is
    free."""
    await connection.fetch(sql.run.LOCK_JOB.text, key.job)
    first = key.first.serial
    (created,) = await connection.fetch(sql.run.RERUN.text, key.job, key.scheduled_at, first, first + MANUAL)
    if created["status"] != "deleted" and created["serial"] is not None:
        await wake_queue(connection, created["queue"])
        await make_way(connection, created)
        await admit_on(connection, [created["job"]])
    row: Row = created
    return row


async def _redrive(keys: Sequence[RunKey], asked: Facts | None, tenant: int, connection: Connection) -> RedrivenRuns:
    await connection.fetch(sql.run.LOCK_JOBS.text, sorted({key.job for key in keys}), tenant, job_limits())
    on_demand = [key for key in dict.fromkeys(keys) if key.on_demand]
    ticks = [key for key in dict.fromkeys(keys) if not key.on_demand]
    columns = zip(*ticks, strict=True)
    limits = (tenant, MOST_REDRIVEN, job_limits())
    rows = await connection.fetch(sql.run.REDRIVE.text, *columns, *limits) if ticks else []
    redriven = [row for row in rows if row["queue"] is not None]
    await admit_on(connection, [row["job"] for row in redriven])
    for queue in sorted({row["queue"] for row in redriven}):
        await wake_queue(connection, queue)
    runs = [key_of(row) for row in redriven]
    runs += await redrive_on_demand(connection, on_demand, *limits) if on_demand else []
    waiting = [key_of(row) for row in rows if row["queue"] is None]
    if runs:
        await record(connection, of_runs("run.redrive", tenant, runs, asked))
    return RedrivenRuns(runs, waiting, len(runs) == MOST_REDRIVEN and bool(waiting))
