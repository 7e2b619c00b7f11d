"""The cluster as people see it, and what they ask of a node."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from time import monotonic

from detent.cluster import diagnosis
from detent.cluster.diagnosis import Tenure
from detent.contract.cluster import (
    Cluster,
    ClusterNode,
    ClusterPartition,
    Elections,
    FormerNode,
    Held,
    Lag,
    NodeTakeOver,
    TakeOver,
    Throughput,
)
from detent.domain.identity import node_name, node_number
from detent.errors import NotFound
from detent.store import sql
from detent.store.db import Database, PoolName, Row
from detent.store.statement import Statement

MILLISECOND = timedelta(milliseconds=1)
TAKE_OVERS_SHOWN = 20
ELECTIONS_KEPT = timedelta(days=30)
FORMER_NODES_KEPT = timedelta(days=1)
FORMER_NODES_SHOWN = 50
FORGOTTEN_AT_ONCE = 1000
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
        present = await self._fetch(sql.node.LIST)
        nodes = [_node(row, operator) for row in present]
        former = await self._former(present, operator)
        partitions = [_partition(row) for row in await self._fetch(sql.partition.LIST)]
        elections = await self._elections()
        (load,) = await self._fetch(sql.cluster.MEASURE_LOAD)
        held, lag = (
            _held(load, operator),
            Lag(oldest_due_ms=_milliseconds(load["oldest_due"]), oldest_ready_ms=_milliseconds(load["oldest_ready"])),
        )
        return Cluster(
            nodes=nodes,
            former_nodes=former,
            partitions=partitions,
            elections=elections,
            held=held,
            lag=lag,
            throughput=await self._throughput() if operator and throughput else None,
            problems=diagnosis.problems(
                nodes,
                partitions,
                elections,
                held,
                lag,
                former=former,
                original=load["original"],
                aside=load["set_aside"],
            ),
        )

    async def drain(self, node: str, draining: bool) -> None:
        """Ask a node to hand over and to take nothing new, or take that back. It hears of it at its next look."""
        number = node_number(node)
        if number is None or not await self._fetch(sql.node.DRAIN, number, draining):
            raise NotFound(f"There is no node {node!r} that is alive: list the nodes to see those there are.")

    async def _former(self, present: Sequence[Row], operator: bool) -> list[FormerNode]:
        """Nodes that ended within a day, the newest first."""
        rows = await self._fetch(sql.node.LIST_FORMER, FORMER_NODES_SHOWN)
        lost = [Tenure(row["node"], row["host"], row["roles"], row["seen_at"]) for row in rows if row["lost"]]
        alive = [Tenure(row["node"], row["host"], row["roles"], row["started_at"]) for row in present]
        back = diagnosis.replacements(lost, alive)
        return [_former_node(row, back.get(row["node"]), operator) for row in rows]

    async def dismiss(self, node: str) -> None:
        """An operator has seen that the node was lost: it is no problem any more."""
        number = node_number(node)
        if number is None or not await self._fetch(sql.node.DISMISS, number):
            raise NotFound(
                f"No node {node!r} was lost in the last day: `detent node list --all` lists those that were."
            )

    async def forget_nodes(self, at: datetime | None = None) -> None:
        """`at`: the time as the caller knows it."""
        limit = FORGOTTEN_AT_ONCE
        while len(await self._fetch(sql.node.PURGE_FORMER, FORMER_NODES_KEPT, at, limit)) == limit:
            pass

    async def forget_elections(self, at: datetime | None = None) -> None:
        """`at`: the time as the caller knows it."""
        await self._fetch(sql.partition.PURGE_ELECTIONS, ELECTIONS_KEPT, at)

    async def _elections(self) -> Elections:
        (row,) = await self._fetch(sql.partition.COUNT_ELECTIONS)
        recent = [
            TakeOver(at=taken["at"], node=node_name(taken["node"]), partitions=taken["partitions"])
            for taken in await self._fetch(sql.partition.LIST_TAKE_OVERS, TAKE_OVERS_SHOWN)
        ]
        return Elections(last_hour=row["last_hour"], flapping=row["flapping"], recent=recent)

    async def _throughput(self) -> Throughput:
        """Counted at most once a second, however many look: it reads what ended in the last minute."""
        if monotonic() >= self._count_next:
            (row,) = await self._fetch(sql.cluster.MEASURE_THROUGHPUT)
            self._counted = Throughput(last_10s=row["last_10s"], last_60s=row["last_60s"])
            self._count_next = monotonic() + COUNT_SECONDS
        return self._counted

    async def _fetch(self, statement: Statement, *arguments: object) -> list[Row]:
        return await self._database.fetch(PoolName.REQUEST, statement, *arguments)


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


def _former_node(row: Row, back_as: int | None, operator: bool) -> FormerNode:
    taken = zip(row["takers"], row["taken_partitions"], row["taken_runs"], row["taken_at"], strict=True)
    return FormerNode(
        id=node_name(row["node"]),
        state="lost" if row["lost"] else "left",
        roles=row["roles"],
        host=row["host"] if operator else None,
        pid=row["pid"] if operator else None,
        address=row["address"] if operator else None,
        version=row["version"],
        tzdata=row["tzdata"],
        started_at=row["started_at"],
        last_seen_at=row["seen_at"],
        ended_at=row["ended_at"],
        partitions=row["partitions"],
        taken_over_by=[
            NodeTakeOver(node=node_name(taker), partitions=partitions, runs=runs if operator else None, at=at)
            for taker, partitions, runs, at in taken
        ],
        back_as=None if back_as is None else node_name(back_as),
        dismissed=row["dismissed"],
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
