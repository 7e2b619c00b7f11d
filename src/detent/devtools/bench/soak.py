"""The loop for a long time under a steady load: recurring jobs, spread over their period, with default settings of
checkpoints and vacuum. The results are the slowest stretch, and whether the tables keep their size."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from detent.devtools.bench.loop import Loaded, loaded
from detent.devtools.bench.temporary import BenchDatabase, bench_database
from detent.runtime.clock import monotonic

PERIOD = 10
LEAD_SECONDS = 5.0
STRETCH_SECONDS = 10.0


@dataclass
class Stretch:
    runs_per_second: float
    cursors_bytes: int
    live_runs_bytes: int


@dataclass
class SoakResult:
    rate: int
    skipped: int = 0
    missed: int = 0
    stretches: list[Stretch] = field(default_factory=list)


async def bench_soak(rate: int, minutes: float, concurrency: int, progress: Callable[[int], None]) -> SoakResult:
    result = SoakResult(rate)
    async with bench_database() as at, loaded(at, concurrency) as node:
        herd = await at.bench.make_due(rate * PERIOD, LEAD_SECONDS, f"every {PERIOD}s", PERIOD)
        await node.until_due(herd)
        await asyncio.sleep(2 * PERIOD)  # every job has ticked, and the tables have their working size
        for number in range(int(minutes * 60 / STRETCH_SECONDS)):
            result.stretches.append(await _stretch(at, node))
            progress(int((number + 1) * STRETCH_SECONDS))
        result.skipped, result.missed = node.metrics.overlaps, node.metrics.missed
        await at.bench.end(herd)
    return result


async def _stretch(at: BenchDatabase, node: Loaded) -> Stretch:
    began, before = monotonic(), node.ended
    await asyncio.sleep(STRETCH_SECONDS)
    rate = (node.ended - before) / (monotonic() - began)
    sizes = await at.bench.sizes()
    return Stretch(rate, sizes["cursors"], sizes["live_runs"])


def as_table(result: SoakResult) -> list[tuple[str, ...]]:
    rates = sorted(each.runs_per_second for each in result.stretches)
    first, last = result.stretches[0], result.stretches[-1]
    middle = result.stretches[len(result.stretches) // 2]
    return [
        ("ticks due in a second", f"{result.rate:,}"),
        (f"stretches of {STRETCH_SECONDS:g} s", f"{len(rates)}"),
        (
            "runs per second: slowest, median, quickest",
            f"{rates[0]:,.0f} / {rates[len(rates) // 2]:,.0f} / {rates[-1]:,.0f}",
        ),
        ("ticks skipped or missed for being behind", f"{result.skipped:,} / {result.missed:,}"),
        (
            "cursors with indexes: first, half-way, last",
            " / ".join(_size(each.cursors_bytes) for each in (first, middle, last)),
        ),
        (
            "live runs with indexes: first, half-way, last",
            " / ".join(_size(each.live_runs_bytes) for each in (first, middle, last)),
        ),
        ("largest meanwhile", _size(max(each.cursors_bytes + each.live_runs_bytes for each in result.stretches))),
    ]


def _size(count: int) -> str:
    return f"{count / 2**20:,.0f} MiB"
