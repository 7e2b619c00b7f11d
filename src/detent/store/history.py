"""A page of runs, from the newest tick backwards.

History has no index on time only, because every settle would pay for it. It is scanned in stretches instead, short
ones where runs are dense and longer ones where they are not, until the page is full. A scan that has examined very many
runs without filling its page ends with a short page and the key to continue from. For a tenant with few jobs, the scan
reads its runs job by job and not those of other tenants. On-demand runs that wait are read up to a bound in the same
way: a page ends where they are no longer complete.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from detent.domain.identity import EPOCH, RunKey
from detent.domain.states import CODES, FINAL, OPEN, RunStatus
from detent.store import sql
from detent.store.connection import Connection
from detent.store.db import Row
from detent.store.job_limits import job_limits
from detent.store.run_rows import key_of

NEWEST = RunKey((1 << 62) - 1, datetime(9999, 1, 1, tzinfo=UTC), (1 << 31) - 1)
FIRST_STRETCH = timedelta(seconds=2)
LONGEST_STRETCH = timedelta(days=366)
GROWTH = 8
FEW = 5_000
MANY = 50_000
MAX_EXAMINED = 500_000
FEW_JOBS = 100
# Waiting runs of one queue and priority that a page reads. More than a page, because some of them may be retries, whose
# place in the list is another one. If a page is not full because of these, it reads more.
WAITING_READ = (2_000, 20_000, 200_000)
MICROSECOND = timedelta(microseconds=1)


class HistoryQuery(NamedTuple):
    """Which runs, behind which key, and how many. `jobs` None: all of a tenant with many jobs; `statuses` None: any."""

    tenant: int
    jobs: Sequence[int] | None
    statuses: frozenset[RunStatus] | None
    before: RunKey
    limit: int
    floor: datetime = EPOCH
    """Only ticks after this."""

    @property
    def wants_live(self) -> bool:
        return self.statuses is None or bool(self.statuses & OPEN)

    @property
    def wants_waiting(self) -> bool:
        return self.statuses is None or bool(self.statuses & {RunStatus.PENDING, RunStatus.RETRYING})

    @property
    def wants_finished(self) -> bool:
        return self.statuses is None or bool(self.statuses & FINAL)


async def few_jobs(connection: Connection, tenant: int) -> list[int] | None:
    """The jobs of a tenant that the caller sees, including deleted ones; None when the tenant has many."""
    rows = await connection.fetch(sql.job.LIST_FEW.text, tenant, FEW_JOBS + 1, job_limits())
    return [row["job"] for row in rows if row["within"]] if len(rows) <= FEW_JOBS else None


async def newest_runs(connection: Connection, query: HistoryQuery) -> tuple[list[Row], RunKey | None]:
    """The page, and the key to continue from: None only at the end."""
    rows = await _live(connection, query) if query.wants_live else []
    waiting, floor = await _waiting(connection, query) if query.wants_waiting else ([], query.floor)
    rows += waiting
    lower = await _walk(connection, query._replace(floor=floor), rows) if query.wants_finished else floor
    rows.sort(key=lambda row: (row["scheduled_at"], row["job"], row["serial"]), reverse=True)
    complete = [row for row in rows if row["scheduled_at"] > lower]
    page = complete[: query.limit]
    if len(complete) > query.limit:
        return page, key_of(page[-1])
    return page, None if lower <= query.floor else NEWEST._replace(scheduled_at=lower)


async def _walk(connection: Connection, query: HistoryQuery, rows: list[Row]) -> datetime:
    """Add finished runs to `rows`; returns the time after which none is missing."""
    upper = query.before.scheduled_at
    stretch, examined = FIRST_STRETCH, 0
    lower = query.floor
    if query.jobs is None or query.statuses is not None:
        (clock,) = await connection.fetch(sql.database.CLOCK.text)
        lower = max(min(upper, clock["now"]) - stretch, query.floor)
    while True:
        found = await _finished(connection, query, lower, upper)
        rows += found
        if lower <= query.floor or sum(row["scheduled_at"] > lower for row in rows) > query.limit:
            return lower
        all_found = query.statuses is None and query.jobs is not None
        size = len(found) if all_found else await _size(connection, query, lower, upper)
        examined += size
        if examined > MAX_EXAMINED:
            return lower
        stretch = _next_stretch(stretch, size)
        lower, upper = max(lower - stretch, query.floor), lower


def _next_stretch(stretch: timedelta, size: int) -> timedelta:
    if size > MANY:
        return max(stretch / GROWTH, FIRST_STRETCH)
    return min(stretch * GROWTH, LONGEST_STRETCH) if size < FEW else stretch


async def _live(connection: Connection, query: HistoryQuery) -> list[Row]:
    job, at, serial = query.before
    words = None if query.statuses is None else [status.value for status in query.statuses & OPEN]
    found = await connection.fetch(
        sql.run.LIST_LIVE.text, query.jobs, at, job, serial, words, query.limit + 1, query.tenant, job_limits()
    )
    return list(found)


async def _waiting(connection: Connection, query: HistoryQuery) -> tuple[list[Row], datetime]:
    """On-demand runs in the backlog, and the time after which none of them is missing."""
    job, at, serial = query.before
    words = None if query.statuses is None else [status.value for status in query.statuses & OPEN]
    limit = query.limit + 1
    found: list[Row] = []
    floor = query.floor
    for read in WAITING_READ:
        bound, *found = await connection.fetch(
            sql.task.LIST_WAITING.text, query.jobs, at, job, serial, words, limit, query.tenant, job_limits(),
            query.floor, max(limit, read),
        )  # fmt: skip
        complete_from = bound["complete_from"]
        floor = query.floor if complete_from is None else max(complete_from - MICROSECOND, query.floor)
        if floor == query.floor or sum(row["scheduled_at"] > floor for row in found) >= limit:
            break
    return found, floor


async def _finished(connection: Connection, query: HistoryQuery, lower: datetime, upper: datetime) -> list[Row]:
    job, at, serial = query.before
    codes = None if query.statuses is None else [CODES[status] for status in query.statuses & FINAL]
    statement = sql.history.LIST if query.jobs is None else sql.history.LIST_OF_JOBS
    of_whom = (query.tenant, job_limits()) if query.jobs is None else (query.jobs,)
    found = await connection.fetch(statement.text, lower, upper, at, job, serial, codes, query.limit + 1, *of_whom)
    return list(found)


async def _size(connection: Connection, query: HistoryQuery, lower: datetime, upper: datetime) -> int:
    (found,) = await connection.fetch(sql.history.MEASURE.text, lower, upper, query.jobs)
    return int(found["runs"])
