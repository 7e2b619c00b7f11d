"""The ledger: the spans in which ticks of jobs are expected, and what is on record, read in one snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from detent.domain.ledger import WITHOUT_CURSOR, Entry, LedgerSegment, Unread
from detent.domain.schedule import Schedule
from detent.domain.states import CODES
from detent.store import sql
from detent.store.db import Database, PoolName, Row
from detent.store.jobs import DEFAULT_TENANT
from detent.store.stored_schedules import UnreadableSchedule, read_schedule
from detent.telemetry.log import logger

log = logger("store")

STATUSES = {code: str(status) for status, code in CODES.items()}
DAY, HOUR = timedelta(days=1), timedelta(hours=1)
MICROSECOND = timedelta(microseconds=1)
MAX_OF_A_DAY = 20_000
TICKS_OF_A_PAGE = 200_000
READINGS_OF_A_PAGE = 200
MAX_CACHED = 2_000
RAN = frozenset({"succeeded", "dead", "cancelled"})


class Reading(NamedTuple):
    """One snapshot of a job: its segments, what is on record, the position of its cursor, and the spans that cannot be
    read."""

    segments: list[LedgerSegment]
    rows: list[Row]
    entries: list[Entry]
    next_tick: datetime | None
    unread: list[Unread]


class ExpectedTicks(NamedTuple):
    """The segments whose ticks are expected of a job, and the tick that its cursor is at."""

    segments: list[LedgerSegment]
    next_tick: datetime | None


class LedgerStore:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._schedules: dict[tuple[int, datetime | None], Schedule] = {}

    async def kept_since(self) -> datetime | None:
        """Since when history is complete; None: from the beginning."""
        since: datetime | None = (await self._database.fetch(PoolName.REQUEST, sql.history.READ_KEPT_SINCE))[0]["since"]
        return since

    async def count(
        self, window: tuple[datetime, datetime], jobs: Sequence[int] | None, *, tenant: int = DEFAULT_TENANT
    ) -> int:
        """How many jobs an audit of this window covers."""
        return int(
            (await self._database.fetch(PoolName.REQUEST, sql.ledger.COUNT_AUDITED_JOBS, tenant, *window, jobs))[0][
                "jobs"
            ]
        )

    async def audited_jobs(
        self,
        window: tuple[datetime, datetime],
        jobs: Sequence[int] | None,
        *,
        behind: int,
        limit: int,
        tenant: int = DEFAULT_TENANT,
    ) -> list[Row]:
        """Jobs behind this number with ticks in (after, until], with their present schedules."""
        return await self._database.fetch(
            PoolName.REQUEST, sql.ledger.LIST_AUDITED_JOBS, tenant, *window, behind, limit, jobs
        )

    async def audited_from(self, jobs: Sequence[int], after: datetime, until: datetime) -> datetime:
        """Where to begin with these jobs: an audit of the last month may cover jobs that are a minute old."""
        (row,) = await self._database.fetch(PoolName.REQUEST, sql.ledger.FIND_FIRST_AUDITED, list(jobs), after, until)
        return until if row["since"] is None else max(after, row["since"])

    async def expectations(
        self, jobs: Sequence[UUID], window: tuple[datetime, datetime], *, tenant: int
    ) -> dict[UUID, ExpectedTicks]:
        """The ticks that are expected of these jobs in a window, and up to which tick they have fired."""
        ids = {
            row["job"]: row["id"]
            for row in await self._database.fetch(PoolName.REQUEST, sql.job.FIND_NUMBERS, jobs, tenant)
        }
        readings = {job: Reading([], [], [], None, []) for job in ids}
        for row in await self._database.fetch(PoolName.REQUEST, sql.ledger.LIST_SPANS, list(ids), *window):
            readings[row["job"]] = readings[row["job"]]._replace(next_tick=row["next_tick"])
            if row["since"] is not None:
                self._add_span(readings[row["job"]], row)
        return {ids[job]: ExpectedTicks(reading.segments, reading.next_tick) for job, reading in readings.items()}

    async def read(self, job: int, window: tuple[datetime, datetime]) -> Reading:
        return (await self.read_many([job], window))[job]

    async def read_many(self, jobs: Sequence[int], window: tuple[datetime, datetime]) -> dict[int, Reading]:
        """One snapshot, so that a change that commits meanwhile is visible as a whole or not at all."""
        async with (
            self._database.connection(PoolName.REQUEST) as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            await connection.fetch(sql.database.LIMIT_READER.text)
            spans = await connection.fetch(sql.ledger.LIST_SPANS.text, list(jobs), *window)
            rows = await connection.fetch(sql.ledger.READ.text, list(jobs), *window)
        readings = {job: Reading([], [], [], None, []) for job in jobs}
        for row in spans:
            reading = readings[row["job"]]
            readings[row["job"]] = reading._replace(next_tick=row["next_tick"])
            if row["without_cursor"]:
                reading.unread.append(Unread(row["created_at"], None, WITHOUT_CURSOR))
            if row["since"] is not None:
                self._add_span(reading, row)
        for row in rows:
            readings[row["job"]].rows.append(row)
            readings[row["job"]].entries.append(entry_of(row))
        return readings

    def _add_span(self, reading: Reading, row: Row) -> None:
        paused, optional = row["opened"] == "paused", row["opened"] == "backfill"
        try:
            schedule = self._schedule(row)
        except UnreadableSchedule as error:
            log.error("a schedule cannot be read", schedule=row["stored"], error=error.message)
            reading.unread.append(Unread(row["since"], row["until"], error.message, optional))
            return
        span = LedgerSegment(row["since"], row["until"], schedule, paused, row["tzdata"], optional, row["job"])
        reading.segments.append(span)

    def _schedule(self, row: Row) -> Schedule:
        """Cached: stored schedules never change, and most jobs share a few."""
        key = row["schedule"], row["anchor"]
        found = self._schedules.get(key)
        if found is None:
            if len(self._schedules) >= MAX_CACHED:
                self._schedules.clear()
            found = read_schedule(row["schedule"], row["stored"])
            if found.kind in ("interval", "once"):
                found = found.anchored(row["anchor"] or row["created_at"])
            self._schedules[key] = found
        return found


def entry_of(row: Row) -> Entry:
    status = row["live"] or STATUSES[row["status"]]
    ran = row["status"] is not None and status in RAN and row["attempt"] == 1
    return Entry(
        row["scheduled_at"], row["until"], row["ticks"] or 1, status, row["reason"],
        row["started_at"] if ran else None, row["live"] is not None,
    )  # fmt: skip
