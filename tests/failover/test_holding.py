"""One switch for all ticks: while they are paused nothing fires, and runs that were fired continue."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import asyncpg
import pytest

from detent.cluster.operations import ClusterOperations
from detent.domain.misfire import MissedRange
from detent.domain.run import Call, Outcome, Succeeded
from detent.jobs import JobOperations
from detent.store import Store
from detent.store.cursors import Cursor, Exceptional, Leap
from tests.failover.database_servers import Process
from tests.support.factories import LONG_AGO, add_job, add_live_run, add_node
from tests.support.ticks import advance_of
from tests.support.waiting import until

NODE = 11
HOUR = timedelta(hours=1)
FINISHED = "SELECT count(*) FROM run_history WHERE status = 1"
TICKS = "SELECT count(*) FROM runs WHERE serial = 0 AND status NOT IN ('missed', 'skipped')"


class Slow:
    """A target whose calls end when the test says so."""

    def __init__(self) -> None:
        self.called = asyncio.Event()
        self.go_on = asyncio.Event()

    async def __call__(self, _call: Call) -> Outcome:
        self.called.set()
        await self.go_on.wait()
        return Succeeded()


async def now(look: Any) -> datetime:
    moment: datetime = await look.fetchval("SELECT clock_timestamp()")
    return moment


async def test_while_all_ticks_are_held_none_fires_and_what_was_fired_runs_on(store: Store, look: Any) -> None:
    target = Slow()
    await add_job(look, await look.fetchval("SELECT date_trunc('second', now())"), every="every 1s", lanes=100)
    async with Process(store, target) as process:
        await target.called.wait()
        held = await ClusterOperations(store).pause_ticks("somebody", "the shop moves")
        fired = await look.fetchval(TICKS)
        assert (held.by, held.reason) == ("somebody", "the shop moves")
        target.go_on.set()
        await until(lambda: look.fetchval(f"SELECT ({FINISHED}) = $1", fired), 20, "what was fired to end")
        await until(lambda: look.fetchval("SELECT now() > $1", held.at + timedelta(seconds=3)), 20, "ticks to be due")
        session = process.session
        assert session is not None
        assert session.membership.trusted
        assert session.membership.held
        assert await look.fetchval(TICKS) == fired
        assert await ClusterOperations(store).resume_ticks()
        await until(lambda: look.fetchval(f"SELECT ({TICKS}) > $1::bigint + 4", fired), 20, "ticks to fire again")
    ticks = [row["scheduled_at"] for row in await look.fetch("SELECT scheduled_at FROM run_history ORDER BY 1")]
    gaps = {later - earlier for earlier, later in pairwise(ticks)}
    assert gaps == {timedelta(seconds=1)}, "those that fell into the pause fired late, each of them"


async def test_after_a_long_pause_missed_ticks_go_by_the_jobs_own_rule(store: Store, look: Any) -> None:
    await ClusterOperations(store).pause_ticks("somebody", "a long one")
    first = await look.fetchval("SELECT date_trunc('minute', now()) - interval '3 hours 30 minutes'")
    job = await add_job(look, first, every=f"{first.minute} * * * *", grace=86_400)
    async with Process(store) as process:
        await until(lambda: process.session and process.session.membership.held, 20, "the node to know")
        assert await look.fetchval("SELECT count(*) FROM runs") == 0
        await ClusterOperations(store).resume_ticks()
        await until(lambda: look.fetchval(FINISHED), 20, "the latest to run")
    rows = await look.fetch("SELECT status, ticks FROM run_history WHERE job = $1 ORDER BY scheduled_at", job)
    assert [row["status"] for row in rows].count(1) == 1
    assert sum(row["ticks"] or 1 for row in rows) == 4


async def test_a_job_can_be_triggered_while_all_ticks_are_held(store: Store, look: Any) -> None:
    await ClusterOperations(store).pause_ticks("somebody", "for a while")
    job = await add_job(look, None)
    await add_live_run(look, job, lane=1, token=1)
    async with Process(store):
        await until(lambda: look.fetchval(f"SELECT ({FINISHED}) = 1"), 20, "what waited to be claimed")
        job_id = await look.fetchval("SELECT id FROM jobs WHERE job = $1", job)
        await JobOperations(store).lifecycle.trigger(job_id)
        await until(lambda: look.fetchval(f"SELECT ({FINISHED}) = 2"), 20, "it to run")


async def test_pausing_returns_when_no_fire_is_under_way(store: Store, look: Any, database_url: str) -> None:
    await add_node(look, NODE)
    fire = await asyncpg.connect(database_url, server_settings={"search_path": "detent"})
    async with fire.transaction():
        await fire.execute("SELECT FROM nodes WHERE node = $1 AND NOT evicted FOR KEY SHARE", NODE)  # as a fire does
        pausing = asyncio.create_task(ClusterOperations(store).pause_ticks("somebody", "now"))
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%FOR UPDATE%'"
        await until(lambda: look.fetchval(waiting), 10, "it to wait for the fire")
        assert await look.fetchval("SELECT held_at IS NOT NULL FROM cluster")
        assert not pausing.done()
    await pausing
    await fire.close()


# --- the guard in the database, for a node that has not heard of it ---


@pytest.fixture
async def held(look: Any) -> None:
    await add_node(look, NODE)
    await look.execute("UPDATE cluster SET held_at = now(), held_by = 'somebody', held_reason = 'so'")


@pytest.mark.parametrize("way", ["plain", "careful", "patient"])
async def test_a_fire_is_refused_while_all_ticks_are_held(store: Store, look: Any, held: None, way: str) -> None:
    job = await add_job(look)
    batch = [advance_of(job, LONG_AGO, 1, LONG_AGO + HOUR, None)]
    flags = {"careful": way == "careful", "patient": way == "patient"}
    assert await store.cursors.fire(NODE, 1, False, batch, **flags) == [Exceptional(job, None, "refused")]
    assert await look.fetchval("SELECT next_tick FROM cursors WHERE job = $1", job) == LONG_AGO
    assert await look.fetchval("SELECT count(*) FROM runs") == 0
    await ClusterOperations(store).resume_ticks()
    assert await store.cursors.fire(NODE, 1, False, batch, **flags) == []


async def test_no_tick_is_missed_while_all_are_held(store: Store, look: Any, held: None) -> None:
    job = await add_job(look)
    (cursor,) = await store.cursors.load([job])
    assert await store.cursors.miss(NODE, [leap(cursor)]) == set()
    assert await look.fetchval("SELECT count(*) FROM run_history") == 0
    await ClusterOperations(store).resume_ticks()
    assert await store.cursors.miss(NODE, [leap(cursor)]) == {job}


def leap(cursor: Cursor) -> Leap:
    missed = (MissedRange(LONG_AGO, LONG_AGO, 1, "too_late"),)
    return Leap(cursor, LONG_AGO + HOUR, LONG_AGO + HOUR, LONG_AGO, missed, None)


async def test_pausing_again_changes_the_reason_and_not_the_time(store: Store) -> None:
    first = await ClusterOperations(store).pause_ticks("one", "first")
    second = await ClusterOperations(store).pause_ticks("other", "second")
    assert (second.at, second.by, second.reason) == (first.at, "other", "second")
    assert await ClusterOperations(store).resume_ticks()
    assert not await ClusterOperations(store).resume_ticks()
