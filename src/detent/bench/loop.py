"""The whole loop: ticks due at one instant are fired, called (a no-op), settled and recorded.

Everything but the target is the product: window load, wheel, fire, hand-off or claim, settle. The database is the
embedded PostgreSQL with fsync on, in a temporary folder, on the same machine.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from detent import node
from detent.clock import monotonic
from detent.model import Call, Outcome, Succeeded
from detent.session import Session
from detent.settings import Settings
from detent.store import Store
from detent.store.bench import BenchStore
from detent.store.embedded import EmbeddedServer

LEAD_SECONDS = 5.0
POLL_SECONDS = 0.1


@dataclass
class LoopResult:
    jobs: int
    seconds: float
    runs_per_second: float
    wal_bytes_per_run: float
    lateness_ms: dict[str, float]
    skipped: int


async def bench_loop(jobs: int, concurrency: int, progress: Callable[[int], None]) -> LoopResult:
    with tempfile.TemporaryDirectory(prefix="detent-bench-", ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o755)  # noqa: PTH101, S103 - the server's user has to get through when root measures
        async with EmbeddedServer(Path(folder)) as server:
            await node.prepare_database(server.url, "detent", migrate=True)
            async with node.opened_store(server.url, Settings()) as store:
                return await _measure(store, jobs, concurrency, progress)


async def _measure(store: Store, jobs: int, concurrency: int, progress: Callable[[int], None]) -> LoopResult:
    bench = BenchStore(store.database)
    settings = Settings(concurrency=concurrency)
    due = await bench.make_due(jobs, LEAD_SECONDS)
    session = Session(store, settings, ("scheduler", "worker"), {"http": _no_op}, [])
    await session.open()
    try:
        await asyncio.sleep((due - session.clock.now()).total_seconds())
        wal = await bench.wal_position()
        began = monotonic()
        while (finished := await bench.finished()) < jobs:
            progress(finished)
            await asyncio.sleep(POLL_SECONDS)
        seconds = monotonic() - began
        progress(finished)
        written = await bench.wal_since(wal)
    finally:
        await session.close(1)
    figures = await bench.figures()
    return LoopResult(jobs, seconds, jobs / seconds, written / jobs, figures.lateness_ms, figures.skipped)


async def _no_op(_call: Call) -> Outcome:
    return Succeeded()


def as_table(result: LoopResult) -> list[tuple[str, str]]:
    late: dict[str, Any] = result.lateness_ms
    return [
        ("ticks due at one instant", f"{result.jobs:,}"),
        ("drained in", f"{result.seconds:.2f} s"),
        ("runs per second", f"{result.runs_per_second:,.0f}"),
        ("WAL per run", f"{result.wal_bytes_per_run:,.0f} bytes"),
        ("start lateness p50 / p99 / max", f"{late['p50']:.0f} / {late['p99']:.0f} / {late['max']:.0f} ms"),
        ("skipped", str(result.skipped)),
    ]
