"""Dead runs: list them, group them by error, find the oldest, and discard them.

Many are discarded some at a time, and the rows themselves record it. So the operation can be interrupted and repeated
at any time, and no run is discarded twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from detent.contract.run import DeadGroup, DeadGroups, Run
from detent.domain.audit_event import Facts, of_runs
from detent.domain.identity import RunKey
from detent.store import sql
from detent.store.audit_log import record
from detent.store.connection import Connection
from detent.store.db import Database, PoolName
from detent.store.history import NEWEST
from detent.store.job_limits import job_limits
from detent.store.jobs import DEFAULT_TENANT, number_of
from detent.store.run_rows import key_of
from detent.store.runs import documents

MAX_AT_ONCE = 1_000
MAX_EXAMINED = 100_000
MOST_GROUPS = 500

Keys = list[RunKey]


class DeadLetterFilter(NamedTuple):
    """Dead runs of one job or of all, of one group of errors or of all, dead before a time or at any time."""

    job: UUID | None = None
    group: str | None = None
    before: datetime | None = None

    @property
    def asked(self) -> Facts:
        """The query in the form that the audit log records."""
        facts = {"job": self.job and str(self.job), "group": self.group, "before": self.before}
        return {"all": True, **{name: value for name, value in facts.items() if value is not None}}


class DeadLetterChunk(NamedTuple):
    """The runs that were changed, and how many matching ones are left."""

    runs: list[RunKey]
    remaining: int


class DeadLetterStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(
        self,
        *,
        job: UUID | None = None,
        group: str | None = None,
        after: RunKey | None = None,
        limit: int = 50,
        among: int | None = None,
        tenant: int = DEFAULT_TENANT,
    ) -> tuple[list[Run], RunKey | None]:
        """From the newest tick to the oldest, and the key to pass as `after` for the next page (None: the last one). A
        group is searched only in the `among` newest runs, if that is given."""
        number = await self._number(job, tenant)
        last, at, serial = after or NEWEST
        arguments = (tenant, at, last, serial, limit + 1, number, group, job_limits())
        bounded = group is not None and among is not None
        statement = sql.dead_letter.LIST_NEWEST_OF_GROUP if bounded else sql.dead_letter.LIST
        async with self._database.connection(PoolName.REQUEST) as connection, connection.transaction(readonly=True):
            await connection.fetch(sql.database.LIMIT_READER.text)
            rows = await connection.fetch(statement.text, *arguments, *((among,) if bounded else ()))
            page = await documents(connection, rows[:limit])
        return page, key_of(rows[limit - 1]) if len(rows) > limit else None

    async def groups(
        self, *, job: UUID | None = None, among: int = MAX_EXAMINED, tenant: int = DEFAULT_TENANT
    ) -> DeadGroups:
        """Grouped by error pattern, the largest groups first. Every error has to be read, so only the `among` newest
        are grouped (`among`)."""
        number = await self._number(job, tenant)
        async with self._database.connection(PoolName.REQUEST) as connection, connection.transaction(readonly=True):
            await connection.fetch(sql.database.LIMIT_READER.text)
            (clock,) = await connection.fetch(sql.database.CLOCK.text)
            rows = await connection.fetch(sql.dead_letter.GROUP.text, tenant, number, among, MOST_GROUPS, job_limits())
        groups = [
            DeadGroup(
                group=row["group"],
                error=row["pattern"],
                runs=row["runs"],
                jobs=row["jobs"],
                first=row["first"],
                last=row["last"],
                sample=row["sample"],
            )
            for row in rows
        ]
        complete = not rows or (rows[0]["looked_at"] < among and len(rows) < MOST_GROUPS)
        return DeadGroups(at=clock["now"], runs=sum(each.runs for each in groups), more=not complete, items=groups)

    async def oldest(
        self, which: DeadLetterFilter, limit: int, *, among: int, tenant: int = DEFAULT_TENANT
    ) -> Sequence[RunKey]:
        """The oldest matching runs whose jobs have a free lane, searched among this many of the oldest."""
        filters = (tenant, await self._number(which.job, tenant), which.group, which.before)
        bounds = (limit, among, job_limits())
        rows = await self._database.fetch(PoolName.REQUEST, sql.dead_letter.LIST_OLDEST, *filters, *bounds)
        return [key_of(row) for row in rows]

    async def discard(self, keys: Sequence[RunKey], *, tenant: int = DEFAULT_TENANT) -> DeadLetterChunk:
        """Discard those of the runs that are dead."""
        arrays = [list(column) for column in zip(*keys, strict=True)] if keys else [[], [], []]
        return DeadLetterChunk(await self._discard(tenant, None, *arrays, None, None, None, len(keys)), 0)

    async def discard_all(
        self, which: DeadLetterFilter, limit: int = MAX_AT_ONCE, *, tenant: int = DEFAULT_TENANT
    ) -> DeadLetterChunk:
        """Discard at most `limit` of the matching runs."""
        number = await self._number(which.job, tenant)
        filters = (number, which.group, which.before)
        runs = await self._discard(tenant, which.asked, None, None, None, *filters, limit)
        remaining = await self.count(which, tenant=tenant) if len(runs) == limit else 0
        return DeadLetterChunk(runs, remaining)

    async def _discard(self, tenant: int, asked: Facts | None, *arguments: object) -> Keys:
        async def work(connection: Connection) -> Keys:
            rows = await connection.fetch(sql.dead_letter.DISCARD.text, tenant, *arguments, job_limits())
            runs = [key_of(row) for row in rows]
            if runs:
                await record(connection, of_runs("run.discard", tenant, runs, asked))
            return runs

        runs: Keys = await self._database.transaction(PoolName.REQUEST, work)
        return runs

    async def count(self, which: DeadLetterFilter, *, tenant: int = DEFAULT_TENANT) -> int:
        filters = (tenant, await self._number(which.job, tenant), which.group, which.before)
        (row,) = await self._database.fetch(PoolName.REQUEST, sql.dead_letter.COUNT, *filters, job_limits())
        return int(row["runs"])

    async def _number(self, job: UUID | None, tenant: int) -> int | None:
        return None if job is None else await number_of(self._database, job, tenant)
