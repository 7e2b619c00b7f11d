"""One change for many jobs, found by a search: looked at first, then made a chunk at a time.

A chunk is not one transaction: each job is changed as if it alone had been named, by the same verb. So a change of many
jobs that ends halfway leaves jobs that are changed and jobs that are not, and when it is made again it goes on with
those that are not: what is paused is not paused again, what runs again is dead no more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from detent.contract.job import BulkAction, JobStatus, OnResume
from detent.domain.identity import RunKey
from detent.errors import Conflict, NotFound
from detent.store import sql
from detent.store.connection import Connection
from detent.store.db import Database, PoolName
from detent.store.job_search import JobSearch, find
from detent.store.jobs import JobStore
from detent.store.reruns import RerunStore
from detent.store.run_rows import key_of
from detent.store.upkeep import RUNS_CHANNEL

AT_ONCE = 3
LOOKED_AT_ONCE = 1_000
MOST_COUNTED = 100_000
SAMPLE = 10

# Which jobs each change is about; the others it would leave as they are.
CONCERNED: dict[BulkAction, tuple[JobStatus, ...]] = {
    "pause": ("active",),
    "resume": ("paused",),
    "delete": ("active", "paused", "completed"),
    "retry": ("active", "paused", "completed"),
    "cancel": ("active", "paused", "completed", "deleted"),
}


class Found(NamedTuple):
    number: int
    id: UUID
    name: str
    status: JobStatus


class Counted(NamedTuple):
    """How many jobs a change would be made to, some of them, and where counting goes on, if it ended early."""

    matched: int
    sample: list[Found]
    following: int | None


class Done(NamedTuple):
    """What became of a chunk: jobs that matched, of which some had nothing to change, or were changed by others."""

    matched: int
    changed: int
    following: int | None


class Pause(NamedTuple):
    """What is said of a pause; `on_resume` also when it ends."""

    reason: str | None = None
    until: datetime | None = None
    on_resume: OnResume | None = None


class BulkStore:
    def __init__(self, database: Database, jobs: JobStore, reruns: RerunStore) -> None:
        self._database = database
        self._jobs = jobs
        self._reruns = reruns

    async def count(self, action: BulkAction, search: JobSearch, *, after: int, tenant: int) -> Counted:
        matched = 0
        sample: list[Found] = []
        following: int | None = after
        while following is not None and matched < MOST_COUNTED:
            found, following = await self._page(action, search, following, LOOKED_AT_ONCE, tenant)
            concerned = await self._concerned(action, found)
            matched += len(concerned)
            sample += concerned[: SAMPLE - len(sample)]
        return Counted(matched, sample, following)

    async def apply(
        self,
        action: BulkAction,
        search: JobSearch,
        *,
        after: int,
        limit: int,
        tenant: int,
        by: str | None = None,
        pause: Pause = Pause(),  # noqa: B008 - a tuple
    ) -> Done:
        found, following = await self._page(action, search, after, limit, tenant)
        match action:
            case "retry":
                keys = await self._dead_among(found)
                changed = len((await self._reruns.redrive(keys, tenant=tenant)).runs)
                return Done(len(keys), changed, following)
            case "cancel":
                keys = await self._live_among(found)
                changed = await self._database.transaction(PoolName.REQUEST, lambda c: _cancel(c, keys)) if keys else 0
                return Done(len({key.job for key in keys}), changed, following)
            case "pause":
                verb = self._pausing(pause, tenant, by)
            case "resume":
                how = pause.on_resume
                verb = lambda job: self._jobs.resume(job, on_resume=how, tenant=tenant, by=by)  # noqa: E731 - beside its neighbours
            case "delete":
                verb = lambda job: self._jobs.delete(job, tenant=tenant, by=by)  # noqa: E731 - as above
        return Done(len(found), await _each(found, verb), following)

    def _pausing(self, pause: Pause, tenant: int, by: str | None) -> Callable[[UUID], Awaitable[Any]]:
        reason, until, on_resume = pause
        return lambda job: self._jobs.pause(job, reason, until=until, on_resume=on_resume, tenant=tenant, by=by)

    async def _page(
        self, action: BulkAction, search: JobSearch, after: int, limit: int, tenant: int
    ) -> tuple[list[Found], int | None]:
        wanted = CONCERNED[action] if search.statuses is None else search.statuses
        statuses = tuple(status for status in wanted if status in CONCERNED[action])
        async with self._database.connection(PoolName.REQUEST) as connection, connection.transaction(readonly=True):
            await connection.fetch(sql.database.LIMIT_READER.text)
            numbers, following = await find(connection, tenant, search._replace(statuses=statuses), after, limit)
            rows = await connection.fetch(sql.job.READ_FOR_BULK.text, numbers) if numbers else []
        return [Found(*row.values()) for row in rows], following

    async def _concerned(self, action: BulkAction, found: Sequence[Found]) -> list[Found]:
        if action not in ("retry", "cancel"):
            return list(found)
        keys = await (self._dead_among(found) if action == "retry" else self._live_among(found))
        jobs = {key.job for key in keys}
        return [each for each in found if each.number in jobs]

    async def _dead_among(self, found: Sequence[Found]) -> list[RunKey]:
        """The newest runs of these jobs, where they are dead."""
        rows = await self._database.fetch(
            PoolName.REQUEST, sql.overview.LIST_LATEST_DEAD, [each.number for each in found]
        )
        return [key_of(row) for row in rows]

    async def _live_among(self, found: Sequence[Found]) -> list[RunKey]:
        rows = await self._database.fetch(PoolName.REQUEST, sql.run.LIST_LIVE_OF_JOBS, [each.number for each in found])
        return [key_of(row) for row in rows]


async def _cancel(connection: Connection, keys: Sequence[RunKey]) -> int:
    rows = await connection.fetch(sql.run.CANCEL.text, *zip(*keys, strict=True))
    if any(row["owner"] is not None for row in rows):
        await connection.fetch(sql.feed.NOTIFY.text, RUNS_CHANNEL, "cancel")
    return len({row["job"] for row in rows})


async def _each(found: Sequence[Found], verb: Callable[[UUID], Awaitable[Any]]) -> int:
    """A few at a time. One that somebody else has changed meanwhile is left as they left it."""
    places = asyncio.Semaphore(AT_ONCE)

    async def change(job: UUID) -> bool:
        async with places:
            try:
                await verb(job)
            except (Conflict, NotFound):
                return False
            return True

    results = await asyncio.gather(*(change(each.id) for each in found), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results.count(True)
