"""Writes the demo's jobs and a month of their history into the database."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from math import inf
from typing import Any, NamedTuple
from uuid import UUID

from uuid_utils.compat import uuid7

from detent.devtools.sql import demo
from detent.domain.audit_event import Actor
from detent.domain.job import JobSpec
from detent.domain.registration import CursorPlace, PreparedJob, Timings, cursor_at, place, prepare
from detent.jobs import job_events
from detent.jobs.moves import new_jobs
from detent.store.audit_log import acting
from detent.store.connection import Connection
from detent.store.db import Database, PoolName
from detent.store.job_writes import Ownership, insert
from detent.store.jobs import DEFAULT_TENANT
from detent.store.tenants import reserved

RUN_COLUMNS = (
    *("job", "scheduled_at", "token", "node", "started_at", "finished_at", "serial", "revision", "attempt"),
    *("status", "ticks", "until", "reason", "result"),
)
ATTEMPT_COLUMNS = (
    *("job", "scheduled_at", "serial", "token", "node", "started_at", "finished_at", "attempt", "outcome", "error"),
)
ELECTION_COLUMNS = ("partition", "term", "node", "nomination", "at")


class RegisteredDemoJob(NamedTuple):
    """A job that looks as if it had been registered a month ago."""

    prepared: PreparedJob
    id: UUID


class DemoRows(NamedTuple):
    runs: Sequence[tuple[Any, ...]]
    attempts: Sequence[tuple[Any, ...]]
    elections: Sequence[tuple[Any, ...]]
    incidents: Sequence[tuple[Any, ...]] = ()


class DemoDatabase:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def jobs(self) -> int:
        """How many jobs exist, of all tenants."""
        return int((await self._database.fetch(PoolName.REQUEST, demo.COUNT_JOBS))[0]["jobs"])

    async def register(
        self, specs: Sequence[JobSpec], since: datetime, max_payload_bytes: int
    ) -> list[RegisteredDemoJob]:
        """Jobs that were created at `since`, with their cursors on the next tick from now."""
        async with reserved(self._database, DEFAULT_TENANT, len(specs), max_payload_bytes) as quota:
            timings = Timings(each=inf)  # its months of history are computed from these
            jobs = [
                prepare(spec, uuid7(), number, since, timings=timings)
                for spec, number in zip(specs, quota.numbers, strict=True)
            ]
            new = new_jobs([(job, _where(job, quota.now)) for job in jobs], since)
            whose = Ownership(DEFAULT_TENANT, None, since, "demo")
            with acting(Actor("command", name="demo")):
                await insert(self._database, new, whose, quota, job_events.created(jobs, DEFAULT_TENANT, None))
        return [RegisteredDemoJob(job, job.job_id) for job in jobs]

    async def write(self, rows: DemoRows, last_ticks: Sequence[tuple[int, datetime]], over: Sequence[int]) -> None:
        """Write the history, the last tick of each cursor, and which jobs have completed."""

        async def work(connection: Connection) -> None:
            await connection.copy_records_to_table("run_history", records=rows.runs, columns=RUN_COLUMNS)
            await connection.copy_records_to_table("attempts", records=rows.attempts, columns=ATTEMPT_COLUMNS)
            if not await connection.fetch(demo.CHECK_ELECTIONS.text):
                await connection.copy_records_to_table("elections", records=rows.elections, columns=ELECTION_COLUMNS)
            numbers, ticks = zip(*last_ticks, strict=True)
            await connection.fetch(demo.MOVE_CURSORS.text, numbers, ticks)
            await connection.fetch(demo.COMPLETE_JOBS.text, list(over))
            if rows.incidents:
                await connection.fetch(demo.ADD_INCIDENTS.text, *zip(*rows.incidents, strict=True))

        await self._database.transaction(PoolName.REQUEST, work)
        async with self._database.connection(PoolName.REQUEST) as connection:
            await connection.execute(demo.ANALYZE.text)


def _where(job: PreparedJob, now: datetime) -> CursorPlace:
    """A one-off in the past has no next tick."""
    if job.schedule.at is not None and job.schedule.at <= now:
        return cursor_at(job, None)
    return place(job, now)
