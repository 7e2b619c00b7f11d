"""Python targets: runs of a function of an app, compared with the bare hand-over to the same kind of loop or threads.

Both call the same empty function, as often at once, and take turns. Bare is what asyncio has: a coroutine is started on
the loop of another thread and awaited, a plain function is called in the threads of an executor. The target also makes
the run that the handler gets, keeps its lines apart from those of other runs, has a time limit that counts from the
call, and turns what was returned into an outcome.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

from detent.devtools.bench.turns import Send, Side, TakenInTurns, figures, ratios
from detent.domain.job import PythonTarget
from detent.domain.run import Call, Succeeded
from detent.errors import Unavailable
from detent.targets.python import HandlerThread, PythonTargetRunner
from detent.targets.run import Backend, HandlerRun

THREADS = 64
"""As many as a node has for plain functions."""


@dataclass
class PythonFigures:
    kind: str
    bare: Side
    target: Side
    ratio: float
    """Medians of the rounds: of the rates, and of CPU per run."""
    cpu_ratio: float


@dataclass
class PythonResult:
    runs: int
    at_once: int
    kinds: list[PythonFigures]


async def bench_python(runs: int, at_once: int, rounds: int, progress: Callable[[int], None]) -> PythonResult:
    """`progress` counts runs of both sides and kinds: in all four times `runs` times `rounds`."""
    turns = TakenInTurns(runs, at_once, progress)
    kinds = []
    async with _target() as runner:
        for kind, bare_side in (("coroutine", _bare_loop), ("thread", _bare_threads)):
            bare, target = Side(), Side()
            async with bare_side() as send_bare:
                sides = [(send_bare, bare), (_runs(runner, kind), target)]
                for _ in range(rounds):
                    await turns.round(sides)
                    sides.reverse()
            kinds.append(PythonFigures(kind, bare, target, *ratios(target, bare)))
    return PythonResult(runs, at_once, kinds)


async def _coroutine(run: HandlerRun) -> None:
    pass


def _function(run: HandlerRun) -> None:
    pass


@asynccontextmanager
async def _target() -> AsyncIterator[PythonTargetRunner]:
    thread = HandlerThread(THREADS)
    thread.start()
    functions: dict[str, Callable[..., Any]] = {"app:coroutine": _coroutine, "app:thread": _function}
    backend = cast("Backend", None)  # nothing is asked of the node
    try:
        yield PythonTargetRunner(functions, thread, lambda call: HandlerRun(call, backend))
    finally:
        await thread.stop()


def _runs(runner: PythonTargetRunner, kind: str) -> Send:
    call = Call(
        job_id="01987f2e-0000-7000-8000-000000000001",
        job="nightly-report",
        run_id="01987f2e-4c00-7000-8000-0000000004d2",
        scheduled_at=datetime(2026, 3, 1, 6, 30, tzinfo=UTC),
        attempt=1,
        idempotency_key="nightly-report:2026-03-01T06:30:00Z",
        token=8589934593,
        payload=None,
        target=PythonTarget(f"app:{kind}"),
        timeout_seconds=300.0,
    )

    async def send() -> None:
        outcome = await runner(call)
        if not isinstance(outcome, Succeeded):
            raise Unavailable(f"A run of the measurement did not succeed: {outcome}.")

    return send


@asynccontextmanager
async def _bare_loop() -> AsyncIterator[Send]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    run = cast("HandlerRun", None)

    async def send() -> None:
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_coroutine(run), loop))

    try:
        yield send
    finally:
        loop.call_soon_threadsafe(loop.stop)
        await asyncio.to_thread(thread.join)
        loop.close()


@asynccontextmanager
async def _bare_threads() -> AsyncIterator[Send]:
    loop, run = asyncio.get_running_loop(), cast("HandlerRun", None)
    with ThreadPoolExecutor(THREADS) as pool:

        async def send() -> None:
            await loop.run_in_executor(pool, _function, run)

        yield send


def as_table(result: PythonResult) -> list[tuple[str, str]]:
    rounds = len(result.kinds[0].bare.per_second)
    lines = [("runs", f"{rounds} rounds of {result.runs:,} each, {result.at_once:,} at once")]
    for each in result.kinds:
        lines.append((f"{each.kind}: bare", figures(each.bare, "runs")))
        lines.append((f"{each.kind}: Python target", figures(each.target, "runs")))
        lines.append((f"{each.kind}: ratio", f"{each.ratio:.2f} by rate, {each.cpu_ratio:.2f} by CPU"))
    return lines
