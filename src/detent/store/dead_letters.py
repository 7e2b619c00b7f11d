"""Dead runs: listed, told by what their errors have in common, brought back to life, or dealt with for good.

Whatever is done to many of them is done to some at a time, and what was done shows in the rows themselves: a run that
lives again has left history, one that was discarded says so. So it can be broken off at any moment and begun again, and
nothing happens twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from detent.contract.run import DeadGroup, DeadGroups, Run
from detent.domain.identity import RunKey
from detent.store import sql
from detent.store.db import Database, PoolName
from detent.store.history import NEWEST
from detent.store.jobs import DEFAULT_TENANT
from detent.store.reruns import RerunStore
from detent.store.run_rows import key_of
from detent.store.runs import documents, number_of

MOST_AT_ONCE = 1_000
MOST_LOOKED_AT = 100_000
LOOKED_AT_FIRST = 2_000
MOST_GROUPS = 500


class Which(NamedTuple):
    """Dead runs of one job or of all, of one group of errors or of all, dead by then or by now."""

    job: UUID | None = None
    group: str | None = None
    before: datetime | None = None


class Done(NamedTuple):
    """To which runs it was done, and how many are left."""

    runs: list[RunKey]
    remaining: int


class DeadLetterStore:
    def __init__(self, database: Database, reruns: RerunStore) -> None:
        self._database = database
        self._reruns = reruns

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
        """From the newest tick to the oldest, and the key to pass as `after` for more (None: these were all). A group
        is looked for `among` so many of the newest only, if that is given."""
        number = await self._number(job, tenant)
        last, at, serial = after or NEWEST
        arguments = (tenant, at, last, serial, limit + 1, number, group)
        bounded = group is not None and among is not None
        statement = sql.dead_letter.LIST_NEWEST_OF_GROUP if bounded else sql.dead_letter.LIST
        async with self._database.connection(PoolName.REQUEST) as connection, connection.transaction(readonly=True):
            await connection.fetch(sql.database.LIMIT_READER.text)
            rows = await connection.fetch(statement.text, *arguments, *((among,) if bounded else ()))
            page = await documents(connection, rows[:limit])
        return page, key_of(rows[limit - 1]) if len(rows) > limit else None

    async def groups(
        self, *, job: UUID | None = None, among: int = MOST_LOOKED_AT, tenant: int = DEFAULT_TENANT
    ) -> DeadGroups:
        """By what their errors have in common, the largest groups first. Each error has to be read: that is done
        `among` so many of the newest."""
        number = await self._number(job, tenant)
        async with self._database.connection(PoolName.REQUEST) as connection, connection.transaction(readonly=True):
            await connection.fetch(sql.database.LIMIT_READER.text)
            (clock,) = await connection.fetch(sql.database.CLOCK.text)
            rows = await connection.fetch(sql.dead_letter.GROUP.text, tenant, number, among, MOST_GROUPS)
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

    async def redrive(self, which: Which, limit: int = MOST_AT_ONCE, *, tenant: int = DEFAULT_TENANT) -> Done:
        """Bring back those that waited longest and whose jobs have room, at most `limit` of them."""
        filters = (tenant, await self._number(which.job, tenant), which.group, which.before)
        rows = await self._database.fetch(
            PoolName.REQUEST, sql.dead_letter.LIST_OLDEST, *filters, limit, LOOKED_AT_FIRST
        )
        if len(rows) < limit:  # the oldest may all be of jobs that have no room
            rows = await self._database.fetch(
                PoolName.REQUEST, sql.dead_letter.LIST_OLDEST, *filters, limit, MOST_LOOKED_AT
            )
        keys = [key_of(row) for row in rows]
        runs = (await self._reruns.redrive(keys, tenant=tenant)).runs if keys else []
        return Done(runs, await self._count(*filters))

    async def discard(self, keys: Sequence[RunKey], *, tenant: int = DEFAULT_TENANT) -> Done:
        """Deal with these for good, where they are dead."""
        arrays = [list(column) for column in zip(*keys, strict=True)] if keys else [[], [], []]
        rows = await self._database.fetch(
            PoolName.REQUEST, sql.dead_letter.DISCARD, tenant, *arrays, None, None, None, len(keys)
        )
        return Done([key_of(row) for row in rows], 0)

    async def discard_all(self, which: Which, limit: int = MOST_AT_ONCE, *, tenant: int = DEFAULT_TENANT) -> Done:
        """As discard, for at most `limit` of those that are meant."""
        number = await self._number(which.job, tenant)
        filters = (number, which.group, which.before)
        rows = await self._database.fetch(
            PoolName.REQUEST, sql.dead_letter.DISCARD, tenant, None, None, None, *filters, limit
        )
        remaining = await self._count(tenant, *filters) if len(rows) == limit else 0
        return Done([key_of(row) for row in rows], remaining)

    async def _count(self, *filters: object) -> int:
        return int((await self._database.fetch(PoolName.REQUEST, sql.dead_letter.COUNT, *filters))[0]["runs"])

    async def _number(self, job: UUID | None, tenant: int) -> int | None:
        return None if job is None else await number_of(self._database, job, tenant)
