"""Queues: list them, find those with ready runs, and claim runs fairly between tenants or subject to limits.

A limit holds across the cluster. A claim under a limit first locks its row and then counts the running runs in a
separate statement. A single statement would count in a snapshot taken before it waited for the lock.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from detent.contract.queue import Queue, QueueChannel
from detent.domain.audit_event import NewEvent, changed
from detent.domain.run import Claim
from detent.store import sql
from detent.store.audit_log import record
from detent.store.connection import Connection
from detent.store.db import Database, PoolName, Row
from detent.store.live_runs import claims_of
from detent.store.upkeep import RUNS_CHANNEL

WHOLE_TENANT = None
# On-demand runs that wait, of a tenant: beyond that the exact number does not matter.
MAX_WAITING_COUNTED = 100_000
# The notification that queues or limits have changed.
QUEUES_CHANGED = "queues"


class QueueRow(NamedTuple):
    """A queue, the capabilities a worker needs to serve it, the numbers of the limits it is subject to, and whether its
    tenant has jobs and is suspended."""

    queue: int
    tenant: int
    name: str
    needs: str
    weight: int
    limits: tuple[int, ...]
    has_jobs: bool
    suspended: bool = False


class RunLimits(NamedTuple):
    """How many runs may be running at the same time, and how many may start per second. None: no limit."""

    max_concurrent: int | None
    rate_per_second: float | None


class ReadyQueue(NamedTuple):
    """A queue with ready runs of this priority."""

    queue: int
    priority: int


class LimitedClaim(NamedTuple):
    """The result of a claim under limits. `wait`: seconds until more runs may start; None if a run has to end first,
    or if no other run waits. `busy`: another claim holds the lock of a limit. `full`: a limit is reached."""

    claims: list[Claim]
    wait: float | None = None
    busy: bool = False
    full: bool = False


class QueueStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    # -- for workers

    async def rows(self, *, pool: PoolName = PoolName.WORK) -> list[QueueRow]:
        rows = await self._database.fetch(pool, sql.queue.LIST_ALL)
        return [QueueRow(*row.values())._replace(limits=tuple(row["limits"])) for row in rows]

    async def ready(self, queues: Sequence[int]) -> list[ReadyQueue]:
        return [
            ReadyQueue(*row.values())
            for row in await self._database.fetch(PoolName.WORK, sql.queue.LIST_READY, list(queues))
        ]

    async def claim_shares(
        self,
        node: int,
        incarnation: int,
        shares: Mapping[int, int],
        ready: Sequence[tuple[int, ReadyQueue]],
        *,
        evenly: bool = False,
    ) -> list[Claim]:
        """Claim up to its share of runs for each tenant. `ready`: the tenants, queues and priorities to claim from.
        `evenly`: ignore priorities."""
        tenants, places = zip(*ready, strict=True)
        queues, priorities = zip(*places, strict=True)
        arguments = (list(shares), list(shares.values()), tenants, queues, priorities, evenly)
        rows = await self._database.fetch_guarded(
            PoolName.WORK, sql.run.CLAIM_SHARES, "", "W2", node, incarnation, *arguments
        )
        return claims_of(rows)

    async def claim_limited(
        self,
        node: int,
        incarnation: int,
        limits: Sequence[int],
        queues: Sequence[int],
        limit: int,
        *,
        evenly: bool = False,
    ) -> LimitedClaim:
        """Claim from queues that are subject to the same limits."""

        async def claim(connection: Connection, room: int) -> list[Row]:
            rows: list[Row] = await connection.fetch(sql.run.CLAIM.text, node, incarnation, list(queues), room, evenly)
            return rows

        rows, rest = await claim_under(self._database, limits, limit, claim)
        return rest._replace(claims=claims_of(rows))

    async def mark_limited(self, node: int, queues: Sequence[int]) -> None:
        """Count the runs that this node holds against a limit that was set after they started."""
        await self._database.fetch(PoolName.WORK, sql.limit.MARK_RUNS, node, list(queues))

    # -- for the API

    async def list(self, *, tenant: int) -> list[Queue]:
        async with self._database.connection(PoolName.REQUEST) as connection, connection.transaction(readonly=True):
            await connection.fetch(sql.database.LIMIT_READER.text)
            return await _listed(connection, tenant, None)

    async def limit(self, name: str, limits: RunLimits, *, tenant: int) -> Queue:
        """Set the limits of a queue, even of one without jobs."""

        async def work(connection: Connection) -> None:
            rows = await connection.fetch(sql.limit.READ.text, tenant, name)
            former = RunLimits(*rows[0].values()) if rows else RunLimits(None, None)
            await set_limits(connection, tenant, name, limits)
            before, after = changed(former._asdict(), limits._asdict())
            if after:
                await record(connection, NewEvent("queue.limit", tenant, "queue", name, name, before, after))

        await self._database.transaction(PoolName.REQUEST, work)
        async with self._database.connection(PoolName.REQUEST) as connection:
            queues = await _listed(connection, tenant, name)
        return queues[0] if queues else _without_runs(name)


async def claim_under(
    database: Database,
    limits: Sequence[int],
    limit: int,
    claim: Callable[[Connection, int], Awaitable[list[Row]]],
    *,
    pool: PoolName = PoolName.WORK,
) -> tuple[list[Row], LimitedClaim]:
    """Lock the limits, compute the free capacity, claim that many runs, and count them."""

    async def work(connection: Connection) -> tuple[list[Row], LimitedClaim]:
        locked = await connection.fetch(sql.limit.LOCK.text, list(limits))
        if len(locked) < len(limits):
            return [], LimitedClaim([], busy=True)
        (found,) = await connection.fetch(sql.limit.MEASURE_CAPACITY.text, list(limits))
        room = min(limit, max(found["room"], 0))
        rows = await claim(connection, room) if room else []
        if rows:
            addresses = [row["job"] for row in rows], [row["lane"] for row in rows]
            await connection.fetch(sql.limit.USE.text, list(limits), len(rows), *addresses)
        full = len(rows) == room < limit
        return rows, LimitedClaim([], wait=found["wait"] if full else None, full=full)

    result: tuple[list[Row], LimitedClaim] = await database.transaction(pool, work)
    return result


async def set_limits(connection: Connection, tenant: int, queue: str | None, limits: RunLimits) -> None:
    """Set or remove the limits of a queue. Runs that are running count immediately. Nodes are notified."""
    if limits == RunLimits(None, None):
        await connection.fetch(sql.limit.DROP.text, tenant, queue)
    else:
        await connection.fetch(sql.limit.SET.text, tenant, queue, *limits)
        await connection.fetch(sql.limit.MARK_ALL_RUNS.text, tenant, queue)
    await connection.fetch(sql.feed.NOTIFY.text, RUNS_CHANNEL, QUEUES_CHANGED)


async def _listed(connection: Connection, tenant: int, name: str | None) -> list[Queue]:
    rows = await connection.fetch(sql.queue.LIST.text, tenant, name)
    counted = await connection.fetch(sql.task.COUNT_WAITING.text, tenant, name, MAX_WAITING_COUNTED)
    waiting = {row["name"]: row for row in counted}
    return [_queue(row, waiting.get(row["name"])) for row in rows]


def _queue(row: Row, tasks: Row | None) -> Queue:
    """`tasks`: the on-demand runs that wait in it."""
    fields = {name: row[name] for name in ("name", "max_concurrent", "rate_per_second", "waiting", "ready", "running")}
    oldest = row["oldest_ready_at"]
    if tasks is not None:
        fields["waiting"] += tasks["pending"] + tasks["retrying"]
        fields["ready"] += tasks["ready"]
        fields["more"] = tasks["more"]
        oldest = min((at for at in (oldest, tasks["oldest"]) if at is not None), default=None)
    return Queue(
        **fields,
        oldest_ready_at=oldest,
        oldest_ready_seconds=0.0 if oldest is None else (row["read_at"] - oldest).total_seconds(),
        channels=[QueueChannel(*each) for each in zip(row["channels"] or (), row["needs"] or (), strict=True)],
    )


def _without_runs(name: str) -> Queue:
    """One that has neither jobs nor limits."""
    return Queue(
        name=name, max_concurrent=None, rate_per_second=None, waiting=0, ready=0, running=0, oldest_ready_at=None,
        oldest_ready_seconds=0.0,
    )  # fmt: skip
