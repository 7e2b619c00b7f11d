"""The definitions that a job has had, who wrote each and when."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple
from uuid import UUID

import msgspec

from detent.domain.job import JobSpec
from detent.store import sql
from detent.store.db import Database, PoolName, Row
from detent.store.jobs import DEFAULT_TENANT, number_of


class RevisionRow(NamedTuple):
    """A definition with its number; `definition` None: this version cannot read it."""

    revision: int
    changed_by: str | None
    made_at: datetime
    replaced_at: datetime | None
    definition: JobSpec | None


class RevisionStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(
        self, job: UUID, *, below: int | None = None, limit: int = 50, tenant: int = DEFAULT_TENANT
    ) -> tuple[list[RevisionRow], int | None]:
        """Revisions, the newest first: one more than the limit, if it exists, so that each can be compared with its
        predecessor; and the value to pass as `below` for the next page (None: the last one)."""
        number = await number_of(self._database, job, tenant)
        rows = await self._database.fetch(PoolName.REQUEST, sql.revision.LIST, number, below, limit + 1)
        return [_revision(row) for row in rows], rows[limit - 1]["revision"] if len(rows) > limit else None

    async def get(self, job: UUID, revision: int, *, tenant: int = DEFAULT_TENANT) -> RevisionRow | None:
        return await self._exactly(job, revision, tenant)

    async def newest(self, job: UUID, *, tenant: int = DEFAULT_TENANT) -> int:
        number = await number_of(self._database, job, tenant)
        return int((await self._database.fetch(PoolName.REQUEST, sql.revision.LIST, number, None, 1))[0]["revision"])

    async def before(self, job: UUID, revision: int, *, tenant: int = DEFAULT_TENANT) -> RevisionRow | None:
        """The revision before this one, if it exists and is still kept."""
        return await self._exactly(job, revision - 1, tenant)

    async def _exactly(self, job: UUID, revision: int, tenant: int) -> RevisionRow | None:
        number = await number_of(self._database, job, tenant)
        rows = await self._database.fetch(PoolName.REQUEST, sql.revision.LIST, number, revision + 1, 1)
        return _revision(rows[0]) if rows and rows[0]["revision"] == revision else None


def _revision(row: Row) -> RevisionRow:
    try:
        spec = msgspec.json.decode(row["definition"], type=JobSpec)
    except msgspec.MsgspecError:
        spec = None
    return RevisionRow(row["revision"], row["changed_by"], row["made_at"], row["replaced_at"], spec)
