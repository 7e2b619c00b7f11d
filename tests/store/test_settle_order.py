"""A settle locks runs in the order of their keys, as everyone does who locks several: so none of them can wait for each
other. By job it has no pass of its own for that; the plan that its connections get does it. A cancellation has to find
the lanes of its runs before it can lock them in that order."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from detent.domain.identity import RunKey
from detent.domain.run import Claim, HeldRun
from detent.store import Store
from tests.support.ends import ended_run, failed_run
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


def end(job: int, lane: int = 0) -> HeldRun:
    return ended_run(claim(job, lane), LONG_AGO, LONG_AGO, 1)


async def is_locked(look: Any, job: int, lane: int = 0) -> bool:
    try:
        async with look.transaction():
            await look.fetch("SELECT FROM live_runs WHERE job = $1 AND lane = $2 FOR UPDATE NOWAIT", job, lane)
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


Verb = Callable[[Store, Sequence[Claim]], Awaitable[Any]]


async def settle(store: Store, claims: Sequence[Claim]) -> Any:
    return await store.live_runs.settle(NODE, [ended_run(claim, LONG_AGO, LONG_AGO, 1) for claim in claims])


async def retry(store: Store, claims: Sequence[Claim]) -> Any:
    none = timedelta(0)
    failed = [failed_run(claim, LONG_AGO, LONG_AGO, "failed", "no", none) for claim in claims]
    return await store.live_runs.retry(NODE, failed)


async def cancel(store: Store, claims: Sequence[Claim]) -> Any:
    return await store.live_runs.cancel([claim.key for claim in claims])


async def give_back(store: Store, claims: Sequence[Claim]) -> Any:
    return await store.live_runs.give_back(NODE, claims)


async def put_off(store: Store, claims: Sequence[Claim]) -> Any:
    return await store.live_runs.put_off(NODE, [(claim, timedelta(0)) for claim in claims])


LANES = 40
VERBS: list[Verb] = [settle, retry, cancel, give_back, put_off]


@pytest.mark.parametrize("verb", VERBS)
async def test_runs_of_one_job_are_locked_in_the_order_of_their_lanes(
    look: Any, another: Any, verbs: Store, verb: Verb
) -> None:
    """Neither in that of their ticks, which is another one here, nor in that in which they are asked for."""
    claims = [claim(1, lane)._replace(scheduled_at=LONG_AGO - lane * timedelta(seconds=1)) for lane in range(LANES)]
    for each in random.sample(claims, LANES):
        await add_live_run(look, 1, each.scheduled_at, lane=each.lane, owner=NODE)
    async with another.transaction():
        await another.fetch("SELECT FROM live_runs WHERE lane = 20 FOR UPDATE")
        waiting = asyncio.ensure_future(verb(verbs, random.sample(claims, LANES)))
        await until(lambda: look.fetchval(WAITING))
        locked = [await is_locked(look, 1, lane) for lane in range(LANES)]
        assert locked == [lane <= 20 for lane in range(LANES)]
    await waiting


async def test_a_run_that_has_left_its_lane_while_its_cancellation_waited_is_not_cancelled(
    look: Any, another: Any, verbs: Store
) -> None:
    """The lane has another run by then, of a later tick."""
    await add_live_run(look, 1, owner=NODE)
    async with another.transaction():
        later = LONG_AGO + timedelta(seconds=1)
        await another.execute("UPDATE live_runs SET scheduled_at = $1", later)
        cancelling = asyncio.create_task(verbs.live_runs.cancel([claim(1).key]))
        await until(lambda: look.fetchval(WAITING))
    assert await cancelling == {}
    assert [tuple(row) for row in await look.fetch("SELECT scheduled_at, cancel FROM live_runs")] == [(later, False)]


async def test_all_who_lock_several_runs_of_one_job_do_not_wait_for_each_other(look: Any, verbs: Store) -> None:
    before = await look.fetchval(DEADLOCKS)
    claims = [claim(1, lane) for lane in range(300)]
    for number in range(ROUNDS):
        await look.execute("DELETE FROM run_history")
        await look.execute("DELETE FROM attempts")
        await look.execute("DELETE FROM live_runs")
        for each in random.sample(claims, len(claims)):
            await add_live_run(look, 1, each.scheduled_at, lane=each.lane, owner=NODE)
        chosen = [settle, settle, cancel, cancel, VERBS[number % len(VERBS)]]
        await asyncio.gather(*(verb(verbs, random.sample(claims, len(claims))) for verb in chosen))
    assert await look.fetchval(DEADLOCKS) == before
