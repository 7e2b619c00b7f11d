"""A settle locks runs in the order of their keys, as everyone does who locks several: so none of them can wait for each
other. It has no pass of its own for that; the plan that its connections get does it."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from detent.domain.identity import RunKey
from detent.domain.run import Claim
from detent.store import Store
from detent.store.settlements import Settlement
from tests.support.factories import LONG_AGO, add_live_run, add_node
from tests.support.waiting import until

NODE = 11
TOKEN = 1 << 22 | 1
ROUNDS = 20
WAITING = "SELECT count(*) FROM pg_locks WHERE NOT granted"
DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"


@pytest.fixture(autouse=True)
async def node(look: Any) -> int:
    return await add_node(look, NODE)


def claim(job: int, lane: int = 0) -> Claim:
    return Claim(job, lane, LONG_AGO + lane * timedelta(seconds=1), 0, TOKEN, 1, 1, 0, False, False, 1)


def end(job: int, lane: int = 0) -> Settlement:
    return Settlement(claim(job, lane), LONG_AGO, LONG_AGO, 1)


async def is_locked(look: Any, job: int) -> bool:
    try:
        async with look.transaction():
            await look.fetch("SELECT FROM live_runs WHERE job = $1 FOR UPDATE NOWAIT", job)
    except asyncpg.LockNotAvailableError:
        return True
    return False


async def test_a_settle_that_waits_for_a_run_has_locked_those_before_it_and_none_after_it(
    look: Any, another: Any, verbs: Store
) -> None:
    jobs = list(range(1, 200))
    for job in reversed(jobs):  # in the table the last come first
        await add_live_run(look, job, owner=NODE)
    async with another.transaction():
        await another.fetch("SELECT FROM live_runs WHERE job = 100 FOR UPDATE")
        settling = asyncio.create_task(verbs.live_runs.settle(NODE, [end(job) for job in jobs]))
        await until(lambda: look.fetchval(WAITING))
        assert [await is_locked(look, job) for job in (1, 99)] == [True, True]
        assert [await is_locked(look, job) for job in (101, 199)] == [False, False]
    assert await settling == []
    assert await look.fetchval("SELECT count(*) FROM run_history") == len(jobs)


async def test_two_settles_and_a_cancellation_of_the_same_runs_do_not_wait_for_each_other(
    look: Any, verbs: Store
) -> None:
    jobs, before = list(range(1, 301)), await look.fetchval(DEADLOCKS)
    for _ in range(ROUNDS):
        await look.execute("DELETE FROM run_history")
        await look.execute("DELETE FROM live_runs")
        random.shuffle(jobs)
        for job in jobs:
            await add_live_run(look, job, owner=NODE)
        batch = [end(job) for job in jobs]
        await asyncio.gather(
            verbs.live_runs.settle(NODE, batch),
            verbs.live_runs.settle(NODE, batch[::-1]),
            verbs.live_runs.cancel([RunKey(job, LONG_AGO) for job in jobs]),
        )
        assert await look.fetchval("SELECT count(*) FROM run_history") == len(jobs)
    assert await look.fetchval(DEADLOCKS) == before
