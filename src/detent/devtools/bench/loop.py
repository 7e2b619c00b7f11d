"""The whole loop: ticks due at one instant are fired, called (a no-op), settled and recorded.

Everything but the target is the product: window load, wheel, fire, hand-off or claim, settle. In each round, plain
statements also make the same row writes for the same number of jobs on the same server: the raw limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from functools import partial
from statistics import median
from typing import Any, NamedTuple
from uuid import UUID

from detent.devtools.bench.database import FAR_AWAY, Herd
from detent.devtools.bench.temporary import BenchDatabase, Cost, Meter, bench_database
from detent.domain.job import TargetKind
from detent.domain.run import Call, Outcome, Succeeded
from detent.errors import Unavailable
from detent.node.session import Session
from detent.runtime.clock import monotonic
from detent.settings.settings import Settings
from detent.telemetry.metrics import Metrics
from detent.worker.execute import Runner

LEAD_SECONDS = 5.0
HISTORY_JOBS = 10_000
PAGES = 20
POLL_SECONDS = 0.02


@dataclass
class Round:
    runs_per_second: float
    raw_per_second: float
    ratio: float
    wal_bytes_per_run: float
    raw_wal_bytes_per_run: float
    our_microseconds_per_run: float
    server_microseconds_per_run: float
    raw_server_microseconds_per_run: float
    lateness_ms: dict[str, float]


@dataclass
class LoopResult:
    jobs: int
    rounds: list[Round] = field(default_factory=list)
    before: list[Round] = field(default_factory=list)
    """Without the long history that the rounds have."""
    page_ms: float | None = None

    def median(self, name: str) -> float:
        return float(median(getattr(each, name) for each in self.rounds))

    @property
    def kept(self) -> float | None:
        """The speed with the history, as a fraction of the speed without it."""
        if not self.before:
            return None
        return self.median("runs_per_second") / median(each.runs_per_second for each in self.before)

    def as_document(self) -> dict[str, Any]:
        names = [name for name in asdict(self.rounds[0]) if name != "lateness_ms"]
        return {
            "jobs": self.jobs,
            "page_ms": self.page_ms,
            "kept": self.kept,
            "median": {name: self.median(name) for name in names},
            "rounds": [asdict(each) for each in self.rounds],
            "before": [asdict(each) for each in self.before],
        }


class Loaded:
    """A scheduler and worker with a target that does nothing, and the number of runs that it has settled."""

    def __init__(self, at: BenchDatabase, concurrency: int, runner: Runner | None = None) -> None:
        self.metrics = Metrics()
        settings = Settings(concurrency=concurrency)
        runners: dict[TargetKind, Runner] = {"http": runner or no_op}
        self.session = Session(at.store, settings, ("scheduler", "worker"), runners, [], metrics=self.metrics)

    @property
    def ended(self) -> int:
        return sum(self.metrics.ends.values())

    async def until_due(self, herd: Herd) -> None:
        """Wait until the jobs are in the wheel and due."""
        self.session.scheduler.jobs_changed(None)
        await asyncio.sleep(max(0.0, (herd.due - self.session.clock.now()).total_seconds()))

    async def until_ended(self, count: int, progress: Callable[[int], None]) -> None:
        while self.ended < count:
            progress(self.ended)
            await asyncio.sleep(POLL_SECONDS)
        progress(self.ended)


@asynccontextmanager
async def loaded(at: BenchDatabase, concurrency: int, runner: Runner | None = None) -> AsyncIterator[Loaded]:
    node = Loaded(at, concurrency, runner)
    await node.session.open()
    try:
        yield node
    finally:
        await node.session.close(1)


async def no_op(_call: Call) -> Outcome:
    return Succeeded()


class LoopPlan(NamedTuple):
    """`history`: how many finished runs are recorded after rounds without them. `idle_reader`: keep a transaction
    open."""

    jobs: int
    concurrency: int
    rounds: int
    history: int = 0
    idle_reader: bool = False


async def bench_loop(plan: LoopPlan, progress: Callable[[int], None]) -> LoopResult:
    result = LoopResult(plan.jobs)
    async with bench_database() as at:
        past = await _Past.of(at, plan.history) if plan.history else None
        async with loaded(at, plan.concurrency) as node, at.bench.idle_reader() if plan.idle_reader else nullcontext():
            if past is not None:
                result.before = await _rounds(at, node, plan, lambda _: None)
                result.page_ms = await past.fill(at, plan.history, progress)
            result.rounds = await _rounds(at, node, plan, partial(_shifted, progress, plan.history))
    return result


async def _rounds(at: BenchDatabase, node: Loaded, plan: LoopPlan, progress: Callable[[int], None]) -> list[Round]:
    return [
        await _round(at, node, plan.jobs, raw_first=bool(number % 2), progress=progress)
        for number in range(plan.rounds)
    ]


def _shifted(progress: Callable[[int], None], by: int, done: int) -> None:
    progress(by + done)


class _Past(NamedTuple):
    """Jobs that get a long history."""

    herd: Herd
    jobs: list[UUID]

    @classmethod
    async def of(cls, at: BenchDatabase, runs: int) -> _Past:
        herd = await at.bench.make_due(min(HISTORY_JOBS, runs), FAR_AWAY)
        jobs, _ = await at.store.jobs.list(limit=PAGES)
        return cls(herd, [job.id for job in jobs])

    async def fill(self, at: BenchDatabase, runs: int, progress: Callable[[int], None]) -> float:
        """Record past runs, vacuumed; returns how long a page of one job's runs takes."""
        async for made in at.bench.make_history(self.herd, runs):
            progress(made)
        await at.bench.settle_down()
        took = []
        for job in self.jobs:
            began = monotonic()
            await at.store.runs.list(job=job, limit=50)
            took.append((monotonic() - began) * 1000)
        return float(median(took))


