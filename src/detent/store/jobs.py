"""Rows of jobs: reads for answers, and reads on which a change is based."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from detent.contract.job import Job
from detent.domain.audit_event import NewEvent, listed
from detent.domain.id_prefix import IdRange
from detent.domain.job import DEFAULT_TENANT as DEFAULT_TENANT
from detent.domain.run import GoneTarget
from detent.errors import JobNotFound
from detent.runtime.arithmetic import compute
from detent.store import sql
from detent.store.audit_log import record
from detent.store.connection import Connection
from detent.store.db import Database, PoolName, Row
from detent.store.job_limits import job_limits
from detent.store.job_rows import jobs_of
from detent.store.job_search import FoundJob, JobSearch, find

EVERYTHING = JobSearch()
# A page with more characters of definitions than this is decoded in a thread: it takes up to ten milliseconds.
LARGE_PAGE = 100_000
NEAR_NAMES = 100

JobPage = tuple[list[Job], int | None]
Names = list[str]


class JobStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    # -- for the API

    async def get(self, job_id: UUID, *, tenant: int = DEFAULT_TENANT) -> Job | None:
        """The job with this id, including a deleted one."""
        number = await self.number(job_id, tenant=tenant)
        return None if number is None else await self.by_number(number)

    async def find(self, name: str, *, tenant: int = DEFAULT_TENANT) -> Job | None:
        """The job that has this name now."""
        rows = await self._database.fetch(PoolName.REQUEST, sql.job.FIND, tenant, None, name, job_limits())
        return await self.by_number(rows[0]["job"]) if rows else None

    async def id_of(self, name: str, *, tenant: int = DEFAULT_TENANT) -> UUID | None:
        rows = await self._database.fetch(PoolName.REQUEST, sql.job.FIND, tenant, None, name, job_limits())
        return rows[0]["id"] if rows else None

    async def in_range(self, ids: IdRange, limit: int, *, tenant: int = DEFAULT_TENANT) -> Sequence[tuple[UUID, str]]:
        """Id and name of the jobs with an id in this range."""
        rows = await self._database.fetch(PoolName.REQUEST, sql.job.FIND_BY_ID_RANGE, tenant, *ids, limit, job_limits())
        return [(row["id"], row["name"]) for row in rows]

    async def names_near(self, name: str, *, tenant: int = DEFAULT_TENANT) -> Sequence[str]:
        """Names of jobs that sort near this one."""
        rows = await self._database.fetch(
            PoolName.REQUEST, sql.job.LIST_NAMES_NEAR, tenant, name, NEAR_NAMES, job_limits()
        )
        return [row["name"] for row in rows]

    async def number(self, job_id: UUID, *, tenant: int = DEFAULT_TENANT) -> int | None:
        rows = await self._database.fetch(PoolName.REQUEST, sql.job.FIND, tenant, job_id, None, job_limits())
        return rows[0]["job"] if rows else None

    async def by_number(self, number: int) -> Job:
        (job,) = jobs_of(await self._database.fetch(PoolName.REQUEST, sql.job.READ, [number]))
        return job

    async def list(
        self,
        search: JobSearch = EVERYTHING,
        *,
        after: int = 0,
        limit: int = 50,
        tenant: int = DEFAULT_TENANT,
    ) -> JobPage:
        """Jobs in order of creation, and the value to pass as `after` for the next page. A page may be short although
        more jobs follow: the value is None only at the end."""
        async with self._database.connection(PoolName.REQUEST) as connection, connection.transaction(readonly=True):
            await connection.fetch(sql.database.LIMIT_READER.text)
            numbers, following = await find(connection, tenant, search, after, limit)
            rows = await connection.fetch(sql.job.READ.text, numbers) if numbers else []
        large = sum(len(row["definition"]) for row in rows) > LARGE_PAGE
        return await compute(jobs_of, rows) if large else jobs_of(rows), following

    async def find_all(
        self, search: JobSearch, after: int, limit: int, *, tenant: int
    ) -> tuple[Sequence[FoundJob], int | None]:
        """As `list`, without the definitions."""
        async with self._database.connection(PoolName.REQUEST) as connection, connection.transaction(readonly=True):
            await connection.fetch(sql.database.LIMIT_READER.text)
            numbers, following = await find(connection, tenant, search, after, limit)
            rows = await connection.fetch(sql.job.READ_FOR_BULK.text, numbers) if numbers else []
        return [FoundJob(*row.values()) for row in rows], following

    async def owned(self, owner: str, *, tenant: int = DEFAULT_TENANT) -> Names:
        """The names of the jobs that this app registered in its code."""
        return [row["name"] for row in await self._database.fetch(PoolName.REQUEST, sql.job.LIST_OWNED, tenant, owner)]

    # -- for a change

    async def to_change(self, tenant: int, job_id: UUID) -> Row:
        """The row that a change is computed from, with the database's time as `now`."""
        rows = await self._database.fetch(PoolName.REQUEST, sql.job.READ_FOR_CHANGE, tenant, job_id, None, job_limits())
        if not rows:
            raise JobNotFound(job_id)
        return rows[0]

    async def named(self, tenant: int, name: str) -> Row | None:
        """As to_change, by name; None: no job has it."""
        rows = await self._database.fetch(PoolName.REQUEST, sql.job.READ_FOR_CHANGE, tenant, None, name, job_limits())
        return rows[0] if rows else None

    async def all_named(self, tenant: int, names: Sequence[str]) -> dict[str, Row]:
        rows = await self._database.fetch(PoolName.REQUEST, sql.job.READ_MANY_FOR_CHANGE, tenant, names, job_limits())
        return {row["name"]: row for row in rows}

    async def same_definition(self, before: str, after: str) -> bool:
        """Whether both are equal as JSON: the database may write a number differently."""
        found = await self._database.fetch(PoolName.REQUEST, sql.revision.COMPARE, before, after)
        return bool(found[0]["same"])

    async def same_definitions(self, before: Sequence[str], after: Sequence[str]) -> set[int]:
        """The positions, counted from 1, at which both are equal as JSON."""
        rows = await self._database.fetch(PoolName.REQUEST, sql.revision.COMPARE_MANY, before, after)
        return {row["position"] for row in rows}

    async def adopt(self, numbers: Sequence[int], owner: str, event: NewEvent) -> None:
        async def work(connection: Connection) -> None:
            await connection.fetch(sql.job.ADOPT.text, numbers, owner)
            await record(connection, event)

        await self._database.transaction(PoolName.REQUEST, work)

    # -- jobs that change without an operator

    async def ending_pauses(self, limit: int) -> Sequence[Row]:
        """Jobs whose pause has an end, the earliest first: `id`, `tenant`, and `seconds` until the end."""
        return await self._database.fetch(PoolName.REQUEST, sql.job.LIST_ENDING_PAUSES, limit)

    async def dead_streaks(self, jobs: Sequence[int]) -> Sequence[Row]:
        """Those of the jobs whose last runs, as many as their `auto_pause_after`, were all dead: `id`, `tenant`, and
        that number as `bears`."""
        return await self._database.fetch(PoolName.REQUEST, sql.job.FIND_DEAD_STREAKS, list(jobs))

    async def gone(self, targets: Sequence[GoneTarget]) -> Sequence[Row]:
        """The jobs of those targets that were not changed or resumed since the call: `id`, `tenant`, `revision`, and
        `called_at`."""
        return await self._database.fetch(PoolName.REQUEST, sql.job.FIND_GONE, *map(list, zip(*targets, strict=True)))

    async def delete_completed(self, limit: int, by: str) -> int:
        """Delete at most `limit` one-off jobs that completed long enough ago; returns how many."""

        async def work(connection: Connection) -> int:
            rows = await connection.fetch(sql.job.COLLECT.text, limit, by)
            for tenant in sorted({row["tenant"] for row in rows}):
                ids = [str(row["id"]) for row in rows if row["tenant"] == tenant]
                await record(
                    connection, NewEvent("job.delete", tenant, "jobs", after={"completed": True, **listed(ids)})
                )
            return len(rows)

        deleted: int = await self._database.transaction(PoolName.REQUEST, work)
        return deleted


async def number_of(database: Database, job_id: UUID, tenant: int) -> int:
    """The number of a job, including a deleted one: its runs are kept."""
    rows = await database.fetch(PoolName.REQUEST, sql.job.FIND, tenant, job_id, None, job_limits())
    if not rows:
        raise JobNotFound(job_id)
    return int(rows[0]["job"])
