"""How late runs start: recurring jobs spread over time at several rates, and a burst at one instant.

The target records when it is called, on the machine's clock, which is also the database's. The first period is a
warm-up and not counted. For comparison, it measures the time to write one durable row: the lower
bound of every start.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from detent.devtools.bench.database import Herd
from detent.devtools.bench.loop import loaded
from detent.devtools.bench.temporary import BenchDatabase, bench_database
from detent.domain.run import Call, Outcome, Succeeded
from detent.runtime.clock import monotonic

PERIOD = 10
# One instant is one statement, whose duration varies by a factor of two here: the burst is measured at several.
BURST_PERIOD = 5
BURSTS = 5
LEAD_SECONDS = 3.0
COMMITS = 200
CONCURRENCY = 2000


@dataclass
class Lateness:
    """The lateness of runs at a rate, or of a burst (`rate` is None), in milliseconds."""

    rate: int | None
    runs: int
    p50: float
    p99: float
    largest: float


@dataclass
class LatencyResult:
    lateness: list[Lateness]
    commit_p50_ms: float
    commit_p99_ms: float


class LatencyRecorder:
    def __init__(self) -> None:
        self.late: list[tuple[float, float]] = []

    async def __call__(self, call: Call) -> Outcome:
        tick = call.scheduled_at.timestamp()
        self.late.append((tick, time.time() - tick))
        return Succeeded()

    def between(self, since: float, until: float) -> list[float]:
        return sorted(late * 1000 for tick, late in self.late if since <= tick < until)


async def bench_latency(rates: Sequence[int], burst: int, progress: Callable[[int], None]) -> LatencyResult:
    async with bench_database() as at:
        commits = await _commits(at)
        found = []
        for number, rate in enumerate(rates):
            found.append(await _spread(at, rate))
            progress(number + 1)
        found.append(await _burst(at, burst))
        progress(len(rates) + 1)
    return LatencyResult(found, percentile(commits, 0.5), percentile(commits, 0.99))


async def _spread(at: BenchDatabase, rate: int) -> Lateness:
    """Jobs that tick once per period, spread evenly over it."""
    recorder = LatencyRecorder()
    async with loaded(at, CONCURRENCY, recorder) as node:
        herd = await at.bench.make_due(rate * PERIOD, LEAD_SECONDS, f"every {PERIOD}s", PERIOD)
        await node.until_due(herd)
        await asyncio.sleep(2 * PERIOD + 1.0)
        await at.bench.end(herd)
    begin = herd.due.timestamp() + PERIOD
    return _lateness(rate, recorder.between(begin, begin + PERIOD))


async def _burst(at: BenchDatabase, jobs: int) -> Lateness:
    """Jobs that all tick at one instant, several times. The first tick, at which the node loads them, is left out."""
    recorder = LatencyRecorder()
    async with loaded(at, max(CONCURRENCY, jobs), recorder) as node:
        herd: Herd = await at.bench.make_due(jobs, LEAD_SECONDS, f"every {BURST_PERIOD}s")
        await node.until_due(herd)
        await asyncio.sleep(BURSTS * BURST_PERIOD + 3.0)
        await at.bench.end(herd)
    begin = herd.due.timestamp() + BURST_PERIOD
    return _lateness(None, recorder.between(begin, begin + BURSTS * BURST_PERIOD))


def _lateness(rate: int | None, late: list[float]) -> Lateness:
    return Lateness(rate, len(late), percentile(late, 0.5), percentile(late, 0.99), late[-1] if late else float("nan"))


async def _commits(at: BenchDatabase) -> list[float]:
    await at.bench.prepare_commits()
    took = []
    for number in range(COMMITS):
        began = monotonic()
        await at.bench.commit(number)
        took.append((monotonic() - began) * 1000)
    return sorted(took)


def percentile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else float("nan")


def as_table(result: LatencyResult) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("load", "runs", "p50", "p99", "latest")]
    for each in result.lateness:
        what = f"{each.rate:,}/s, spread" if each.rate is not None else f"{each.runs // BURSTS:,} at one instant"
        rows.append((what, f"{each.runs:,}", f"{each.p50:.1f} ms", f"{each.p99:.1f} ms", f"{each.largest:.1f} ms"))
    raw = f"{result.commit_p50_ms:.1f} / {result.commit_p99_ms:.1f} ms"
    return [*rows, (f"raw limit: one durable row takes p50 / p99 {raw}",)]
