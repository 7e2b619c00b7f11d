"""Transports: how late runs start, how many runs end per second, and how many transactions PostgreSQL has for a run,
with schedulers and workers in processes of their own; for each broker in one run, on one database.

Beside the brokers stand PostgreSQL as the queue of the same processes, and the hand-off: one process that is
scheduler and worker, where no queue is between them. The targets do nothing. Each column has the same two loads: jobs
that tick at a steady rate, of which the second period counts, and as many jobs as given that are due at one instant.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from detent.devtools.bench.broker_servers import serving
from detent.devtools.bench.database import Herd
from detent.devtools.bench.latency import percentile
from detent.devtools.bench.node_apart import ApartFigures, ApartPlan, NodeApart, node_apart
from detent.devtools.bench.processes import children_seconds, process_seconds
from detent.devtools.bench.temporary import BenchDatabase, bench_database
from detent.errors import Unavailable
from detent.transports.choose import POSTGRES

HAND_OFF = "hand-off"
TRANSPORTS = (HAND_OFF, POSTGRES, "redis", "valkey", "nats", "rabbitmq", "kafka", "sqs")
# moto, the server for SQS, takes a few messages per second: at most such a rate, and so many due at one instant.
SLOW = {"sqs": (10, 200)}
PERIOD = 10
LEAD_SECONDS = 5.0
# What a transaction counts becomes visible in the statistics within a second.
STATISTICS_SECONDS = 1.2
CONCURRENCY = 2000
POLL_SECONDS = 0.05
PATIENCE_SECONDS = 300.0


@dataclass
class TransportPlan:
    rate: int
    burst: int
    workers: int = 1
    """Processes that work, beside the scheduler. The hand-off always has one process."""


@dataclass
class TransportFigures:
    """Lateness in milliseconds; CPU in microseconds of all nodes, and of PostgreSQL. `offered`: the part of the runs
    that the workers took from the broker. `workers`: how many there were."""

    name: str
    workers: int
    rate: int
    runs: int
    p50: float
    p99: float
    largest: float
    transactions_per_run: float
    burst: int
    burst_per_second: float
    node_microseconds: float
    server_microseconds: float
    offered: float
    fallbacks: int


@dataclass
class TransportsResult:
    columns: list[TransportFigures]
    missing: list[str]
    """Brokers that are not installed."""
    behind: dict[str, str] = field(default_factory=dict)
    """Queues that could not keep up with the rate, which says nothing of the others."""


class FellBehind(Unavailable):
    """A queue runs fewer jobs than come due."""


async def bench_transports(
    names: Sequence[str], plan: TransportPlan, progress: Callable[[int], None]
) -> TransportsResult:
    result = TransportsResult([], [])
    async with bench_database() as at:
        for number, name in enumerate(names, 1):
            async with _queue(name) as queue:
                if queue is None:
                    result.missing.append(name)
                else:
                    try:
                        result.columns.append(await _measured(at, name, queue, plan))
                    except FellBehind as behind:
                        result.behind[name] = str(behind)
            progress(number)
    return result


@asynccontextmanager
async def _queue(name: str) -> AsyncIterator[str | None]:
    """The address of the queue; None: the broker is not installed."""
    if name in (HAND_OFF, POSTGRES):
        yield POSTGRES
        return
    async with serving(name) as url:
        yield url


async def _measured(at: BenchDatabase, name: str, queue: str, plan: TransportPlan) -> TransportFigures:
    most_rate, most_burst = SLOW.get(name, (plan.rate, plan.burst))
    rate, burst = min(plan.rate, most_rate), min(plan.burst, most_burst)
    roles = [("scheduler", "worker")] if name == HAND_OFF else [("scheduler",), *[("worker",)] * plan.workers]
    async with AsyncExitStack() as stack:
        nodes = [
            await stack.enter_async_context(node_apart(ApartPlan(at.url, each, queue, CONCURRENCY))) for each in roles
        ]
        column = await _steady(at, name, nodes, rate)
        column.burst, column.burst_per_second = burst, await _burst(at, nodes, burst)
        column.workers = max(len(nodes) - 1, 1)
        last = await _of_all(nodes, 0.0, 0.0)
        ended = rate * PERIOD * 2 + burst
        column.offered, column.fallbacks = last.offers_taken / ended, last.fallbacks
    return column


async def _steady(at: BenchDatabase, name: str, nodes: Sequence[NodeApart], rate: int) -> TransportFigures:
    herd = await at.bench.make_due(rate * PERIOD, LEAD_SECONDS, f"every {PERIOD}s", PERIOD)
    await nodes[0].load()
    await _sleep_until(herd.due.timestamp() + PERIOD + STATISTICS_SECONDS)
    before = await _Counters.read(at, nodes)
    await asyncio.sleep(PERIOD)
    after = await _Counters.read(at, nodes)
    await at.bench.end(herd)
    since = herd.due.timestamp() + PERIOD
    late = (await _of_all(nodes, since, since + PERIOD)).late
    runs = len(late)
    if runs < rate * PERIOD * 0.9:
        raise FellBehind(f"of {rate * PERIOD:,} runs {runs:,} were called in time")
    return TransportFigures(
        name, 1, rate, runs, percentile(late, 0.5), percentile(late, 0.99), late[-1],
        transactions_per_run=(after.transactions - before.transactions) / runs,
        node_microseconds=(after.nodes - before.nodes) / runs * 1e6,
        server_microseconds=(after.server - before.server) / runs * 1e6,
        burst=0, burst_per_second=0.0, offered=0.0, fallbacks=0,
    )  # fmt: skip


async def _of_all(nodes: Sequence[NodeApart], since: float, until: float) -> ApartFigures:
    """What all nodes have recorded, as if they were one. A scheduler alone has called nothing and lost the broker by
    itself: its losses do not count."""
    found = [await node.figures(since, until) for node in nodes]
    late = sorted(each for figures in found for each in figures.late)
    fallbacks = max(figures.fallbacks for figures in (found[1:] or found))
    return ApartFigures(late, sum(figures.offers_taken for figures in found), fallbacks)


async def _burst(at: BenchDatabase, nodes: Sequence[NodeApart], jobs: int) -> float:
    """Runs that ended per second, from the instant at which all are due."""
    herd: Herd = await at.bench.make_due(jobs, LEAD_SECONDS)
    due = herd.due.timestamp()
    await nodes[0].load()
    await _sleep_until(due)
    while await at.bench.succeeded(herd.due) < jobs:
        if time.time() > due + PATIENCE_SECONDS:
            raise Unavailable(f"Not all of {jobs:,} runs ended within {PATIENCE_SECONDS:.0f} s.")
        await asyncio.sleep(POLL_SECONDS)
    seconds = time.time() - due
    await at.bench.end(herd)
    return jobs / seconds


@dataclass
class _Counters:
    """Transactions of the database, and CPU seconds of the nodes and of PostgreSQL."""

    transactions: int
    nodes: float
    server: float

    @classmethod
    async def read(cls, at: BenchDatabase, nodes: Sequence[NodeApart]) -> _Counters:
        ours = sum(process_seconds(node.pid) for node in nodes)
        return cls(await at.bench.transactions(), ours, children_seconds(at.postmaster))


async def _sleep_until(moment: float) -> None:
    """On the machine's clock, which is also the database's."""
    await asyncio.sleep(max(0.0, moment - time.time()))


def as_table(result: TransportsResult) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        ("queue", "workers", "at", "late p50", "p99", "latest", "transactions per run", "CPU of nodes", "of PostgreSQL",
         "due at one instant", "runs/s", "through the broker"),
    ]  # fmt: skip
    for each in result.columns:
        offered = "" if each.name in (HAND_OFF, POSTGRES) else f"{min(each.offered, 1.0):.0%}"
        rows.append(
            (
                each.name,
                str(each.workers),
                f"{each.rate:,}/s",
                f"{each.p50:.1f} ms",
                f"{each.p99:.1f} ms",
                f"{each.largest:.1f} ms",
                f"{each.transactions_per_run:.3f}",
                f"{each.node_microseconds:.0f} µs",
                f"{each.server_microseconds:.0f} µs",
                f"{each.burst:,}",
                f"{each.burst_per_second:,.0f}",
                offered + (f", {each.fallbacks} times away" if each.fallbacks else ""),
            )
        )
    for name, why in result.behind.items():
        rows.append((f"{name} fell behind: {why}; give a lower --rate",))
    if result.missing:
        rows.append((f"not installed: {', '.join(result.missing)}",))
    return rows
