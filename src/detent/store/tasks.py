"""On-demand runs that wait in the backlog: enqueue them, claim them, and make those that wait for a key ready.

A claim works on heads: the jobs, queues and priorities that have runs waiting. A worker remembers them, because finding
them reads one index entry for each, however many runs wait behind it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
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
from detent.store.live_runs import LiveRunStore, admit_on, claims_of, make_way
from detent.store.run_rows import key_of
from detent.store.statement import Statement
from detent.store.upkeep import RUNS_CHANNEL

# A release leaves at most this many ready runs of a queue and priority in live_runs, which stays small.
MAX_RELEASED = 2000
END_BATCH = 1000
PURGE_PAGE = 1000
# Each number of a list is counted up to the first of these, and a whole list up to about the second.
COUNTED, COUNTED_OF_LIST = 10_000, 200_000
FIRST_SCOPE = -(1 << 62)
# What holds keys, and the columns by which it is read page by page.
PURGED_KEYS = (
    (sql.task.PURGE_UNIQUE_KEYS, ("job", "key")),
    (sql.task.PURGE_KEY_PLACES, ("scope", "key", "place")),
    (sql.task.PURGE_KEY_RATES, ("scope", "key")),
)
JOB_GONE = "42704"
"""The SQLSTATE of an enqueue whose job was deleted meanwhile."""

CLAIMED = "claimed"

TaskPage = tuple[list[TaskSummary], int | None]


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


class EnqueueTarget(NamedTuple):
    """A job that runs are enqueued of. `max_payload_bytes` None: the tenant has no limit of its own. `older`: a node
    whose code does not know on-demand runs, and its version. `definition`: that of a job with a payload_schema."""

    job: int
    name: str
    queue: str
    tags: Sequence[str]
    max_payload_bytes: int | None
    now: datetime
    older: int | None
    older_version: str | None
    definition: str | None = None


ConcurrencyKey = tuple[int, str]
"""A job, and a concurrency key of its runs."""


class Freed(NamedTuple):
    """What runs have freed by their end: concurrency keys, and lanes of jobs with a schedule."""

    keys: set[ConcurrencyKey]
    jobs: set[int]


Place = tuple[int, int]
"""Where runs wait: a job and a queue."""


class TaskClaims(NamedTuple):
    """`put_off`: where runs were passed over, because their concurrency key has no free place, or by its rate."""

    runs: list[Claim]
    put_off: frozenset[Place]


class Released(NamedTuple):
    """How many runs became pending; `put_off` as in TaskClaims."""

    counts: Counter[Place]
    put_off: frozenset[Place]


class TaskStore:
    def __init__(self, database: Database, live_runs: LiveRunStore) -> None:
        self._database = database
        self._live_runs = live_runs

    async def enqueue_as_caller(self, task: str, runs: str, tenant: str) -> list[EnqueuedRun]:
        """Enqueue runs with the rights of the connection's role alone; `runs` is an array of documents as JSON, which
        the database checks."""
        rows = await self._database.fetch(PoolName.REQUEST, sql.task.ENQUEUE_AS_CALLER, task, runs, tenant)
        return [EnqueuedRun(*row.values()) for row in rows]

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
    ) -> TaskClaims:
        """Claim up to `limit` runs of these heads, and `each` of one; the heads are all with keys or all without."""
        arguments = (incarnation, *_columns(heads), limit, evenly, MAX_RELEASED, each or limit)
        rows = await self._database.fetch_guarded(PoolName.WORK, _claim(heads), "", "W2", node, *arguments)
        return TaskClaims(claims_of_tasks(rows), _put_off(rows))

    async def claim_parked(
        self, node: int, incarnation: int, keys: Sequence[ConcurrencyKey], queues: Sequence[int], limit: int
    ) -> tuple[list[Claim], set[int]]:
        """Claim up to `limit` runs that wait for a place of these keys. Also returns the jobs of those that became
        ready instead."""
        arguments = (node, incarnation, *zip(*keys, strict=True), list(queues), limit)
        rows = await self._database.fetch_guarded(PoolName.WORK, sql.task.CLAIM_PARKED, "", "W2", *arguments)
        return claims_of_tasks(rows), {job for job, _ in _put_off(rows)}

    async def release(
        self, heads: Sequence[TaskHead], *, most: int = MAX_RELEASED, pool: PoolName = PoolName.WORK
    ) -> Released:
        """Make runs of these heads pending runs, which any worker may claim, fairly and under limits: at most `most` of
        each head, and at most as many ready runs of each queue and priority are left in live_runs."""
        arguments = (None, 0, *_columns(heads), MAX_RELEASED, False, most, most)
        rows = await self._database.fetch(pool, _claim(heads), *arguments)
        return Released(Counter((row["job"], row["queue"]) for row in _granted(rows)), _put_off(rows))

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
        are ready now, and jobs whose keys they share."""
        jobs: set[int] = set()
        if freed.keys:
            holders, names = zip(*sorted(freed.keys), strict=True)
            jobs |= set(holders) if await self._live_runs.admit(holders, names, pool=pool) else set()
            jobs |= await self.unpark(sorted(freed.keys), pool=pool)
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

    async def purge_keys(self) -> AsyncIterator[int]:
        """Delete unique keys, places and rates of concurrency keys that are no longer in use; yields how many after
        each page."""
        for statement, columns in PURGED_KEYS:
            after: tuple[object, ...] = (FIRST_SCOPE, "", 0)[: len(columns)]
            while True:
                rows = await self._database.fetch(PoolName.WORK, statement, *after, PURGE_PAGE)
                if not rows:
                    break
                yield rows[0]["gone"]
                after = tuple(rows[0][column] for column in columns)


