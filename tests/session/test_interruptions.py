"""A runner sees whether its run is to end, or only leaves this node: what it began elsewhere ends with the run."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from detent.domain.identity import RunKey
from detent.domain.run import INTERRUPTED, Call, Outcome, Succeeded
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


class MixedRunner:
    """Some of its calls wait, and the others return at once."""

    def __init__(self) -> None:
        self.waiting: set[str] = set()
        self.goes_on = asyncio.Event()

    async def __call__(self, call: Call) -> Outcome:
        if call.payload == "waits":
            self.waiting.add(call.job)
            await self.goes_on.wait()
        return Succeeded()


async def test_runs_that_wait_hold_up_none_of_those_that_were_due_with_them(look: Any, start: Any) -> None:
    tick, runner = await soon(look, 1.0), MixedRunner()
    jobs = [
        await factories.add_job(look, tick, name=f"job-{number}", definition=document(payload=kind))
        for number, kind in enumerate(["waits", "returns", "returns", "waits", *["returns"] * 120, "waits"])
    ]
    await start(runner)
    await until(lambda: len(runner.waiting) == 3, what="the calls that wait")
    await finished(look, jobs[-2])
    ended = "SELECT count(*) FROM run_history"
    await until(lambda: look.fetchval(ended + " HAVING count(*) = 122"), what="all others")
    runner.goes_on.set()
    await until(lambda: look.fetchval(ended + " HAVING count(*) = 125"), what="those that waited")


async def test_each_of_several_runs_that_wait_has_its_own_time_limit(look: Any, start: Any) -> None:
    tick, runner = await soon(look, 0.5), MixedRunner()
    limits = {
        await factories.add_job(
            look, tick, definition=document(payload=kind, max_retries=0, timeout_seconds=seconds)
        ): seconds
        for kind, seconds in [("waits", 0.8), ("returns", 0.1), ("waits", 0.2), ("returns", 60), ("waits", 60)]
    }
    await start(runner)
    rows = await finished(look, next(iter(limits)))
    assert rows[0]["finished_at"] - rows[0]["started_at"] >= timedelta(seconds=0.8)
    outcomes = await look.fetch("SELECT job, outcome FROM attempts")
    assert {row["job"]: row["outcome"] for row in outcomes} == {
        job: "timeout" for job, seconds in limits.items() if seconds in (0.8, 0.2)
    }
    runner.goes_on.set()
    await until(lambda: look.fetchval("SELECT count(*) FROM run_history HAVING count(*) = 5"), what="the others")
