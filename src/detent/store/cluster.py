"""The cluster as people see it, and what they ask of a node."""

from __future__ import annotations

from datetime import datetime, timedelta
from time import monotonic

from detent import diagnosis
from detent.cluster_shapes import Cluster, ClusterNode, ClusterPartition, Elections, Held, Lag, TakeOver, Throughput
from detent.errors import NotFound
from detent.identity import node_name, node_number
from detent.store.db import Database, Row

MILLISECOND = timedelta(milliseconds=1)
TAKE_OVERS_SHOWN = 20
ELECTIONS_KEPT = timedelta(days=30)
COUNT_SECONDS = 1.0


class ClusterStore:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._count_next = 0.0
        self._counted = Throughput(last_10s=0, last_60s=0)

    async def look(self, *, operator: bool, throughput: bool = True) -> Cluster:
        """Nodes that are alive or not yet forgotten, from the oldest on, every partition, and how the work goes. Where
        nodes are and what other tenants do is told to an `operator` only. To count the `throughput`, what ended in the
        last minute is read."""
        nodes = [_node(row, operator) for row in await self._fetch("cluster_nodes")]
        partitions = [_partition(row) for row in await self._fetch("cluster_partitions")]
        elections = await self._elections()
        (load,) = await self._fetch("cluster_load")
        held, lag = (
            _held(load, operator),
            Lag(oldest_due_ms=_milliseconds(load["oldest_due"]), oldest_ready_ms=_milliseconds(load["oldest_ready"])),
        )
        return Cluster(
            nodes=nodes,
            partitions=partitions,
            elections=elections,
            held=held,
            lag=lag,
            throughput=await self._throughput() if operator and throughput else None,
            problems=diagnosis.problems(
                nodes, partitions, elections, held, lag, original=load["original"], aside=load["set_aside"]
            ),
        )

    async def drain(self, node: str, draining: bool) -> None:
        """Ask a node to hand over and to take nothing new, or take that back. It hears of it at its next look."""
        number = node_number(node)
        if number is None or not await self._fetch("drain", number, draining):
            raise NotFound(f"There is no node {node!r} that is alive: list the nodes to see those there are.")

    async def forget_elections(self, at: datetime | None = None) -> None:
        """`at`: the time as the caller knows it."""
        await self._fetch("forget_elections", ELECTIONS_KEPT, at)

    async def _elections(self) -> Elections:
        (row,) = await self._fetch("cluster_elections")
        recent = [
            TakeOver(at=taken["at"], node=node_name(taken["node"]), partitions=taken["partitions"])
            for taken in await self._fetch("cluster_take_overs", TAKE_OVERS_SHOWN)
        ]
        return Elections(last_hour=row["last_hour"], flapping=row["flapping"], recent=recent)

    async def _throughput(self) -> Throughput:
        """Counted at most once a second, however many look: it reads what ended in the last minute."""
        if monotonic() >= self._count_next:
            (row,) = await self._fetch("cluster_throughput")
            self._counted = Throughput(last_10s=row["last_10s"], last_60s=row["last_60s"])
            self._count_next = monotonic() + COUNT_SECONDS
        return self._counted

    async def _fetch(self, name: str, *arguments: object) -> list[Row]:
        return await self._database.fetch("people", name, *arguments)


def _node(row: Row, operator: bool) -> ClusterNode:
    return ClusterNode(
        id=node_name(row["node"]),
        state=row["state"],
        roles=row["roles"],
        host=row["host"] if operator else None,
        pid=row["pid"] if operator else None,
        address=row["address"] if operator else None,
        started_at=row["started_at"],
        heartbeat_age_ms=max(row["age"] // MILLISECOND, 0),
        lease_ms=max(row["remaining"] // MILLISECOND, 0),
        clock_offset_ms=round(row["clock_offset"] * 1000, 3),
        version=row["version"],
        tzdata=row["tzdata"],
        partitions=row["partitions"],
        running=row["running"] if operator else None,
    )


def _partition(row: Row) -> ClusterPartition:
    return ClusterPartition(
        partition=row["partition"],
        node=None if row["holder"] is None else node_name(row["holder"]),
        term=row["term"],
        age_ms=_milliseconds(row["age"]),
    )


def _held(row: Row, operator: bool) -> Held | None:
    if row["held_at"] is None:
        return None
    return Held(at=row["held_at"], by=row["held_by"] if operator else None, reason=row["held_reason"])


def _milliseconds(span: timedelta | None) -> int | None:
    return None if span is None else max(span // MILLISECOND, 0)
