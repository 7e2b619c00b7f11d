"""One change for many jobs, found by a search: counted first, then made chunk by chunk.

A chunk is not one transaction, which would keep a thousand jobs from firing: each job is changed by the same verb as a
single job. The audit log has one event for the chunk, written first, so that no change is without one.

A bulk change that stops halfway leaves some jobs changed and some not. When it is repeated it continues with the rest,
because a changed job no longer matches: a paused job is not paused again, and a run that was retried is no longer dead.

A job is paused, resumed or deleted whatever the ticks of its schedule cost. What one request costs is bounded by ending
its chunk early: the next request continues after the last job that was tried, with an event of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from detent.contract.job import BulkAction, JobStatus, OnResume
from detent.domain.audit_event import Facts, NewEvent, listed, of_runs
from detent.domain.identity import RunKey
from detent.domain.schedule.steps import Steps, batch_limit
from detent.errors import Conflict, NotFound
from detent.jobs.lifecycle import JobLifecycle
from detent.store import Store
from detent.store.audit_log import record
from detent.store.connection import Connection
from detent.store.db import PoolName
from detent.store.job_search import FoundJob, JobSearch
from detent.store.live_runs import cancel_backlog, cancel_runs, live_runs_of

CONCURRENT_CHANGES = 3
COUNTED_AT_ONCE = 1_000
MAX_COUNTED = 100_000
SAMPLE = 10

# The states in which each change has an effect.
AFFECTED: dict[BulkAction, tuple[JobStatus, ...]] = {
    "pause": ("active",),
    "resume": ("paused",),
    "delete": ("active", "paused", "completed"),
    "retry": ("active", "paused", "completed"),
    "cancel": ("active", "paused", "completed", "deleted"),
}


class CountedJobs(NamedTuple):
    """How many jobs a change would affect, some of them, and where to continue if counting stopped early."""

    matched: int
    sample: list[FoundJob]
    following: int | None


class BulkChunk(NamedTuple):
    """The result of a chunk. Matching jobs that need no change, or that another client changed, are not `changed`."""

    matched: int
    changed: int
    following: int | None


class BulkPause(NamedTuple):
    """Options of pausing; `on_resume` also of resuming."""

    reason: str | None = None
    until: datetime | None = None
    on_resume: OnResume | None = None

    @property
    def given(self) -> dict[str, Any]:
        return {name: value for name, value in self._asdict().items() if value is not None}


class BulkChanges:
    def __init__(self, store: Store, lifecycle: JobLifecycle) -> None:
        self._store = store
        self._lifecycle = lifecycle

    async def count(self, action: BulkAction, search: JobSearch, *, after: int, tenant: int) -> CountedJobs:
        matched = 0
        sample: list[FoundJob] = []
        following: int | None = after
        while following is not None and matched < MAX_COUNTED:
            found, following = await self._page(action, search, following, COUNTED_AT_ONCE, tenant)
            affected = await self._affected(action, found)
            matched += len(affected)
            sample += affected[: SAMPLE - len(sample)]
        return CountedJobs(matched, sample, following)

    async def apply(
        self,
        action: BulkAction,
        search: JobSearch,
        *,
        after: int,
        limit: int,
        tenant: int,
        by: str | None = None,
        asked: Facts | None = None,
        pause: BulkPause = BulkPause(),  # noqa: B008 - a tuple
    ) -> BulkChunk:
        """`asked`: what the search was, for the audit log."""
        found, following = await self._page(action, search, after, limit, tenant)
        steps = Steps()
        common: dict[str, Any] = {"tenant": tenant, "by": by, "steps": steps, "recorded": False}
        verb: Callable[[UUID], Awaitable[Any]]
        match action:
            case "retry":
                keys = await self._dead_among(found)
                changed = len((await self._store.reruns.redrive(keys, asked, tenant=tenant)).runs)
                return BulkChunk(len(keys), changed, following)
            case "cancel":
                matched = await self._affected(action, found)
                changed, more = await self._cancel([each.number for each in matched], asked, tenant)
                return BulkChunk(len(matched), changed, after if more else following)
            case "pause":
                verb = partial(self._lifecycle.pause, **pause._asdict(), **common)
            case "resume":
                verb = partial(self._lifecycle.resume, on_resume=pause.on_resume, **common)
            case "delete":
                verb = partial(self._lifecycle.delete, **common)
        if found:
            facts = {**(asked or {}), **pause.given, **listed([str(each.id) for each in found])}
            await self._store.audit_log.add(NewEvent(f"job.{action}", tenant, "jobs", after=facts))
        tried, changed = await _each(found, verb, steps)
        return BulkChunk(tried, changed, following if tried == len(found) else found[tried - 1].number)

    async def _cancel(self, jobs: Sequence[int], asked: Facts | None, tenant: int) -> tuple[int, bool]:
        """How many jobs had a run that was cancelled or asked to stop, and whether more of their runs wait than one
        chunk cancels."""
        if not jobs:
            return 0, False

        async def work(connection: Connection) -> tuple[int, bool]:
            cancelled, more = await cancel_backlog(connection, jobs)
            cancelled += await cancel_runs(connection, await live_runs_of(connection, jobs))
            if cancelled:
                await record(connection, of_runs("run.cancel", tenant, cancelled, asked))
            return len({key.job for key in cancelled}), more

        done: tuple[int, bool] = await self._store.database.transaction(PoolName.REQUEST, work)
        return done

    async def _page(
        self, action: BulkAction, search: JobSearch, after: int, limit: int, tenant: int
    ) -> tuple[Sequence[FoundJob], int | None]:
        wanted = AFFECTED[action] if search.statuses is None else search.statuses
        statuses = tuple(status for status in wanted if status in AFFECTED[action])
        return await self._store.jobs.find_all(search._replace(statuses=statuses), after, limit, tenant=tenant)

    async def _affected(self, action: BulkAction, found: Sequence[FoundJob]) -> list[FoundJob]:
        if action not in ("retry", "cancel"):
            return list(found)
        if action == "retry":
            jobs = {key.job for key in await self._dead_among(found)}
        else:
            numbers = [each.number for each in found]
            jobs = {key.job for key in await self._store.live_runs.of_jobs(numbers)}
            jobs |= await self._store.live_runs.jobs_with_waiting(numbers)
        return [each for each in found if each.number in jobs]

    async def _dead_among(self, found: Sequence[FoundJob]) -> list[RunKey]:
        """The newest run of each job that is dead."""
        return await self._store.reruns.latest_dead([each.number for each in found])


async def _each(found: Sequence[FoundJob], verb: Callable[[UUID], Awaitable[Any]], steps: Steps) -> tuple[int, int]:
    """Change the jobs in order, a few at a time, until they have cost the steps of a batch. How many were tried, and
    how many were changed: a job that another client has just changed is left as it is."""
    waiting = iter(found)
    tried = changed = 0
    failures: list[Exception] = []

    async def change_some() -> None:
        nonlocal tried, changed
        for each in waiting:
            tried += 1
            try:
                await verb(each.id)
                changed += 1
            except (Conflict, NotFound):
                pass
            except Exception as error:
                failures.append(error)
            if steps.spent > batch_limit(len(found)):
                return

    await asyncio.gather(*(change_some() for _ in range(CONCURRENT_CHANGES)))
    if failures:
        raise failures[0]
    return tried, changed
