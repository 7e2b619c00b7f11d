"""A runner sees whether its run is to end, or only leaves this node: what it began elsewhere ends with the run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from detent.domain.identity import RunKey
from detent.domain.run import INTERRUPTED, Call, Outcome
from detent.store import Store
from tests.session.test_session import document, finished, soon
from tests.support import factories
from tests.support.waiting import until


class HangingRunner:
    def __init__(self) -> None:
        self.calls = 0
        self.interruptions: list[tuple[Any, ...]] = []

    async def __call__(self, _call: Call) -> Outcome:
        self.calls += 1
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            self.interruptions.append(error.args)
            raise
        raise AssertionError


@pytest.fixture
def runner() -> HangingRunner:
    return HangingRunner()


async def test_a_timeout_ends_the_run(look: Any, start: Any, runner: HangingRunner) -> None:
    job = await factories.add_job(look, await soon(look), definition=document(max_retries=0, timeout_seconds=0.2))
    await start(runner)
    await finished(look, job)
    assert runner.interruptions == [(INTERRUPTED,)]


async def test_a_cancellation_ends_the_run(look: Any, start: Any, store: Store, runner: HangingRunner) -> None:
    tick = await soon(look)
    job = await factories.add_job(look, tick)
    session = await start(runner)
    await until(lambda: runner.calls, what="the call")
    await store.live_runs.cancel([RunKey(job, tick)])
    session.worker.reconciler.loop.wake()
    await finished(look, job)
    assert runner.interruptions == [(INTERRUPTED,)]


async def test_a_node_that_stops_or_is_lost_leaves_the_run_to_another_one(
    look: Any, start: Any, runner: HangingRunner
) -> None:
    await factories.add_job(look, await soon(look))
    session = await start(runner)
    await until(lambda: runner.calls, what="the call")
    await session.close(0)
    assert runner.interruptions == [()]
