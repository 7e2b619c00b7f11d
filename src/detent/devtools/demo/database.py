"""A month of history written at once, for those who want to look before they have one of their own."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from uuid_utils.compat import uuid7

from detent.devtools.sql import demo
from detent.domain.job import JobSpec
from detent.domain.registration import Place, Prepared, Timings, place, prepare, stand_on
from detent.store.connection import Connection
from detent.store.db import Database, PoolName
from detent.store.job_writes import NewJob, Ownership, insert
from detent.store.jobs import DEFAULT_TENANT
from detent.store.tenants import room_for

RUN_COLUMNS = (
    *("job", "scheduled_at", "token", "node", "started_at", "finished_at", "serial", "revision", "attempt"),
    *("status", "ticks", "until", "reason", "result"),
)
ATTEMPT_COLUMNS = (
    *("job", "scheduled_at", "serial", "token", "node", "started_at", "finished_at", "attempt", "outcome", "error"),
)
ELECTION_COLUMNS = ("partition", "term", "node", "nomination", "at")


class Registered(NamedTuple):
    """A job that is there as if it had been for long."""

    prepared: Prepared
    id: UUID


class Rows(NamedTuple):
    runs: Sequence[tuple[Any, ...]]
    attempts: Sequence[tuple[Any, ...]]
    elections: Sequence[tuple[Any, ...]]
    incidents: Sequence[tuple[Any, ...]] = ()


class DemonstrationStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def jobs(self) -> int:
        """How many jobs there are already, of all tenants."""
        return int((await self._database.fetch(PoolName.REQUEST, demo.COUNT_JOBS))[0]["jobs"])

    async def register(self, specs: Sequence[JobSpec], since: datetime, max_payload_bytes: int) -> list[Registered]:
        """Jobs that were made then, and stand on their next tick from now on."""
        async with room_for(self._database, DEFAULT_TENANT, len(specs), max_payload_bytes) as room:
            timings = Timings()
            jobs = [
                prepare(spec, uuid7(), number, since, timings=timings)
                for spec, number in zip(specs, room.numbers, strict=True)
            ]
            new = [NewJob(job, _where(job, room.now)) for job in jobs]
            await insert(self._database, new, Ownership(DEFAULT_TENANT, None, since, "demo"), room)
        return [Registered(job, job.job_id) for job in jobs]

    async def write(self, rows: Rows, last_ticks: Sequence[tuple[int, datetime]], over: Sequence[int]) -> None:
        """The rows of history, where each cursor stands then, and the jobs that are over."""

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


def _where(job: Prepared, now: datetime) -> Place:
    """A one-off that is past stands nowhere."""
    if job.schedule.at is not None and job.schedule.at <= now:
        return stand_on(job, None)
    return place(job, now)
