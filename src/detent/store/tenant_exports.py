"""Everything that a tenant owns, page by page, as rows of JSON: no value of a secret, and no key.

First the tenant with its queues and limits, then its jobs, then what each job can have many of: former definitions,
payloads, runs, runs that wait, attempts, steps, and lines. A page is one short statement, so an export holds no
snapshot; suspend the tenant to export one state of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from detent.contract.tenant import ExportedRow
from detent.store import sql
from detent.store.db import Database, PoolName, Row
from detent.store.statement import Statement

JOBS_OF_A_PAGE = 20
# Of rows that may be as large as a payload.
FEW = 20
# Of runs, whose payloads are mostly small.
SOME = 100
MANY = 500
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ExportPlace(NamedTuple):
    """Where an export continues: in which part, and behind which row. `within`: that job may have more of them."""

    part: int = 0
    job: int = 0
    at: datetime = EPOCH
    serial: int = 0
    token: int = 0
    chunk: int = 0
    within: bool = False


class ManyOfAJob(NamedTuple):
    """What a job can have many of, how many fit into a page, and the key by which they are read."""

    statement: Statement
    most: int
    key: tuple[str, ...]


# The parts behind the tenant and its jobs.
PARTS = (
    ManyOfAJob(sql.tenant.EXPORT_REVISIONS, FEW, ("job", "serial")),
    ManyOfAJob(sql.tenant.EXPORT_PAYLOADS, FEW, ("job", "at")),
    ManyOfAJob(sql.tenant.EXPORT_RUNS, SOME, ("job", "at", "serial")),
    ManyOfAJob(sql.tenant.EXPORT_BACKLOG, SOME, ("job", "at", "serial")),
    ManyOfAJob(sql.tenant.EXPORT_ATTEMPTS, MANY, ("job", "at", "serial", "token")),
    ManyOfAJob(sql.tenant.EXPORT_STEPS, FEW, ("job", "at", "serial", "token")),
    ManyOfAJob(sql.tenant.EXPORT_LOGS, FEW, ("job", "at", "serial", "token", "chunk")),
)
TENANT, JOBS, FIRST = 0, 1, 2
LAST = FIRST + len(PARTS) - 1

ExportPage = tuple[list[ExportedRow], ExportPlace | None]


class TenantExportStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(self, place: ExportPlace, *, tenant: int) -> ExportPage:
        """Some rows, perhaps none, and the place to continue from; None: that was all."""
        if place.part == TENANT:
            return _rows(await self._fetch(sql.tenant.EXPORT_TENANT, tenant)), ExportPlace(JOBS)
        jobs = await self._numbers(tenant, place.job - place.within)
        if not jobs:
            return [], ExportPlace(place.part + 1) if place.part < LAST else None
        if place.part == JOBS:
            return _rows(await self._fetch(sql.tenant.EXPORT_JOBS, jobs)), ExportPlace(JOBS, jobs[-1])
        part = PARTS[place.part - FIRST]
        rows = await self._fetch(part.statement, jobs, part.most, *(getattr(place, name) for name in part.key))
        if len(rows) < part.most:
            return _rows(rows), ExportPlace(place.part, jobs[-1])
        return _rows(rows), ExportPlace(place.part, within=True, **{name: rows[-1][name] for name in part.key})

    async def _numbers(self, tenant: int, after: int) -> list[int]:
        rows = await self._fetch(sql.tenant.LIST_JOBS, tenant, after, JOBS_OF_A_PAGE)
        return [row["job"] for row in rows]

    async def _fetch(self, statement: Statement, *arguments: object) -> list[Row]:
        return await self._database.fetch(PoolName.REQUEST, statement, *arguments)


def _rows(rows: Iterable[Row]) -> list[ExportedRow]:
    return [ExportedRow(table=row["name"], row=msgspec.json.decode(row["row"])) for row in rows]
