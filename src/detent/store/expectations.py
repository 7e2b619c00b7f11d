"""Deadlines of jobs: evaluating ticks, incidents, and the notices about them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Literal, NamedTuple, Protocol
from uuid import UUID

from detent.contract.incident import Incident
from detent.domain.job import DEFAULT_TENANT, NoticeFormat
from detent.store import sql
from detent.store.db import Database, PoolName, Row
from detent.store.job_limits import job_limits

# A run that met its deadline may be written so much later.
SLACK = timedelta(seconds=1)
PURGE_BATCH = 500
MAX_COUNTED = 1_000

DeadlineKind = Literal["start", "finish"]


class WaitingMessage(Protocol):
    """What identifies one try of a message: about an incident, or of an alert rule."""

    @property
    def notice(self) -> int: ...

    @property
    def tries(self) -> int: ...


class DeadlineResult(NamedTuple):
    """The result for one deadline of a job: how many ticks `missed` it, and how many in a row by now (`streak`)."""

    kind: DeadlineKind
    missed: int
    opens: bool
    closes: bool
    streak: int
    job_id: UUID
    job: str
    tick: datetime


class Notice(NamedTuple):
    """A notice to send now, about an incident. `url` is the job's own address."""

    notice: int
    event: Literal["missed", "recovered"]
    tries: int
    age: timedelta
    at: datetime
    incident: int
    kind: DeadlineKind
    within: timedelta
    tick: datetime
    misses: int
    opened_at: datetime
    closed_at: datetime | None
    tenant: str
    job_id: UUID
    job: str
    url: str | None
    format: NoticeFormat
    tenant_number: int
    by_rule: bool = False
    """Alert rules of the tenant report missed deadlines."""

    @property
    def ours(self) -> bool:
        """Whether it is about a job of the default tenant."""
        return self.tenant_number == DEFAULT_TENANT


class ExpectationStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    # -- for leaders

    async def evaluate(
        self, node: int, partitions: Sequence[int], limit: int, slack: timedelta = SLACK
    ) -> tuple[list[DeadlineResult], bool]:
        """Evaluate deadlines that are due; returns the results to report, and whether there may be more."""
        rows = await self._database.fetch(
            PoolName.WORK, sql.incident.EVALUATE_EXPECTATIONS, node, list(partitions), limit, slack
        )
        found = [DeadlineResult(*row.values()) for row in rows if row["kind"] is not None]
        examined = sum(row["missed"] for row in rows if row["kind"] is None)
        return found, examined == limit

    async def take(self, limit: int, lease: timedelta) -> list[Notice]:
        return [
            Notice(*row.values()) for row in await self._database.fetch(PoolName.WORK, sql.notice.TAKE, limit, lease)
        ]

    async def sent(self, notice: WaitingMessage) -> None:
        await self._database.fetch(PoolName.WORK, sql.notice.END, notice.notice, notice.tries, None)

    async def give_up(self, notice: WaitingMessage, error: str) -> None:
        await self._database.fetch(PoolName.WORK, sql.notice.END, notice.notice, notice.tries, error)

    async def put_off(self, notice: WaitingMessage, pause: timedelta, error: str) -> None:
        await self._database.fetch(PoolName.WORK, sql.notice.POSTPONE, notice.notice, notice.tries, pause, error)

    async def purge(self, days: int) -> int:
        return len(await self._database.fetch(PoolName.REQUEST, sql.incident.PURGE, days, PURGE_BATCH))

    # -- for the API

    async def incidents(
        self, *, tenant: int, before: int | None, limit: int, only_open: bool = False, job_id: UUID | None = None
    ) -> list[Incident]:
        statement = sql.incident.LIST_OPEN if only_open else sql.incident.LIST
        of_job: tuple[object, ...] = ()
        if job_id is not None:
            statement, of_job = sql.incident.LIST_OF_JOB, (only_open, job_id)
        rows = await self._database.fetch(PoolName.REQUEST, statement, tenant, before, limit, *of_job, job_limits())
        return [_incident(row) for row in rows]

    async def count_open(self, *, tenant: int) -> tuple[int, bool]:
        """How many incidents are open, and whether there are more than that."""
        (row,) = await self._database.fetch(PoolName.REQUEST, sql.incident.COUNT_OPEN, tenant, MAX_COUNTED)
        return row["incidents"], row["incidents"] >= MAX_COUNTED


def _incident(row: Row) -> Incident:
    return Incident(
        id=row["incident"],
        job_id=row["id"],
        job=row["name"],
        expectation=row["kind"],
        within_seconds=row["within"].total_seconds(),
        scheduled_at=row["tick"],
        run_id=row["run"],
        misses=row["misses"],
        opened_at=row["opened_at"],
        closed_at=row["closed_at"],
        closed=row["closed"],
        notified_at=row["told_at"],
        notify_error=row["trouble"],
    )
