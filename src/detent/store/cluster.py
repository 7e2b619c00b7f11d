"""Rows of the cluster: nodes, partitions, elections, load, and the hold of all ticks."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from detent.contract.cluster import ClusterHold, ClusterPartition, Elections, Lag, TakeOver, Throughput
from detent.domain.audit_event import NewEvent
from detent.domain.identity import node_name
from detent.store import sql
from detent.store.audit_log import record
from detent.store.connection import Connection
from detent.store.db import Database, PoolName, Row
from detent.store.statement import Statement
from detent.store.upkeep import RUNS_CHANNEL

MILLISECOND = timedelta(milliseconds=1)
TAKE_OVERS_SHOWN = 20
ELECTIONS_KEPT = timedelta(days=30)
FORMER_NODES_KEPT = timedelta(days=1)
FORMER_NODES_SHOWN = 50
PURGE_BATCH = 1000
# The hint that ticks are held or no longer held.
HOLD = "hold"


class ClusterLoad(NamedTuple):
    """`original`: the database is not a copy; `set_aside`: how many jobs cannot be fired."""

    hold: ClusterHold | None
    lag: Lag
    original: bool
    set_aside: int


class ClusterStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def present(self) -> list[Row]:
        """Nodes that are alive or not yet removed, the oldest first."""
        return await self._fetch(sql.node.LIST)

    async def former(self) -> list[Row]:
        """Nodes that ended within a day, the newest first."""
        return await self._fetch(sql.node.LIST_FORMER, FORMER_NODES_SHOWN)

    async def partitions(self) -> list[ClusterPartition]:
        return [_partition(row) for row in await self._fetch(sql.partition.LIST)]

    async def load(self) -> ClusterLoad:
        (row,) = await self._fetch(sql.cluster.MEASURE_LOAD)
        hold = None
        if row["held_at"] is not None:
            hold = ClusterHold(at=row["held_at"], by=row["held_by"], reason=row["held_reason"])
        lag = Lag(oldest_due_ms=_milliseconds(row["oldest_due"]), oldest_ready_ms=_milliseconds(row["oldest_ready"]))
        return ClusterLoad(hold, lag, row["original"], row["set_aside"])

    async def elections(self) -> Elections:
        (row,) = await self._fetch(sql.partition.COUNT_ELECTIONS)
        recent = [
            TakeOver(at=taken["at"], node=node_name(taken["node"]), partitions=taken["partitions"])
            for taken in await self._fetch(sql.partition.LIST_TAKE_OVERS, TAKE_OVERS_SHOWN)
        ]
        return Elections(last_hour=row["last_hour"], flapping=row["flapping"], recent=recent)

    async def throughput(self) -> Throughput:
        """Runs that ended in the last 10 and 60 seconds; it reads all runs of the last minute."""
        (row,) = await self._fetch(sql.cluster.MEASURE_THROUGHPUT)
        return Throughput(last_10s=row["last_10s"], last_60s=row["last_60s"])

    async def set_draining(self, node: int, draining: bool) -> bool:
        """Whether the node is alive. It notices with its next heartbeat."""
        event = NewEvent("node.drain" if draining else "node.resume", None, "node", node_name(node))
        return bool(await self._change(event, sql.node.DRAIN, node, draining))

    async def dismiss(self, node: int) -> bool:
        """Mark a lost node as seen by an operator; returns whether it was lost within a day."""
        event = NewEvent("node.dismiss", None, "node", node_name(node))
        return bool(await self._change(event, sql.node.DISMISS, node))

    # -- all ticks

    async def hold(self, by: str, reason: str) -> ClusterHold:
        event = NewEvent("cluster.pause", None, "cluster", after={"reason": reason})
        (row,) = await self._change(event, sql.cluster.PAUSE_ALL, by, reason)
        return ClusterHold(at=row["held_at"], by=row["held_by"], reason=row["held_reason"])

    async def end_hold(self) -> bool:
        """End the hold of all ticks; returns whether they were held."""
        event = NewEvent("cluster.resume", None, "cluster")
        return bool(await self._change(event, sql.cluster.RESUME_ALL))

    async def announce_hold(self) -> None:
        await self._fetch(sql.feed.NOTIFY, RUNS_CHANNEL, HOLD)

    async def firing_nodes(self) -> list[int]:
        return [row["node"] for row in await self._fetch(sql.node.LIST_FIRING)]

    async def wait_for_fires(self, node: int) -> None:
        """Return when the fires of a node that were in progress have ended, or raise LockTimeout."""
        await self._fetch(sql.node.WAIT_FOR_FIRES, node)

    async def purge_nodes(self, at: datetime | None = None) -> None:
        """`at`: the time of the caller's clock."""
        limit = PURGE_BATCH
        while len(await self._fetch(sql.node.PURGE_FORMER, FORMER_NODES_KEPT, at, limit)) == limit:
            pass

    async def purge_elections(self, at: datetime | None = None) -> None:
        """`at`: the time of the caller's clock."""
        await self._fetch(sql.partition.PURGE_ELECTIONS, ELECTIONS_KEPT, at)

    async def _change(self, event: NewEvent, statement: Statement, *arguments: object) -> list[Row]:
        """Run a statement that returns rows if it changed something, and record that."""

        async def work(connection: Connection) -> list[Row]:
            rows = await connection.fetch(statement.text, *arguments)
            if rows:
                await record(connection, event)
            return rows

        rows: list[Row] = await self._database.transaction(PoolName.REQUEST, work)
        return rows

    async def _fetch(self, statement: Statement, *arguments: object) -> list[Row]:
        return await self._database.fetch(PoolName.REQUEST, statement, *arguments)


def _partition(row: Row) -> ClusterPartition:
    return ClusterPartition(
        partition=row["partition"],
        node=None if row["holder"] is None else node_name(row["holder"]),
        term=row["term"],
        age_ms=_milliseconds(row["age"]),
    )


def _milliseconds(span: timedelta | None) -> int | None:
    return None if span is None else max(span // MILLISECOND, 0)
