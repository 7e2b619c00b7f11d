"""Data that only the dashboard needs: counts, minutes, next ticks, the last runs of many jobs.

Each verb reads a bounded number of rows, however many jobs and runs there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

import msgspec

from detent.contract.run import DeadGroup
from detent.domain.identity import RunKey
from detent.domain.job import JobSpec
from detent.store import sql
from detent.store.db import Database, PoolName, Row
from detent.store.job_limits import job_limits
from detent.store.jobs import number_of

FEW_JOBS = 20_000
FEW_TO_SORT = 5_000
NEXT_OF_A_PARTITION = 4
MAX_OPEN = 50_000
MAX_DEAD = 1_000
MOST_GROUPED = 300
MAX_OF_A_JOB = 20_000


class JobCounts(NamedTuple):
    """`estimated`: an earlier count, which may be outdated."""

    active: int
    paused: int
    completed: int
    estimated: bool

    @property
    def total(self) -> int:
        return self.active + self.paused + self.completed


class OpenCounts(NamedTuple):
    """`more`: counting stopped at the limit."""

    running: int
    retrying: int
    pending: int
    more: bool


class Upcoming(NamedTuple):
    id: UUID
    name: str
    timezone: str | None
    target: str
    next_tick: datetime
    fire_at: datetime
    skipped: bool = False


class RecentRun(NamedTuple):
    job: UUID
    id: UUID
    scheduled_at: datetime
    status: str
    started_at: datetime | None
    finished_at: datetime | None
    ticks: int | None
    attempt: int | None
    reason: str | None

    @property
    def seconds(self) -> float | None:
        if self.started_at is None or self.finished_at is None:
            return None
        return (self.finished_at - self.started_at).total_seconds()


class TimelineStep(NamedTuple):
    """The ticks of a job that have one status in one step of a timeline. `until`: where a range of ticks ends,
    possibly in another step. `rows`: how many rows were read; `first`: the tick of the oldest row."""

    job: UUID
    step: int
    status: str
    runs: int
    sample: UUID
    until: datetime | None = None
    rows: int = 1
    first: datetime | None = None


class RunInput(NamedTuple):
    """The input of a run: its definition, the revision of the job, and its payload."""

    spec: JobSpec
    revision: int
    payload: object
    own_payload: bool


class OverviewStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    # -- counts

    async def jobs(self, *, tenant: int) -> JobCounts:
        rows = await self._database.fetch(PoolName.REQUEST, sql.overview.COUNT_JOBS_BY_STATUS, tenant, FEW_JOBS)
        counts = {row["status"]: row["jobs"] for row in rows}
        estimated = bool(rows) and rows[0]["estimated"]
        return JobCounts(counts.get("active", 0), counts.get("paused", 0), counts.get("completed", 0), estimated)

    async def open(self, *, tenant: int) -> OpenCounts:
        (row,) = await self._database.fetch(PoolName.REQUEST, sql.overview.COUNT_OPEN_BY_STATUS, tenant, MAX_OPEN)
        waiting = await self._database.fetch(PoolName.REQUEST, sql.task.COUNT_WAITING, tenant, None, MAX_OPEN)
        return OpenCounts(
            row["running"],
            row["retrying"] + sum(queue["retrying"] for queue in waiting),
            row["pending"] + sum(queue["pending"] for queue in waiting),
            row["looked_at"] >= MAX_OPEN or any(queue["more"] for queue in waiting),
        )

    async def dead(self, *, tenant: int) -> tuple[int, bool]:
        """The number of dead runs, and whether there are more."""
        (row,) = await self._database.fetch(PoolName.REQUEST, sql.dead_letter.COUNT_NEWEST, tenant, MAX_DEAD)
        return row["runs"], row["runs"] >= MAX_DEAD

    async def dead_groups(self, limit: int, *, tenant: int) -> list[DeadGroup]:
        """The newest dead runs, grouped by error pattern."""
        rows = await self._database.fetch(
            PoolName.REQUEST, sql.dead_letter.GROUP, tenant, None, MOST_GROUPED, limit, job_limits()
        )
        return [
            DeadGroup(
                group=row["group"], error=row["pattern"], runs=row["runs"], jobs=row["jobs"],
                first=row["first"], last=row["last"], sample=row["sample"],
            )
            for row in rows
        ]  # fmt: skip

    async def backlog(self, *, tenant: int) -> tuple[int, int]:
        """The number of ticks left to catch up, and of their jobs."""
        (row,) = await self._database.fetch(PoolName.REQUEST, sql.catch_up.COUNT_BACKLOG, tenant)
        return row["ticks"], row["jobs"]

    # -- minutes

    async def ended(self, since: datetime, step: timedelta, *, tenant: int) -> list[Row]:
        """Rows with `at`, `status` (a number) and `runs`."""
        return await self._database.fetch(PoolName.REQUEST, sql.tally.LIST_MINUTES_BY_STATUS, tenant, since, step)

    async def lateness(self, since: datetime, step: timedelta, *, tenant: int) -> list[Row]:
        """Rows with `at`, `bucket` (the index of the first larger bound) and `runs`."""
        return await self._database.fetch(PoolName.REQUEST, sql.tally.LIST_MINUTES_BY_LATENESS, tenant, since, step)

    # -- jobs and their runs

    async def upcoming(self, limit: int, jobs: int, *, tenant: int) -> list[Upcoming]:
        """The next ticks; `jobs`: the approximate number of the tenant's jobs."""
        if jobs <= FEW_TO_SORT:
            rows = await self._database.fetch(PoolName.REQUEST, sql.overview.LIST_UPCOMING_OF_FEW, tenant, limit)
        else:
            rows = await self._database.fetch(
                PoolName.REQUEST, sql.overview.LIST_UPCOMING, tenant, limit, NEXT_OF_A_PARTITION
            )
        return [Upcoming(*row.values()) for row in rows]

    async def recent(self, jobs: Sequence[UUID], each: int, *, tenant: int) -> dict[UUID, list[RecentRun]]:
        """The newest runs of each job, newest first."""
        found: dict[UUID, list[RecentRun]] = {job: [] for job in jobs}
        for row in await self._database.fetch(
            PoolName.REQUEST, sql.overview.LIST_RECENT_RUNS, list(jobs), each, tenant
        ):
            if len(found[row["id"]]) < each:
                found[row["id"]].append(RecentRun(*row.values()))
        return found

    async def hours(self, job: UUID, since: datetime, *, tenant: int) -> tuple[list[Row], bool]:
        """One row per hour and status, with `at`, `status` (a number) and `runs`; and whether they are complete."""
        number = await number_of(self._database, job, tenant)
        rows = await self._database.fetch(PoolName.REQUEST, sql.overview.COUNT_BY_HOUR, number, MAX_OF_A_JOB, since)
        return rows, sum(row["looked_at"] for row in rows) < MAX_OF_A_JOB

    async def timeline(
        self, jobs: Sequence[UUID], since: datetime, until: datetime, steps: int, *, tenant: int
    ) -> list[TimelineStep]:
        arguments = (list(jobs), since, until, steps, tenant, MAX_OF_A_JOB)
        return [
            TimelineStep(*row.values())
            for row in await self._database.fetch(PoolName.REQUEST, sql.overview.READ_TIMELINE, *arguments)
        ]

    async def run_input(self, key: RunKey, *, tenant: int) -> RunInput | None:
        """The input of a run; None if it is no longer kept."""
        rows = await self._database.fetch(PoolName.REQUEST, sql.run.READ_REQUEST, *key, tenant, job_limits())
        if not rows:
            return None
        spec = msgspec.json.decode(rows[0]["definition"], type=JobSpec)
        own = rows[0]["own_payload"]
        payload = spec.payload if own is None else msgspec.json.decode(own)
        return RunInput(spec, rows[0]["revision"], payload, own is not None)
