"""What a worker does with on-demand runs: how many it runs per second while very many wait, and how late others start.

The worker is that of `detent bench loop`: a session in this process, with a target that does nothing. The runs whose
lateness is measured are enqueued by another process, at a steady rate.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from detent.devtools.bench.enqueue_tasks import BenchTasks
from detent.devtools.bench.enqueuer import STEADY_NUMBER, SteadyLoad, enqueued_by, steady_enqueuer
from detent.devtools.bench.latency import percentile
from detent.devtools.bench.loop import Loaded, loaded
from detent.devtools.bench.temporary import BenchDatabase, Meter
from detent.domain.run import Call, Outcome, Succeeded
from detent.errors import Unavailable
from detent.runtime.clock import monotonic

CONCURRENCY = 100
# The first runs of a session pay for its start, and are not counted.
WARM_UP_SHARE = 0.02
WARM_UP_SECONDS = 1.0
PATIENCE_SECONDS = 300.0
POLL_SECONDS = 0.02
DAY = 86_400
KEY_LIMIT = 2
URGENT = 50


@dataclass
class DrainResult:
    """`runs_per_second`: claimed, called, settled and recorded. WAL is that of one run."""

    pending: int
    delayed: int
    runs_per_second: float
    wal_bytes_per_enqueue: float
    wal_bytes_per_run: float
    our_microseconds_per_run: float
    server_microseconds_per_run: float


@dataclass
class StartLateness:
    """How late the runs of a steady load started, in milliseconds. `others_per_second`: runs that ended meanwhile."""

    situation: str
    rate: int
    reached_rate: float
    runs: int
    p50: float
    p99: float
    largest: float
    others_per_second: float


class StartRecorder:
    """A target that records how late the runs of the steady load start."""

    def __init__(self) -> None:
        self.late: dict[int, float] = {}

    async def __call__(self, call: Call) -> Outcome:
        if (number := call.payload.get(STEADY_NUMBER)) is not None:
            self.late[number] = time.time() - call.scheduled_at.timestamp()
        return Succeeded()


async def measure_drain(
    at: BenchDatabase, tasks: BenchTasks, pending: int, delayed: int, progress: Callable[[int], None]
) -> DrainResult:
    """One worker, while `pending` runs of one task are due and `delayed` ones are not."""
    name = "bench-drained"
    await tasks.make([name])
    began = await at.bench.wal_position()
    await tasks.fill(name, pending, progress)
    enqueued = await at.bench.wal_since(began)
    await tasks.fill(name, delayed, lambda _: None, delay_seconds=DAY)
    await tasks.settle_down()
    async with loaded(at, CONCURRENCY) as node:
        await node.until_ended(int(pending * WARM_UP_SHARE), lambda _: None)
        first, meter = node.ended, Meter(at)
        await meter.start()
        await node.until_ended(pending, lambda done: progress(pending + done))
        cost = await meter.read()
    if (waiting := await tasks.waiting()) != delayed:
        raise Unavailable(f"{waiting:,} runs wait, where {delayed:,} are delayed.")
    await tasks.forget()
    runs = max(pending - first, 1)
    return DrainResult(
        pending=pending,
        delayed=delayed,
        runs_per_second=runs / cost.seconds,
        wal_bytes_per_enqueue=enqueued / pending,
        wal_bytes_per_run=cost.wal / runs,
        our_microseconds_per_run=cost.ours / runs * 1e6,
        server_microseconds_per_run=cost.servers / runs * 1e6,
    )


class LatenessBench:
    """The lateness of a steady load beside other work."""

    def __init__(self, at: BenchDatabase, tasks: BenchTasks, seconds: float) -> None:
        self._at = at
        self._tasks = tasks
        self._seconds = seconds

    async def alone(self, rate: int) -> StartLateness:
        task = f"bench-alone-{rate}"
        await self._tasks.make([task])
        async with self._node() as (node, recorder):
            return await self._measure("nothing else waits", node, recorder, task, rate)

    async def beside_tasks(self, count: int, runs: int, rate: int) -> list[StartLateness]:
        """While many tasks have some runs each, of the same priority and of a lower one, and while their only runs are
        due tomorrow."""
        names = [f"bench-many-{number}" for number in range(count)]
        await self._tasks.make([*names, "bench-beside-many"])
        await self._tasks.make(["bench-urgent"], priority=URGENT)
        many = f"{count:,} tasks with {runs} runs each"
        found = []
        for task, situation in (("bench-beside-many", many), ("bench-urgent", f"{many}, of a lower priority")):
            await self._tasks.fill_each(names, [{}] * runs)
            found.append(await self._beside_waiting(situation, task, rate, left=0))
        await self._tasks.fill_each(names, [{"delay_seconds": DAY}])
        situation = f"{count:,} tasks with a delayed run each"
        found.append(await self._beside_waiting(situation, "bench-beside-many", rate, left=count))
        await self._tasks.forget()
        return found

    async def _beside_waiting(self, situation: str, task: str, rate: int, *, left: int) -> StartLateness:
        """Ends when no more than `left` wait."""
        await self._tasks.settle_down()
        async with self._node() as (node, recorder):
            found = await self._measure(situation, node, recorder, task, rate)
            await _until(lambda: self._left_are(left))
            return found

    async def _left_are(self, count: int) -> bool:
        return await self._tasks.waiting() == count

    async def beside_hot_key(self, hot: int, others: int, rate: int) -> StartLateness:
        """Runs of one task: of a key that has many, of as many other keys as runs, and those of the steady load."""
        task = "bench-keyed"
        await self._tasks.make([task], concurrency_limit=KEY_LIMIT)
        await self._tasks.fill_keys(task, ("hot" for _ in range(hot)))
        await self._tasks.fill_keys(task, (f"other-{number}" for number in range(others)))
        await self._tasks.settle_down()
        situation = f"{hot:,} runs of one key, {others:,} of others"
        async with self._node() as (node, recorder):
            found = await self._measure(situation, node, recorder, task, rate, keys=True)
        await self._tasks.forget()
        return found

    async def beside_paused(self, paused: int, rate: int, progress: Callable[[int], None]) -> StartLateness:
        (job, _) = await self._tasks.make(["bench-paused", "bench-beside-paused"])
        await self._tasks.pause(job)
        await self._tasks.fill("bench-paused", paused, progress)
        await self._tasks.settle_down()
        async with self._node() as (node, recorder):
            found = await self._measure(
                f"a paused task with {paused:,} runs", node, recorder, "bench-beside-paused", rate
            )
        if (waiting := await self._tasks.waiting()) != paused:
            raise Unavailable(f"{waiting:,} runs of a paused task wait, where {paused:,} were enqueued.")
        await self._tasks.forget()
        return found

    @asynccontextmanager
    async def _node(self) -> AsyncIterator[tuple[Loaded, StartRecorder]]:
        recorder = StartRecorder()
        async with loaded(self._at, CONCURRENCY, recorder) as node:
            yield node, recorder

    async def _measure(
        self, situation: str, node: Loaded, recorder: StartRecorder, task: str, rate: int, *, keys: bool = False
    ) -> StartLateness:
        recorder.late.clear()
        load = SteadyLoad(self._at.url, task, rate, WARM_UP_SECONDS + self._seconds, keys)
        began, before = monotonic(), node.ended
        async with steady_enqueuer(load) as process:
            reached = await enqueued_by(process)
        others = (node.ended - before - len(recorder.late)) / (monotonic() - began)
        await _until(lambda: _are(len(recorder.late) >= load.runs))
        first = min(int(rate * WARM_UP_SECONDS), load.runs - 1)
        late = sorted(seconds * 1000 for number, seconds in recorder.late.items() if number >= first)
        return StartLateness(
            situation=situation,
            rate=rate,
            reached_rate=reached,
            runs=len(late),
            p50=percentile(late, 0.5),
            p99=percentile(late, 0.99),
            largest=late[-1],
            others_per_second=max(others, 0.0),
        )


async def _are(condition: bool) -> bool:
    return condition


async def _until(reached: Callable[[], Awaitable[bool]]) -> None:
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await reached():  # noqa: ASYNC110 - the database has no event for it
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError as error:
        raise Unavailable(f"Runs have not started {PATIENCE_SECONDS:.0f} s after they were enqueued.") from error
