"""What a job was before: each definition it has had, who made it and when."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple
from uuid import UUID

import msgspec

from detent.domain.job import JobSpec
from detent.errors import Conflict, NotFound
from detent.store import sql
from detent.store.db import Database, PoolName, Row
from detent.store.jobs import DEFAULT_TENANT
from detent.store.runs import number_of


class Revision(NamedTuple):
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
    ) -> tuple[list[Revision], int | None]:
        """The newest first, one more than asked for where there is one, so that each can be compared with the one
        before; and what to pass as `below` for more (None: these were all)."""
        number = await number_of(self._database, job, tenant)
        rows = await self._database.fetch(PoolName.REQUEST, sql.revision.LIST, number, below, limit + 1)
        return [_revision(row) for row in rows], rows[limit - 1]["revision"] if len(rows) > limit else None

    async def get(self, job: UUID, revision: int, *, tenant: int = DEFAULT_TENANT) -> Revision:
        number = await number_of(self._database, job, tenant)
        rows = await self._database.fetch(PoolName.REQUEST, sql.revision.LIST, number, revision + 1, 1)
        if not rows or rows[0]["revision"] != revision:
            raise await self._missing(number, revision)
        return _revision(rows[0])

    async def _missing(self, number: int, revision: int) -> NotFound:
        newest = (await self._database.fetch(PoolName.REQUEST, sql.revision.LIST, number, None, 1))[0]["revision"]
        if 0 < revision < newest:
            return NotFound(
                f"Revision {revision} of the job is no longer kept (revisions_kept): list its revisions to see those "
                "there are."
            )
        return NotFound(f"The job has no revision {revision}: list its revisions to see those there are.")

    async def before(self, job: UUID, revision: int, *, tenant: int = DEFAULT_TENANT) -> Revision | None:
        """The one before, if there was one and it is still kept."""
        number = await number_of(self._database, job, tenant)
        rows = await self._database.fetch(PoolName.REQUEST, sql.revision.LIST, number, revision, 1)
        return _revision(rows[0]) if rows and rows[0]["revision"] == revision - 1 else None

    async def definition(self, job: UUID, revision: int, *, tenant: int = DEFAULT_TENANT) -> JobSpec:
        """The job as it was then, to be made so again."""
        found = (await self.get(job, revision, tenant=tenant)).definition
        if found is None:
            raise Conflict(f"Revision {revision} was made by another version of detent, which this one cannot read.")
        return found


def _revision(row: Row) -> Revision:
    try:
        spec = msgspec.json.decode(row["definition"], type=JobSpec)
    except msgspec.MsgspecError:
        spec = None
    return Revision(row["revision"], row["changed_by"], row["made_at"], row["replaced_at"], spec)
