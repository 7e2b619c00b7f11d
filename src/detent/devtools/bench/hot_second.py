"""Very many daily jobs due in one second: how long until all have run, how much memory the node needs, and how late the
ticks of other jobs are meanwhile.

First, the sustained rate of the same node is measured with a fifth of the jobs; the hot second should take little
longer than that rate suggests.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from detent.devtools.bench.database import FAR_AWAY, Herd
from detent.devtools.bench.latency import percentile
from detent.devtools.bench.loop import LEAD_SECONDS, Loaded, loaded
from detent.devtools.bench.processes import resident_bytes
from detent.devtools.bench.temporary import BenchDatabase, Meter, bench_database
from detent.domain.run import Call, Outcome, Succeeded
from detent.errors import Unavailable

# Later than a node's window, so that the jobs enter the wheel like jobs that are a day old, and not like half a million
# that were registered a moment before they are due.
HERD_LEAD_SECONDS = 75.0
LIVE_JOBS = 100
LIVE_PERIOD = 1
SAMPLE_SECONDS = 0.1


@dataclass
class HotSecondResult:
    jobs: int
    seconds: float
    runs_per_second: float
    sustained_per_second: float
    times_sustained: float
    raw_per_second: float
    ratio: float
    resident_bytes: int
    wal_bytes_per_run: float
    live_runs: int
    live_p50_ms: float
    live_p99_ms: float


class HotSecondWitness:
    """A target that records how late the runs of the other jobs are."""

    def __init__(self) -> None:
        self.live: set[str] = set()
        self.late: list[tuple[float, float]] = []

    async def __call__(self, call: Call) -> Outcome:
        if call.job in self.live:
            tick = call.scheduled_at.timestamp()
            self.late.append((tick, time.time() - tick))
        return Succeeded()


async def bench_hot_second(jobs: int, concurrency: int, progress: Callable[[int], None]) -> HotSecondResult:
    witness = HotSecondWitness()
    async with bench_database() as at, loaded(at, concurrency, witness) as node:
        sustained = await _rate(at, node, max(jobs // 5, 1))
        raw = await _raw_rate(at, max(jobs // 5, 1))
        live = await at.bench.make_due(LIVE_JOBS, 1.0, f"every {LIVE_PERIOD}s")
        witness.live = {f"bench-{number}" for number in range(live.first, live.last + 1)}
        herd = await at.bench.make_due(jobs, HERD_LEAD_SECONDS, "every 1d")
        await node.until_due(herd)
        meter = Meter(at)
        await meter.start()
        largest = await _drain(at, node, herd, progress)
        cost = await meter.read()
    return _result(jobs, cost.seconds, cost.wal, sustained, raw, largest, witness, herd.due.timestamp())


def _result(
    jobs: int,
    seconds: float,
    wal: int,
    sustained: float,
    raw: float,
    largest: int,
    witness: HotSecondWitness,
    due: float,
) -> HotSecondResult:
    late = sorted(late * 1000 for tick, late in witness.late if due <= tick <= due + seconds)
    return HotSecondResult(
        jobs=jobs,
        seconds=seconds,
        runs_per_second=jobs / seconds,
        sustained_per_second=sustained,
        times_sustained=seconds / (jobs / sustained),
        raw_per_second=raw,
        ratio=jobs / seconds / raw,
        resident_bytes=largest,
        wal_bytes_per_run=wal / jobs,
        live_runs=len(late),
        live_p50_ms=percentile(late, 0.5),
        live_p99_ms=percentile(late, 0.99),
    )


async def _rate(at: BenchDatabase, node: Loaded, jobs: int) -> float:
    herd = await at.bench.make_due(jobs, LEAD_SECONDS, "every 1d")
    await node.until_due(herd)
    meter = Meter(at)
    await meter.start()
    await node.until_ended(node.ended + jobs, lambda _: None)
    return jobs / (await meter.read()).seconds


async def _raw_rate(at: BenchDatabase, jobs: int) -> float:
    batches = await at.bench.prepare_raw(await at.bench.make_due(jobs, FAR_AWAY))
    meter = Meter(at)
    await meter.start()
    await at.bench.raw_loop(batches)
    return jobs / (await meter.read()).seconds


async def _drain(at: BenchDatabase, node: Loaded, herd: Herd, progress: Callable[[int], None]) -> int:
    """Wait until every job has run; returns the largest memory of the node."""
    jobs = herd.last - herd.first + 1
    begun, largest = node.ended, 0
    while node.ended < begun + jobs or await at.bench.succeeded(herd.due) < jobs:
        progress(min(node.ended - begun, jobs))
        largest = max(largest, resident_bytes(os.getpid()))
        await asyncio.sleep(SAMPLE_SECONDS)
    figures = await at.bench.figures(herd.due)
    if figures.skipped:
        raise Unavailable(f"{figures.skipped:,} ticks were skipped.")
    return largest


def as_table(result: HotSecondResult) -> list[tuple[str, ...]]:
    return [
        ("daily jobs due in one second", f"{result.jobs:,}"),
        ("all of them had run after", f"{result.seconds:.1f} s"),
        ("runs per second", f"{result.runs_per_second:,.0f}"),
        (
            "sustained rate of the same node",
            f"{result.sustained_per_second:,.0f}/s: {result.times_sustained:.2f} times",
        ),
        ("raw limit", f"{result.raw_per_second:,.0f}/s: ratio {result.ratio:.2f}"),
        ("memory of the node, at most", f"{result.resident_bytes / 2**20:,.0f} MiB"),
        ("WAL per run", f"{result.wal_bytes_per_run:,.0f} bytes"),
        (
            f"{LIVE_JOBS} other jobs that tick every second meanwhile",
            f"{result.live_runs:,} runs, late p50 / p99 {result.live_p50_ms:,.0f} / {result.live_p99_ms:,.0f} ms",
        ),
    ]
