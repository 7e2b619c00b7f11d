"""Operations on the cluster: describe its state, drain a node, pause all ticks."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import timedelta

import msgspec

from detent.cluster import diagnosis
from detent.cluster.diagnosis import Tenure
from detent.contract.cluster import Cluster, ClusterHold, ClusterNode, FormerNode, NodeCircuit, NodeTakeOver, Throughput
from detent.domain.identity import node_name, node_number
from detent.errors import DetentError, NotFound
from detent.runtime.clock import monotonic, wall
from detent.store import Store
from detent.store.db import LockTimeout, Row

MILLISECOND = timedelta(milliseconds=1)
COUNT_SECONDS = 1.0


class ClusterOperations:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._count_next = 0.0
        self._counted = Throughput(last_10s=0, last_60s=0)

    # -- state

    async def describe(self, *, operator: bool, throughput: bool = True) -> Cluster:
        """Nodes, partitions, load and problems. Only an `operator` sees the nodes' hosts and the load of other tenants.
        Counting the `throughput` reads all runs of the last minute."""
        present = await self._store.cluster.present()
        nodes = [_node(row, operator) for row in present]
        former = await self._former(present, operator)
        partitions = await self._store.cluster.partitions()
        elections = await self._store.cluster.elections()
        hold, lag, original, set_aside = await self._store.cluster.load()
        if hold is not None and not operator:
            hold = ClusterHold(at=hold.at, by=None, reason=hold.reason)
        return Cluster(
            nodes=nodes,
            former_nodes=former,
            partitions=partitions,
            elections=elections,
            held=hold,
            lag=lag,
            throughput=await self._throughput() if operator and throughput else None,
            problems=diagnosis.problems(
                nodes,
                partitions,
                elections,
                hold,
                lag,
                now=wall(),
                former=former,
                original=original,
                aside=set_aside,
            ),
        )

    async def _former(self, present: Sequence[Row], operator: bool) -> list[FormerNode]:
        rows = await self._store.cluster.former()
        lost = [Tenure(row["node"], row["host"], row["roles"], row["seen_at"]) for row in rows if row["lost"]]
        alive = [Tenure(row["node"], row["host"], row["roles"], row["started_at"]) for row in present]
        back = diagnosis.replacements(lost, alive)
        return [_former_node(row, back.get(row["node"]), operator) for row in rows]

    async def _throughput(self) -> Throughput:
        """Counted at most once per second, and shared by all callers."""
        if monotonic() >= self._count_next:
            self._counted = await self._store.cluster.throughput()
            self._count_next = monotonic() + COUNT_SECONDS
        return self._counted

    # -- nodes

    async def drain(self, node: str, draining: bool) -> None:
        """Start or cancel draining a node: it hands over its work and takes no new work, from its next heartbeat on."""
        number = node_number(node)
        if number is None or not await self._store.cluster.set_draining(number, draining):
            raise NotFound(f"There is no live node {node!r}: list the nodes to see the existing ones.")

    async def dismiss(self, node: str) -> None:
        """Acknowledge that a node was lost: it is no longer listed as a problem."""
        number = node_number(node)
        if number is None or not await self._store.cluster.dismiss(number):
            raise NotFound(
                f"No node {node!r} was lost in the last day: `detent node list --all` lists those that were."
            )

    # -- all ticks

    async def pause_ticks(self, by: str, reason: str) -> ClusterHold:
        """Pause all ticks. After this returns no tick fires, not even one whose fire was in progress."""
        hold = await self._store.cluster.hold(by, reason)
        await self._announce()
        for node in await self._store.cluster.firing_nodes():
            with contextlib.suppress(LockTimeout):  # a transaction that holds the row this long is not a fire
                await self._store.cluster.wait_for_fires(node)
        return hold

    async def resume_ticks(self) -> bool:
        """Resume all ticks; returns whether they were paused."""
        resumed = await self._store.cluster.end_hold()
        await self._announce()
        return resumed

    async def _announce(self) -> None:
        """Best effort: otherwise nodes notice with their next heartbeat."""
        with contextlib.suppress(DetentError):
            await self._store.cluster.announce_hold()


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
        circuits=_circuits(row["circuits"]) if operator else None,
    )


def _circuits(reported: str | None) -> list[NodeCircuit]:
    return msgspec.json.decode(reported, type=list[NodeCircuit]) if reported else []


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
