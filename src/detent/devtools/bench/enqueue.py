"""On-demand runs: how quickly they are enqueued, how many a worker runs per second, and how late they start.

`make bench-enqueue-peers` measures the same columns of other queues, beside these.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import NamedTuple

from detent.devtools.bench.enqueue_calls import TASK
from detent.devtools.bench.enqueue_columns import COLUMNS, EnqueueClient, EnqueueColumn, measure_column
from detent.devtools.bench.enqueue_load import DrainResult, LatenessBench, StartLateness, measure_drain
from detent.devtools.bench.enqueue_tasks import BenchTasks
from detent.devtools.bench.temporary import BenchDatabase, bench_database
from detent.errors import Unavailable

P50_GOAL_MS = 5.0
P99_GOAL_MS = 20.0


class EnqueuePlan(NamedTuple):
    """`seconds` is that of one column in one round; `steady_seconds` that of one measurement of lateness."""

    rounds: int = 5
    seconds: float = 1.5
    pending: int = 1_000_000
    delayed: int = 100_000
    steady_seconds: float = 10.0
    rate: int = 1000
    other_rate: int = 100
    tasks: int = 5000
    runs_per_task: int = 50
    hot: int = 30_000
    other_keys: int = 20_000
    paused: int = 1_000_000

    @property
    def steps(self) -> int:
        """What the progress counts to: columns that are measured, and runs that are enqueued or end."""
        return self.rounds * len(COLUMNS) + 2 * self.pending + self.paused


@dataclass
class ColumnRates:
    name: str
    title: str
    per_second: list[float] = field(default_factory=list)
    wal_bytes_per_run: list[float] = field(default_factory=list)


@dataclass
class EnqueueResult:
    columns: list[ColumnRates]
    drain: DrainResult
    lateness: list[StartLateness]


async def bench_enqueue(plan: EnqueuePlan, progress: Callable[[int], None]) -> EnqueueResult:
    async with bench_database() as at:
        tasks = BenchTasks(at.store)
        columns = await _measure_columns(at, tasks, plan, progress)
        done = plan.rounds * len(COLUMNS)
        drain = await measure_drain(at, tasks, plan.pending, plan.delayed, partial(_shifted, progress, done))
        done += 2 * plan.pending
        bench = LatenessBench(at, tasks, plan.steady_seconds)
        lateness = [
            await bench.alone(plan.rate),
            await bench.alone(plan.other_rate),
            *await bench.beside_tasks(plan.tasks, plan.runs_per_task, plan.other_rate),
            await bench.beside_hot_key(plan.hot, plan.other_keys, plan.other_rate),
            await bench.beside_paused(plan.paused, plan.other_rate, partial(_shifted, progress, done)),
        ]
    return EnqueueResult(columns, drain, lateness)


def _shifted(progress: Callable[[int], None], by: int, done: int) -> None:
    progress(by + done)


async def _measure_columns(
    at: BenchDatabase, tasks: BenchTasks, plan: EnqueuePlan, progress: Callable[[int], None]
) -> list[ColumnRates]:
    """No worker runs meanwhile. Each measurement begins with empty tables."""
    await tasks.make([TASK])
    await tasks.make_orders()
    found = {column: ColumnRates(column.name, column.title) for column in COLUMNS}
    async with tasks.clients(max(column.connections for column in COLUMNS)) as clients:
        for number in range(plan.rounds * len(COLUMNS)):
            column = COLUMNS[number % len(COLUMNS)]
            await _measure_once(at, tasks, column, clients, plan.seconds, found[column])
            progress(number + 1)
    await tasks.forget()
    return list(found.values())


async def _measure_once(
    at: BenchDatabase,
    tasks: BenchTasks,
    column: EnqueueColumn,
    clients: list[EnqueueClient],
    seconds: float,
    found: ColumnRates,
) -> None:
    await tasks.forget()
    await tasks.checkpoint()
    position = await at.bench.wal_position()
    rate = await measure_column(column, clients, seconds)
    written = await at.bench.wal_since(position)
    runs = rate.calls * column.runs_per_call
    waiting = await tasks.waiting()
    if waiting != (runs if column.enqueues else 0):
        raise Unavailable(f"{column.title}: {rate.calls:,} calls have left {waiting:,} waiting runs.")
    found.per_second.append(rate.per_second)
    found.wal_bytes_per_run.append(written / runs)


def as_table(result: EnqueueResult) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("enqueue", "per second", "lowest", "highest", "WAL each")]
    rows += [_column_cells(each) for each in result.columns]
    rows += [("",), *_drain_rows(result.drain), ("",)]
    rows.append(("lateness beside", "runs", "p50", "p99", "latest", "others meanwhile"))
    rows += [_lateness_cells(each) for each in result.lateness]
    first = result.lateness[0]
    rows.append((f"goals at {first.rate:,}/s: p50 {P50_GOAL_MS:g} ms, p99 {P99_GOAL_MS:g} ms",))
    return rows


def _column_cells(found: ColumnRates) -> tuple[str, ...]:
    rates = found.per_second
    cells = (f"{rate:,.0f}" for rate in (median(rates), min(rates), max(rates)))
    return (found.title, *cells, f"{median(found.wal_bytes_per_run):,.0f} B")


def _drain_rows(drain: DrainResult) -> list[tuple[str, ...]]:
    cpu = f"{drain.our_microseconds_per_run:.0f} µs, server's {drain.server_microseconds_per_run:.0f} µs"
    return [
        ("runs of one task that wait / delayed", f"{drain.pending:,} / {drain.delayed:,}"),
        ("claim and settle per second, one worker", f"{drain.runs_per_second:,.0f}"),
        (
            "WAL per enqueue / claim and settle",
            f"{drain.wal_bytes_per_enqueue:,.0f} / {drain.wal_bytes_per_run:,.0f} B",
        ),
        ("CPU per run: ours", cpu),
    ]


def _lateness_cells(late: StartLateness) -> tuple[str, ...]:
    return (
        f"{late.situation}, {late.reached_rate:,.0f}/s",
        f"{late.runs:,}",
        f"{late.p50:.1f} ms",
        f"{late.p99:.1f} ms",
        f"{late.largest:.1f} ms",
        f"{late.others_per_second:,.0f}/s",
    )