async def _round(
    at: BenchDatabase, node: Loaded, jobs: int, *, raw_first: bool, progress: Callable[[int], None]
) -> Round:
    raw = await _raw(at, jobs) if raw_first else None
    herd = await at.bench.make_due(jobs, LEAD_SECONDS)
    await node.until_due(herd)
    cost = await _drain(at, node, jobs, progress)
    figures = await at.bench.figures(herd.due)
    if figures.succeeded != jobs:
        raise Unavailable(f"Of {jobs:,} runs {figures.succeeded:,} are on record as succeeded.")
    return _figures(jobs, cost, raw or await _raw(at, jobs), figures.lateness_ms)


async def _drain(at: BenchDatabase, node: Loaded, jobs: int, progress: Callable[[int], None]) -> Cost:
    meter = Meter(at)
    await meter.start()
    await node.until_ended(node.ended + jobs, progress)
    return await meter.read()


async def _raw(at: BenchDatabase, jobs: int) -> Cost:
    batches = await at.bench.prepare_raw(await at.bench.make_due(jobs, FAR_AWAY))
    meter = Meter(at)
    await meter.start()
    await at.bench.raw_loop(batches)
    return await meter.read()


def _figures(jobs: int, cost: Cost, raw: Cost, lateness_ms: dict[str, float]) -> Round:
    return Round(
        runs_per_second=jobs / cost.seconds,
        raw_per_second=jobs / raw.seconds,
        ratio=raw.seconds / cost.seconds,
        wal_bytes_per_run=cost.wal / jobs,
        raw_wal_bytes_per_run=raw.wal / jobs,
        our_microseconds_per_run=cost.ours / jobs * 1e6,
        server_microseconds_per_run=cost.servers / jobs * 1e6,
        raw_server_microseconds_per_run=raw.servers / jobs * 1e6,
        lateness_ms=lateness_ms,
    )


def as_table(result: LoopResult) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        ("round", "runs/s", "raw limit/s", "ratio", "WAL per run", "raw", "CPU per run: ours", "server's", "raw"),
    ]
    rows += [_cells(str(number), partial(getattr, each)) for number, each in enumerate(result.rounds, 1)]
    rows.append(_cells("median", result.median))
    last = result.rounds[-1].lateness_ms
    late = f"{last['p50']:,.0f} / {last['p99']:,.0f} / {last['max']:,.0f} ms"
    rows.append((f"{result.jobs:,} ticks due at one instant; last round: lateness p50 / p99 / max {late}",))
    if result.page_ms is not None:
        rows.append((f"a page of a job's runs: {result.page_ms:.1f} ms",))
    if result.kept is not None:
        without = median(each.runs_per_second for each in result.before)
        rows.append((f"without the history, just before: {without:,.0f} runs/s; it keeps {result.kept:.0%}",))
    return rows


def _cells(title: str, value: Callable[[str], float]) -> tuple[str, ...]:
    return (
        title,
        f"{value('runs_per_second'):,.0f}",
        f"{value('raw_per_second'):,.0f}",
        f"{value('ratio'):.2f}",
        f"{value('wal_bytes_per_run'):,.0f} B",
        f"{value('raw_wal_bytes_per_run'):,.0f} B",
        f"{value('our_microseconds_per_run'):.0f} µs",
        f"{value('server_microseconds_per_run'):.0f} µs",
        f"{value('raw_server_microseconds_per_run'):.0f} µs",
    )
