"""The cost of registered jobs that are not due: a window of cursors, a page of jobs and a search, with ever more jobs.

Ticks are spread over a day, and each window is long enough to hold the same number of them. After the last step, plain
statements fire many jobs at one instant, and the window is loaded again before any vacuum; then a node starts cold.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from statistics import median

from detent.devtools.bench.loop import Loaded
from detent.devtools.bench.temporary import BenchDatabase, bench_database
from detent.runtime.clock import monotonic, wall
from detent.store.job_search import JobSearch

PARTITIONS = list(range(256))
WINDOW_ROWS = 500
WINDOW_LIMIT = 400
WINDOW_BEGINS = timedelta(minutes=20)
DAY = timedelta(days=1)
LOADS = 15
INSERTED_AT_ONCE = 250_000
HOT_JOBS = 100_000
FIRST, TIMES = 10_000, 10


@dataclass
class GrowthStep:
    jobs: int
    rows: int
    window_ms: float
    list_ms: float
    search_ms: float


@dataclass
class GrowthResult:
    steps: list[GrowthStep] = field(default_factory=list)
    before_hot_second_ms: float = 0.0
    after_hot_second_ms: float = 0.0
    cold_start_seconds: float = 0.0


def sizes_up_to(most: int) -> list[int]:
    """Ten times more each time."""
    sizes = [min(FIRST, most)]
    while sizes[-1] < most:
        sizes.append(min(sizes[-1] * TIMES, most))
    return sizes


async def bench_growth(most: int, progress: Callable[[int], None]) -> GrowthResult:
    result = GrowthResult()
    async with bench_database() as at:
        jobs = 0
        for size in sizes_up_to(most):
            while jobs < size:
                count = min(INSERTED_AT_ONCE, size - jobs)
                await at.bench.make_due(count, 600.0, "every 1d", DAY.total_seconds())
                jobs += count
                progress(jobs)
            await at.bench.settle_down()
            result.steps.append(await _step(at, size))
        await _hot_second(at, result)
        result.cold_start_seconds = await _cold_start(at)
    return result


class Window:
    """Cursors that fire in a time span with about the same number of ticks for every number of jobs."""

    def __init__(self, at: BenchDatabase, jobs: int) -> None:
        self._at = at
        self._lower = wall() + WINDOW_BEGINS
        self._upper = self._lower + DAY * (WINDOW_ROWS / max(jobs, WINDOW_ROWS))
        self.rows = 0

    async def load(self) -> None:
        found = await self._at.store.cursors.window(PARTITIONS, self._lower, self._upper, WINDOW_LIMIT)
        self.rows = len(found)


async def _step(at: BenchDatabase, size: int) -> GrowthStep:
    window = Window(at, size)
    search = JobSearch(prefix=f"bench-{size // 2}")
    return GrowthStep(
        jobs=size,
        window_ms=await _median(window.load),
        rows=window.rows,
        list_ms=await _median(lambda: at.store.jobs.list(limit=50)),
        search_ms=await _median(lambda: at.store.jobs.list(search, limit=50)),
    )


async def _median(work: Callable[[], Awaitable[object]]) -> float:
    took = []
    for _ in range(LOADS):
        began = monotonic()
        await work()
        took.append((monotonic() - began) * 1000)
    return median(took)


async def _hot_second(at: BenchDatabase, result: GrowthResult) -> None:
    """The load right before, and the first one right after; both have the same rows to find."""
    jobs = result.steps[-1].jobs
    batches = await at.bench.prepare_raw(await at.bench.make_due(HOT_JOBS, 600.0))
    window = Window(at, jobs)
    result.before_hot_second_ms = await _median(window.load)
    await at.bench.raw_loop(batches)
    began = monotonic()
    await window.load()
    result.after_hot_second_ms = (monotonic() - began) * 1000


async def _cold_start(at: BenchDatabase) -> float:
    """From a new process to a node that leads all partitions and has fired what is due."""
    node = Loaded(at, concurrency=100)
    await at.bench.make_due(1, 0.0)
    began = monotonic()
    await node.session.open()
    try:
        await node.until_ended(1, lambda _: None)
        return monotonic() - began
    finally:
        await node.session.close(1)


def as_table(result: GrowthResult) -> list[tuple[str, ...]]:
    first = result.steps[0]
    rows: list[tuple[str, ...]] = [
        ("jobs", "rows in the window", "window load", "times", "page of jobs", "search by name")
    ]
    rows += [
        (
            f"{step.jobs:,}",
            f"{step.rows:,}",
            f"{step.window_ms:.2f} ms",
            f"{step.window_ms / first.window_ms:.2f}",
            f"{step.list_ms:.1f} ms",
            f"{step.search_ms:.1f} ms",
        )
        for step in result.steps
    ]
    times = result.after_hot_second_ms / result.before_hot_second_ms
    before, after = result.before_hot_second_ms, result.after_hot_second_ms
    return [
        *rows,
        (f"first load after a hot second of {HOT_JOBS:,}: {after:.2f} ms, before {before:.2f} ms: {times:.2f} times",),
        (f"cold start of a node, until the first run is over: {result.cold_start_seconds:.2f} s",),
    ]