async def enqueue(connection: Connection, job: int, runs: str) -> list[EnqueuedRun]:
    """Enqueue runs of a job, all or none; `runs` is an array of documents as JSON, which the caller has checked."""
    rows = await connection.fetch(sql.task.ENQUEUE.text, job, runs)
    return [EnqueuedRun(*row.values()) for row in rows]


async def trigger(connection: Connection, job: int, payload: str | None) -> tuple[RunKey, bool] | None:
    """Enqueue a run of a job, due now; `payload` is JSON, None: that of the job. Returns its key, and whether it has to
    wait for a lane of its job; None if the job no longer exists. Rejected with JOB_GONE: it was deleted meanwhile."""
    if not await connection.fetch(sql.run.LOCK_JOB.text, job):
        return None
    document = "{}" if payload is None else f'{{"payload":{payload}}}'
    (run,) = await enqueue(connection, job, f"[{document}]")
    key = decode_run_id(run.id)
    assert key is not None
    laned = [head for head in await heads_on(connection, job) if head.laned]
    if await release_laned_on(connection, laned, although_held=True):
        await connection.fetch(sql.feed.NOTIFY.text, RUNS_CHANNEL, "ready")
    return key, bool(laned) and bool(await connection.fetch(sql.task.FIND.text, *key))


async def release_laned_on(connection: Connection, heads: Sequence[TaskHead], *, although_held: bool = False) -> bool:
    """As `TaskStore.release_laned`, in the transaction of a connection. `although_held`: also while the cluster is
    held."""
    if not heads:
        return False
    columns = [(head.job, head.queue, head.keyed, head.priority) for head in heads]
    placed = await connection.fetch(sql.task.RELEASE_LANED.text, *zip(*columns, strict=True), although_held)
    for row in placed:
        await make_way(connection, row)
    await admit_on(connection, [row["job"] for row in placed if row["key"] is not None])
    return bool(placed)


async def heads_on(connection: Connection, job: int) -> list[TaskHead]:
    """The heads of one job."""
    return [TaskHead(*row.values()) for row in await connection.fetch(sql.task.LIST_HEADS.text, None, [job])]


async def redrive_on_demand(
    connection: Connection, keys: Sequence[RunKey], tenant: int, limit: int, limits: str | None
) -> list[RunKey]:
    rows = await connection.fetch(sql.task.REDRIVE.text, *zip(*keys, strict=True), tenant, limit, limits)
    return [key_of(row) for row in rows]


async def read_to_rerun(connection: Connection, key: RunKey) -> tuple[str | None, str | None]:
    """The definition of the job of a finished run, if it has a payload_schema, and the payload of the run, if it has
    one; both as JSON."""
    rows = await connection.fetch(sql.task.READ_TO_RERUN.text, *key)
    return (rows[0]["definition"], rows[0]["payload"]) if rows else (None, None)


async def rerun_on_demand(connection: Connection, key: RunKey) -> RunKey | None:
    """A new run with what a finished one was given; None: there is no such run, or its job is deleted."""
    rows = await connection.fetch(sql.task.RERUN.text, *key)
    return key_of(rows[0]) if rows else None


def _summary(row: Row) -> TaskSummary:
    fields = {name: row[name] for name in TaskSummary.__struct_fields__ if name != "pending"}
    return TaskSummary(**fields, pending=row["ready"] + row["delayed"] + row["waiting_for_key"])


def _claim(heads: Sequence[TaskHead]) -> Statement:
    return sql.task.CLAIM_KEYED if heads[0].keyed else sql.task.CLAIM


def claims_of_tasks(rows: Sequence[Row]) -> list[Claim]:
    """Statements that may put runs off have the column `claimed` at the end."""
    if not rows or CLAIMED not in rows[0]:
        return claims_of(rows)
    return [Claim(*list(row.values())[:-1]) for row in _granted(rows)]


def _granted(rows: Sequence[Row]) -> Sequence[Row]:
    return rows if not rows or CLAIMED not in rows[0] else [row for row in rows if row[CLAIMED]]


def _put_off(rows: Sequence[Row]) -> frozenset[Place]:
    if not rows or CLAIMED not in rows[0]:
        return frozenset()
    return frozenset((row["job"], row["queue"]) for row in rows if not row[CLAIMED])


def _columns(heads: Sequence[TaskHead]) -> tuple[Sequence[object], ...]:
    return tuple(zip(*((head.job, head.queue, head.priority) for head in heads), strict=True))
