"""On-demand runs that wait in the backlog: enqueue them, claim them, and make those that wait for a key ready.

A claim works on heads: the jobs, queues and priorities that have runs waiting. A worker remembers them, because finding
them reads one index entry for each, however many runs wait behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from detent.domain.documents import MAX_PAYLOAD_BYTES
from detent.domain.identity import RunKey, decode_run_id
from detent.domain.run import Claim
from detent.store import sql
from detent.store.connection import Connection
from detent.store.db import Database, PoolName
from detent.store.live_runs import claims_of, make_way
from detent.store.run_rows import key_of
from detent.store.statement import Statement

# A release leaves at most this many ready runs of a queue and priority in live_runs, which stays small.
MAX_RELEASED = 2000
LARGEST_ENQUEUE = 10_000
END_BATCH = 1000
NO_PAYLOAD_LIMIT = 1 << 40  # the caller has checked it
PURGE_PAGE = 1000


class TaskHead(NamedTuple):
    """Where on-demand runs wait. `not_before`: when the first of them may start, in `wait` seconds from when this was
    read. `laned`: their job has a schedule, and they need one of its lanes."""

    job: int
    queue: int
    keyed: bool
    priority: int
    not_before: datetime
    laned: bool
    wait: float = 0.0


class EnqueuedRun(NamedTuple):
    """`created` False: another run has the unique key, and this is its id, status and time."""

    id: UUID
    created: bool
    status: str
    scheduled_at: datetime


ConcurrencyKey = tuple[int, str]
"""A job, and a concurrency key of its runs."""


class Freed(NamedTuple):
    """What runs have freed by their end: concurrency keys, and lanes of jobs with a schedule."""

    keys: set[ConcurrencyKey]
    jobs: set[int]


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
        self, node: int, incarnation: int, heads: Sequence[TaskHead], limit: int, *, evenly: bool = False
    ) -> list[Claim]:
        """Claim up to `limit` runs of these heads, which are all with keys or all without."""
        arguments = (incarnation, *_columns(heads), limit, evenly, MAX_RELEASED)
        rows = await self._database.fetch_guarded(PoolName.WORK, _claim(heads), "", "W2", node, *arguments)
        return claims_of(rows)

    async def claim_parked(
        self, node: int, incarnation: int, keys: Sequence[ConcurrencyKey], queues: Sequence[int], limit: int
    ) -> tuple[list[Claim], set[int]]:
        """Claim up to `limit` runs that wait for a place of these keys. Also returns the jobs of those that became
        ready instead."""
        arguments = (node, incarnation, *zip(*keys, strict=True), list(queues), limit)
        rows = await self._database.fetch_guarded(PoolName.WORK, sql.task.CLAIM_PARKED, "", "W2", *arguments)
        claims = [Claim(*list(row.values())[:-1]) for row in rows if row["claimed"]]
        return claims, {row["job"] for row in rows if not row["claimed"]}

    async def release(
        self, heads: Sequence[TaskHead], *, most: int = MAX_RELEASED, pool: PoolName = PoolName.WORK
    ) -> list[tuple[int, int]]:
        """Make runs of these heads pending runs, which any worker may claim, fairly and under limits: at most `most` of
        each head, and at most as many ready runs of each queue and priority are left in live_runs. Returns the job and
        the queue of each run."""
        arguments = (None, 0, *_columns(heads), MAX_RELEASED, False, most)
        return [(row["job"], row["queue"]) for row in await self._database.fetch(pool, _claim(heads), *arguments)]

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

    async def reuse(self, freed: Freed, *, pool: PoolName = PoolName.WORK) -> set[int]:
        """Give runs what others have freed: a place of their concurrency key, or a lane. Returns the jobs of those that
        are ready now."""
        jobs = await self.unpark(sorted(freed.keys), pool=pool) if freed.keys else set()
        if freed.jobs:
            heads = await self.heads(None, sorted(freed.jobs), pool=pool)
            laned = [head for head in heads if head.laned and head.wait <= 0]
            if laned and await self.release_laned(laned, pool=pool):
                jobs |= {head.job for head in laned}
        return jobs

    async def parked_keys(
        self, after: ConcurrencyKey, limit: int, *, pool: PoolName = PoolName.WORK
    ) -> list[ConcurrencyKey]:
        """Concurrency keys that runs wait for, after this one."""
        rows = await self._database.fetch(pool, sql.task.LIST_PARKED_KEYS, *after, limit)
        return [(row["job"], row["key"]) for row in rows]

    async def end_of_deleted_jobs(self) -> int:
        """Cancel some runs of deleted jobs; 0: none is left."""
        rows = await self._database.fetch(PoolName.WORK, sql.task.LIST_DELETED_JOBS)
        if not rows:
            return 0
        arguments = ([row["job"] for row in rows], "job deleted", END_BATCH)
        return len(await self._database.fetch(PoolName.WORK, sql.task.CANCEL_OF_JOBS, *arguments))

    async def purge_unique_keys(self, after: ConcurrencyKey) -> ConcurrencyKey | None:
        """Delete keys that are no longer held, one page after this key; returns the last key read, None at the end."""
        rows = await self._database.fetch(PoolName.WORK, sql.task.PURGE_UNIQUE_KEYS, *after, PURGE_PAGE)
        return (rows[0]["job"], rows[0]["key"]) if rows and rows[0]["read"] == PURGE_PAGE else None

    async def purge_key_places(self, after: tuple[int, str, int]) -> tuple[int, str, int] | None:
        """As `purge_unique_keys`, for places of concurrency keys."""
        rows = await self._database.fetch(PoolName.WORK, sql.task.PURGE_KEY_PLACES, *after, PURGE_PAGE)
        return (rows[0]["scope"], rows[0]["key"], rows[0]["place"]) if rows and rows[0]["read"] == PURGE_PAGE else None


async def enqueue(
    connection: Connection, job: int, runs: str, *, may_refer: bool, max_payload_bytes: int = MAX_PAYLOAD_BYTES
) -> list[EnqueuedRun]:
    """Enqueue runs of a job, all or none; `runs` is an array of documents as JSON."""
    rows = await connection.fetch(sql.task.ENQUEUE.text, job, runs, may_refer, max_payload_bytes)
    return [EnqueuedRun(*row.values()) for row in rows]


async def trigger(connection: Connection, job: int, payload: str | None) -> tuple[RunKey, bool] | None:
    """Enqueue a run of a job, due now; `payload` is JSON, None: that of the job. Returns its key, and whether it has to
    wait for a lane of its job; None if the job no longer exists."""
    if not await connection.fetch(sql.run.LOCK_JOB.text, job):
        return None
    document = "{}" if payload is None else f'{{"payload":{payload}}}'
    (run,) = await enqueue(connection, job, f"[{document}]", may_refer=True, max_payload_bytes=NO_PAYLOAD_LIMIT)
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


def _claim(heads: Sequence[TaskHead]) -> Statement:
    return sql.task.CLAIM_KEYED if heads[0].keyed else sql.task.CLAIM


def _columns(heads: Sequence[TaskHead]) -> tuple[Sequence[object], ...]:
    return tuple(zip(*((head.job, head.queue, head.priority) for head in heads), strict=True))
