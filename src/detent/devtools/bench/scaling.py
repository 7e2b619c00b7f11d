"""Scaling: runs per second of one, two and three nodes, and of schedulers and workers apart, on one database.

Each cluster gets the same herd, due at one instant, in rounds that take turns. The nodes are processes of their own
with default settings and a target that does nothing. Nodes and PostgreSQL share the machine, so more nodes are faster
only while it has idle cores; the CPU of PostgreSQL for each run says how many runs one of its cores carries.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from detent.devtools.bench.node_apart import ApartPlan, NodeApart, node_apart
from detent.devtools.bench.processes import children_seconds, process_seconds
from detent.devtools.bench.temporary import BenchDatabase, bench_database
from detent.errors import Unavailable
from detent.runtime.clock import monotonic
from detent.settings.settings import Settings
from detent.transports.choose import POSTGRES

BOTH, SCHEDULER, WORKER = ("scheduler", "worker"), ("scheduler",), ("worker",)
CLUSTERS: Mapping[str, Sequence[tuple[str, ...]]] = {
    "1 node": (BOTH,),
    "2 nodes": (BOTH, BOTH),
    "3 nodes": (BOTH, BOTH, BOTH),
    "1 scheduler, 1 worker": (SCHEDULER, WORKER),
    "1 scheduler, 2 workers": (SCHEDULER, WORKER, WORKER),
    "2 schedulers, 2 workers": (SCHEDULER, SCHEDULER, WORKER, WORKER),
}
PARTITIONS = 256
MOST_LED = 1.4
LEAD_SECONDS = 6.0
POLL_SECONDS = 0.02
PATIENCE_SECONDS = 300.0


@dataclass(frozen=True)
class ScalingRound:
    """CPU in microseconds for each run, of all nodes and of PostgreSQL; `server_cores`: the cores that PostgreSQL
    used."""

    runs_per_second: float
    node_microseconds: float
    server_microseconds: float
    server_cores: float


@dataclass
class ScalingCluster:
    name: str
    rounds: list[ScalingRound] = field(default_factory=list)

    def median(self, name: str) -> float:
        return float(median(getattr(each, name) for each in self.rounds))


@dataclass
class ScalingResult:
    jobs: int
    clusters: list[ScalingCluster]

    def as_document(self) -> dict[str, Any]:
        return asdict(self)


async def bench_scaling(jobs: int, rounds: int, progress: Callable[[int], None]) -> ScalingResult:
    result = ScalingResult(jobs, [ScalingCluster(name) for name in CLUSTERS])
    done = 0
    async with bench_database() as at:
        for number in range(rounds):
            first = number % len(result.clusters)
            for cluster in result.clusters[first:] + result.clusters[:first]:
                cluster.rounds.append(await _round(at, CLUSTERS[cluster.name], jobs))
                done += 1
                progress(done)
    return result


async def _round(at: BenchDatabase, roles: Sequence[tuple[str, ...]], jobs: int) -> ScalingRound:
    slots = Settings().concurrency
    async with AsyncExitStack() as stack:
        nodes = [
            await stack.enter_async_context(node_apart(ApartPlan(at.url, each, POSTGRES, slots))) for each in roles
        ]
        schedulers = [node for node, each in zip(nodes, roles, strict=True) if "scheduler" in each]
        workers = [node for node, each in zip(nodes, roles, strict=True) if "worker" in each]
        await _shared_out(at, len(schedulers))
        herd = await at.bench.make_due(jobs, LEAD_SECONDS)
        for node in schedulers:
            await node.load()
        await asyncio.sleep(max(0.0, herd.due.timestamp() - time.time()))
        found = await _drain(at, nodes, workers, jobs)
        if await at.bench.succeeded(herd.due) != jobs:
            raise Unavailable(f"Not all of {jobs:,} runs are on record as succeeded.")
        await at.bench.end(herd)
    return found


async def _shared_out(at: BenchDatabase, schedulers: int) -> None:
    """Wait until each scheduler leads about its share of the partitions, which hashes decide."""
    give_up = monotonic() + PATIENCE_SECONDS
    while True:
        led = await at.bench.partitions_led()
        if len(led) == schedulers and sum(led) == PARTITIONS and max(led) <= MOST_LED * PARTITIONS / schedulers:
            return
        if monotonic() > give_up:
            raise Unavailable(f"The partitions are not shared out among {schedulers} schedulers: {led}.")
        await asyncio.sleep(POLL_SECONDS * 5)


async def _drain(
    at: BenchDatabase, nodes: Sequence[NodeApart], workers: Sequence[NodeApart], jobs: int
) -> ScalingRound:
    cpu, server, began = _nodes_seconds(nodes), children_seconds(at.postmaster), monotonic()
    while sum([await worker.ended() for worker in workers]) < jobs:
        if monotonic() > began + PATIENCE_SECONDS:
            raise Unavailable(f"Not all of {jobs:,} runs ended within {PATIENCE_SECONDS:.0f} s.")
        await asyncio.sleep(POLL_SECONDS)
    seconds = monotonic() - began
    served = children_seconds(at.postmaster) - server
    return ScalingRound(
        runs_per_second=jobs / seconds,
        node_microseconds=(_nodes_seconds(nodes) - cpu) / jobs * 1e6,
        server_microseconds=served / jobs * 1e6,
        server_cores=served / seconds,
    )


def _nodes_seconds(nodes: Sequence[NodeApart]) -> float:
    return sum(process_seconds(node.pid) for node in nodes)


def as_table(result: ScalingResult) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        (
            "cluster",
            "runs/s",
            "lowest",
            "highest",
            "CPU of nodes",
            "of PostgreSQL",
            "its cores",
            "runs/s per core of it",
        )
    ]
    for each in result.clusters:
        rates = [found.runs_per_second for found in each.rounds]
        server = each.median("server_microseconds")
        rows.append(
            (
                each.name,
                f"{median(rates):,.0f}",
                f"{min(rates):,.0f}",
                f"{max(rates):,.0f}",
                f"{each.median('node_microseconds'):.0f} µs",
                f"{server:.0f} µs",
                f"{each.median('server_cores'):.2f}",
                f"{1e6 / server:,.0f}" if server else "",
            )
        )
    rows.append((f"{result.jobs:,} ticks due at one instant, median of {len(result.clusters[0].rounds)} rounds",))
    return rows
