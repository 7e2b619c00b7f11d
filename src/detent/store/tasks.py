"""On-demand runs that wait in the backlog: enqueue them, claim them, and make those that wait for a key ready.

A claim works on heads: the jobs, queues and priorities that have runs waiting. A worker remembers them, because finding
them reads one index entry for each, however many runs wait behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from detent.contract.task import EnqueuedRun, TaskSummary
from detent.domain.identity import RunKey, decode_run_id
from detent.domain.run import Claim
from detent.store import sql
from detent.store.connection import Connection
from detent.store.db import Database, PoolName, Row
from detent.store.job_limits import job_limits
from detent.store.live_runs import claims_of, make_way
from detent.store.run_rows import key_of
from detent.store.statement import Statement

# A release leaves at most this many ready runs of a queue and priority in live_runs, which stays small.
MAX_RELEASED = 2000
END_BATCH = 1000
PURGE_PAGE = 1000
# Each number of a list is counted up to the first of these, and a whole list up to about the second.
COUNTED, COUNTED_OF_LIST = 10_000, 1_000_000

TaskPage = tuple[list[TaskSummary], int | None]


class TaskHead(NamedTuple):
    """Where on-demand runs wait. `not_before`: when the first of them may start. `laned`: their job has a schedule, and
    they need one of its lanes."""

    job: int
    queue: int
    keyed: bool
    priority: int
    not_before: datetime
    laned: bool


class EnqueueTarget(NamedTuple):
    """A job that runs are enqueued of. `max_payload_bytes` None: the tenant has no limit of its own. `older`: a node
    whose code does not know on-demand runs, and its version."""

    job: int
    name: str
    queue: str
    tags: Sequence[str]
    max_payload_bytes: int | None
    now: datetime
    older: int | None
    older_version: str | None


ConcurrencyKey = tuple[int, str]
"""A job, and a concurrency key of its runs."""


class TaskStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def heads(
        self, queues: Sequence[int] | None, jobs: Sequence[int] | None = None, *, pool: PoolName = PoolName.WORK
    ) -> list[TaskHead]:
        """All that are served by these queues, or only those of some jobs."""
        rows = await self._database.fetch(pool, sql.task.LIST_HEADS, queues, jobs)
        return [TaskHead(*row.values()) for row in rows]

    async def claim(
        self,
        node: int,
        incarnation: int,
        heads: Sequence[TaskHead],
        limit: int,
        *,
        each: int | None = None,
        evenly: bool = False,
    ) -> list[Claim]:
        """Claim up to `limit` runs of these heads, and `each` of one; the heads are all with keys or all without."""
        arguments = (incarnation, *_columns(heads), limit, evenly, MAX_RELEASED, each or limit)
        rows = await self._database.fetch_guarded(PoolName.WORK, _claim(heads), "", "W2", node, *arguments)
        return claims_of(rows)

    async def release(
        self, heads: Sequence[TaskHead], limit: int, *, most: int = MAX_RELEASED, pool: PoolName = PoolName.WORK
    ) -> int:
        """Make up to `limit` runs of these heads pending runs, which any worker may claim, fairly and under limits. At
        most `most` ready runs of each queue and priority are left in live_runs."""
        arguments = (None, 0, *_columns(heads), limit, False, most, limit)
        return len(await self._database.fetch(pool, _claim(heads), *arguments))

    async def release_laned(self, heads: Sequence[TaskHead], *, pool: PoolName = PoolName.WORK) -> bool:
        """Give runs of jobs with a schedule free lanes of their jobs; returns whether any got one."""

        async def work(connection: Connection) -> bool:
            return await release_laned_on(connection, heads)

        released: bool = await self._database.transaction(pool, work)
        return released

    async def unpark(self, keys: Sequence[ConcurrencyKey], *, pool: PoolName = PoolName.WORK) -> set[int]:
        """Make runs that wait for a place of these concurrency keys ready; returns their jobs."""
        rows = await self._database.fetch(pool, sql.task.UNPARK, *zip(*keys, strict=True))
        return {row["job"] for row in rows}

    async def parked_keys(self, after: ConcurrencyKey, limit: int) -> list[ConcurrencyKey]:
        """Concurrency keys that runs wait for, after this one."""
        rows = await self._database.fetch(PoolName.WORK, sql.task.LIST_PARKED_KEYS, *after, limit)
        return [(row["job"], row["key"]) for row in rows]

    async def end_of_deleted_jobs(self) -> int:
        """Cancel some runs of deleted jobs; 0: none is left."""
        rows = await self._database.fetch(PoolName.WORK, sql.task.LIST_DELETED_JOBS)
        if not rows:
            return 0
        arguments = ([row["job"] for row in rows], "job deleted", END_BATCH)
        return len(await self._database.fetch(PoolName.WORK, sql.task.CANCEL_OF_JOBS, *arguments))

    # -- for requests

    async def target(self, tenant: int, *, job_id: UUID | None = None, name: str | None = None) -> EnqueueTarget | None:
        """The job of this id, or of this name."""
        rows = await self._database.fetch(PoolName.REQUEST, sql.task.READ_JOB, tenant, job_id, name, job_limits())
        return EnqueueTarget(*rows[0].values()) if rows else None

    async def summaries(self, *, after: int = 0, limit: int = 50, tenant: int) -> TaskPage:
        """Tasks in the order of their creation, and the value to pass as `after` for the next page (None: the last
        one)."""
        async with self._database.connection(PoolName.REQUEST) as connection, connection.transaction(readonly=True):
            await connection.fetch(sql.database.LIMIT_READER.text)
            most = min(COUNTED, COUNTED_OF_LIST // limit)
            rows = await connection.fetch(sql.task.LIST.text, tenant, after, limit + 1, most, job_limits())
        return [_summary(row) for row in rows[:limit]], rows[limit - 1]["job"] if len(rows) > limit else None

    # -- upkeep

    async def purge_unique_keys(self, after: ConcurrencyKey) -> ConcurrencyKey | None:
        """Delete keys that are no longer held, one page after this key; returns the last key read, None at the end."""
        rows = await self._database.fetch(PoolName.WORK, sql.task.PURGE_UNIQUE_KEYS, *after, PURGE_PAGE)
        return (rows[0]["job"], rows[0]["key"]) if rows and rows[0]["read"] == PURGE_PAGE else None

    async def purge_key_places(self, after: tuple[int, str, int]) -> tuple[int, str, int] | None:
        """As `purge_unique_keys`, for places of concurrency keys."""
        rows = await self._database.fetch(PoolName.WORK, sql.task.PURGE_KEY_PLACES, *after, PURGE_PAGE)
        return (rows[0]["scope"], rows[0]["key"], rows[0]["place"]) if rows and rows[0]["read"] == PURGE_PAGE else None


async def enqueue(connection: Connection, job: int, runs: str) -> list[EnqueuedRun]:
    """Enqueue runs of a job, all or none; `runs` is an array of documents as JSON, which the caller has checked."""
    rows = await connection.fetch(sql.task.ENQUEUE.text, job, runs)
    return [EnqueuedRun(*row.values()) for row in rows]


async def trigger(connection: Connection, job: int, payload: str | None) -> tuple[RunKey, bool] | None:
    """Enqueue a run of a job, due now; `payload` is JSON, None: that of the job. Returns its key, and whether it has to
    wait for a lane of its job; None if the job no longer exists."""
    if not await connection.fetch(sql.run.LOCK_JOB.text, job):
        return None
    document = "{}" if payload is None else f'{{"payload":{payload}}}'
    (run,) = await enqueue(connection, job, f"[{document}]")
    key = decode_run_id(run.id)
    assert key is not None
    laned = [head for head in await heads_on(connection, job) if head.laned]
    await release_laned_on(connection, laned)
    return key, bool(laned) and bool(await connection.fetch(sql.task.FIND.text, *key))


async def release_laned_on(connection: Connection, heads: Sequence[TaskHead]) -> bool:
    """As `TaskStore.release_laned`, in the transaction of a connection."""
    best: dict[int, TaskHead] = {}
    for head in heads:
        if head.job not in best or head.priority > best[head.job].priority:
            best[head.job] = head
    if not best:
        return False
    columns = [(head.job, head.queue, head.keyed, head.priority) for head in best.values()]
    placed = await connection.fetch(sql.task.RELEASE_LANED.text, *zip(*columns, strict=True))
    for row in placed:
        await make_way(connection, row)
    return bool(placed)


async def heads_on(connection: Connection, job: int) -> list[TaskHead]:
    """The heads of one job."""
    return [TaskHead(*row.values()) for row in await connection.fetch(sql.task.LIST_HEADS.text, None, [job])]


async def redrive_on_demand(
    connection: Connection, keys: Sequence[RunKey], tenant: int, limit: int, limits: str | None
) -> list[RunKey]:
    rows = await connection.fetch(sql.task.REDRIVE.text, *zip(*keys, strict=True), tenant, limit, limits)
    return [key_of(row) for row in rows]


async def rerun_on_demand(connection: Connection, key: RunKey) -> RunKey | None:
    """A new run with what a finished one was given; None: there is no such run, or its job is deleted."""
    rows = await connection.fetch(sql.task.RERUN.text, *key)
    return key_of(rows[0]) if rows else None


def _summary(row: Row) -> TaskSummary:
    fields = {name: row[name] for name in TaskSummary.__struct_fields__ if name != "pending"}
    return TaskSummary(**fields, pending=row["ready"] + row["delayed"] + row["waiting_for_key"])


def _claim(heads: Sequence[TaskHead]) -> Statement:
    return sql.task.CLAIM_KEYED if heads[0].keyed else sql.task.CLAIM


def _columns(heads: Sequence[TaskHead]) -> tuple[Sequence[object], ...]:
    return tuple(zip(*((head.job, head.queue, head.priority) for head in heads), strict=True))
