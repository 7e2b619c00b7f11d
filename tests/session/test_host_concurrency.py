"""A limit of calls per host: runs over it use up no attempt, and do not delay the runs of other hosts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from detent.domain.job import HttpTarget, JobSpec
from detent.domain.target_access import PRIVATE_TOO
from detent.jobs import JobOperations
from detent.store import Store
from detent.targets.http import HttpTargetRunner
from detent.targets.policies import FixedPolicy
from tests.support.waiting import until
from tests.targets.target_helpers import Received, Sink, answer

RUNS = 24


@pytest.fixture
async def runner() -> AsyncIterator[HttpTargetRunner]:
    made = HttpTargetRunner(FixedPolicy(PRIVATE_TOO), host_concurrency=50)
    yield made
    await made.close()


class SlowSink(Sink):
    """Answers after 50 ms, and knows how many calls it had at the same time."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = self.most = 0
        self.answer = self._slowly
        self.hold = asyncio.Event()

    async def _slowly(self, request: Received, writer: asyncio.StreamWriter) -> None:
        self.inside += 1
        self.most = max(self.most, self.inside)
        await self.hold.wait()
        await asyncio.sleep(0.05)
        self.inside -= 1
        await answer()(request, writer)


@pytest.mark.parametrize("task", [True, False])
async def test_runs_over_the_limit_wait_in_their_queue_and_others_go_on(
    store: Store, look: Any, start: Any, runner: HttpTargetRunner, task: bool
) -> None:
    async with SlowSink() as slow, Sink() as quick:
        limited = HttpTarget(url=slow.url, host_concurrency=2)
        shape: dict[str, Any] = {} if task else {"schedule": "0 0 1 1 *", "concurrent_policy": "ALLOW"}
        jobs = JobOperations(store)
        specs = [JobSpec(name=f"slow-{n}", target=limited, **shape) for n in range(2)]
        made = await jobs.registration.add([*specs, JobSpec(name="quick", target=HttpTarget(url=quick.url))])
        await start(runner, concurrency=8)
        for number in range(RUNS):
            if task:
                await look.fetch(f"SELECT * FROM enqueue('slow-{number % 2}')")
            else:
                await jobs.lifecycle.trigger(made[number % 2].id)
        await until(lambda: slow.inside == 2, 20)
        for _ in range(20):
            await look.fetch("SELECT * FROM enqueue('quick')")
        await until(lambda: len(quick.received) == 20, 20, "the runs of the other host")
        assert slow.most == 2
        slow.hold.set()
        ended = "SELECT count(*) FROM run_history WHERE status = 1"
        await until(lambda: look.fetchval(f"{ended} HAVING count(*) = {RUNS + 20}"), 60, "all runs")
        assert slow.most == 2
        assert len(slow.received) == RUNS
        assert await look.fetchval("SELECT max(attempt) FROM run_history") == 1
        assert await look.fetchval("SELECT count(*) FROM attempts WHERE outcome <> 'succeeded'") == 0
