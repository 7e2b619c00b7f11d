"""The fire: when a tick becomes a run, and when it does not."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest

from detent.domain.identity import MANUAL
from detent.runtime import failpoints
from detent.store import Store
from detent.store.cursors import Advance, Exceptional
from detent.store.db import LockTimeout, Rejected
from tests.support.factories import LONG_AGO, add_job, add_live_run, add_node
from tests.support.ticks import advance_of
from tests.support.waiting import until

NODE, OTHER = 11, 12
HOUR = timedelta(hours=1)
NEXT = LONG_AGO + HOUR
FIRST_TOKEN = 1 << 22 | 1
MANUAL_TICK = LONG_AGO + timedelta(minutes=1)


@pytest.fixture(autouse=True)
async def node(look: Any) -> int:
    return await add_node(look, NODE)


@pytest.fixture(params=[False, True], ids=["plain", "careful"])
def careful(request: pytest.FixtureRequest) -> bool:
    """Both ways to fire obey the same rules."""
    return bool(request.param)


def advance(job: int, tick: datetime = LONG_AGO, generation: int = 1, next_tick: datetime | None = NEXT) -> Advance:
    return advance_of(job, tick, generation, next_tick, None)


async def cursor(look: Any, job: int) -> Any:
    return await look.fetchrow("SELECT * FROM cursors WHERE job = $1", job)


async def live(look: Any, job: int) -> list[Any]:
    return list(await look.fetch("SELECT * FROM live_runs WHERE job = $1 ORDER BY lane", job))


async def skipped(look: Any, job: int) -> list[tuple[Any, ...]]:
    rows = await look.fetch("SELECT scheduled_at, reason FROM run_history WHERE job = $1 AND status = 4", job)
    return [tuple(row) for row in rows]


async def test_a_tick_becomes_a_run_and_the_cursor_moves_on(look: Any, verbs: Store, careful: bool) -> None:
    job = await add_job(look, priority=8, once=True, revision=3)
    assert await verbs.cursors.fire(NODE, 1, False, [advance(job)], careful=careful) == []
    moved = await cursor(look, job)
    assert (moved["next_tick"], moved["fire_at"], moved["last_tick"], moved["ended"]) == (NEXT, NEXT, LONG_AGO, False)
    (run,) = await live(look, job)
    assert (run["scheduled_at"], run["serial"], run["lane"], run["token"]) == (LONG_AGO, 0, 0, FIRST_TOKEN)
    assert (run["owner"], run["not_before"], run["attempt"], run["crashes"]) == (None, LONG_AGO, 1, 0)
    assert (run["priority"], run["once"], run["revision"], run["cancel"]) == (8, True, 3, False)


async def test_a_run_that_is_handed_off_is_the_nodes_own_at_once(look: Any, verbs: Store, careful: bool) -> None:
    job = await add_job(look)
    await verbs.cursors.fire(NODE, 1, True, [advance(job)], careful=careful)
    (run,) = await live(look, job)
    assert run["owner"] == NODE
    (claim,) = await verbs.live_runs.reconcile(NODE)
    assert (claim.job, claim.token) == (job, FIRST_TOKEN)


@pytest.mark.parametrize("alike", ["ticks", "generations", "nexts", "none", "all"])
async def test_what_a_batch_agrees_in_is_sent_once_and_means_the_same(look: Any, verbs: Store, alike: str) -> None:
    """Each column by itself, and the last tick of a schedule among others that have one more."""
    expected = []
    for number in range(4):
        tick = LONG_AGO + timedelta(minutes=0 if alike in ("ticks", "all") else number)
        generation = 1 if alike in ("generations", "all") else number + 1
        following = NEXT if alike in ("nexts", "all") else None if number == 2 else NEXT + number * HOUR
        job = await add_job(look, tick, generation=generation)
        expected.append(advance(job, tick, generation, following))
    assert await verbs.cursors.fire(NODE, 1, False, expected) == []
    for item in expected:
        moved = await cursor(look, item.cursor.job)
        fired, following = item.cursor.next_tick, item.next_tick
        assert (moved["last_tick"], moved["next_tick"], moved["fire_at"]) == (fired, following, following)
        assert moved["ended"] == (item.next_tick is None)
        assert [run["scheduled_at"] for run in await live(look, item.cursor.job)] == [item.cursor.next_tick]


async def test_the_last_ticks_of_several_jobs_end_them_all(look: Any, verbs: Store, careful: bool) -> None:
    jobs = [await add_job(look) for _ in range(3)]
    batch = [advance(job, next_tick=None) for job in jobs]
    assert await verbs.cursors.fire(NODE, 1, False, batch, careful=careful) == []
    assert [(await cursor(look, job))["ended"] for job in jobs] == [True] * 3


async def test_a_tick_is_never_fired_early(look: Any, verbs: Store, careful: bool) -> None:
    soon = await look.fetchval("SELECT now() + '1 minute'::interval")
    job = await add_job(look, soon)
    jittered = await add_job(look, LONG_AGO, fire_at=soon)
    batch = [advance(job, soon, next_tick=soon + HOUR), advance(jittered)]
    answer = await verbs.cursors.fire(NODE, 1, False, batch, careful=careful)
    assert {item.job: item.why for item in answer} == {job: "refused", jittered: "refused"}
    assert await look.fetchval("SELECT count(*) FROM live_runs") == 0
    assert (await cursor(look, job))["next_tick"] == soon


@pytest.mark.parametrize("change", [{"generation": 2}, {"tick": LONG_AGO - HOUR}, {"tick": NEXT}], ids=str)
async def test_a_cursor_that_is_not_as_expected_refuses(
    look: Any, verbs: Store, careful: bool, change: dict[str, Any]
) -> None:
    job = await add_job(look)
    before = await cursor(look, job)
    stale = advance(job, next_tick=NEXT + HOUR, **change)
    assert await verbs.cursors.fire(NODE, 1, True, [stale], careful=careful) == [Exceptional(job, None, "refused")]
    assert await cursor(look, job) == before
    assert await live(look, job) == []


@pytest.mark.parametrize("column", ["next_tick = NULL, fire_at = NULL", "generation = generation + 1"])
async def test_a_job_that_was_paused_or_changed_refuses(look: Any, verbs: Store, careful: bool, column: str) -> None:
    job = await add_job(look)
    await look.execute(f"UPDATE cursors SET {column} WHERE job = $1", job)
    assert [item.why for item in await verbs.cursors.fire(NODE, 1, True, [advance(job)], careful=careful)] == [
        "refused"
    ]
    assert await live(look, job) == []


async def test_an_evicted_or_unknown_node_fires_nothing(look: Any, verbs: Store, careful: bool) -> None:
    job = await add_job(look)
    await add_node(look, OTHER, evicted=True)
    for node in (OTHER, 99):
        assert [i.why for i in await verbs.cursors.fire(node, 1, True, [advance(job)], careful=careful)] == ["refused"]
    assert await live(look, job) == []
    assert (await cursor(look, job))["next_tick"] == LONG_AGO


@pytest.mark.parametrize("alike", [True, False], ids=["alike", "mixed"])
@pytest.mark.parametrize("column", ["tick", "generation"])
async def test_one_tick_refused_does_not_stop_its_neighbours(
    look: Any, verbs: Store, careful: bool, column: str, alike: bool
) -> None:
    """Mixed, every column is sent as an array, and the one that is wrong has the value of the next job."""
    ticks = [LONG_AGO + (0 if alike else n) * timedelta(minutes=1) for n in range(3)]
    generations = [1 if alike else n + 1 for n in range(3)]
    jobs = [await add_job(look, ticks[n], generation=generations[n]) for n in range(3)]
    if column == "tick":
        ticks[1] = LONG_AGO - HOUR if alike else ticks[2]
    else:
        generations[1] = 7 if alike else generations[2]
    batch = [advance(*expected) for expected in zip(jobs, ticks, generations, strict=True)]
    assert await verbs.cursors.fire(NODE, 1, True, batch, careful=careful) == [Exceptional(jobs[1], None, "refused")]
    assert [len(await live(look, job)) for job in jobs] == [1, 0, 1]


async def test_jitter_delays_the_next_fire_and_not_its_tick(look: Any, verbs: Store, careful: bool) -> None:
    job, plain = await add_job(look), await add_job(look)
    late = NEXT + timedelta(seconds=20)
    batch = [advance(job)._replace(fire_at=late), advance(plain)]
    await verbs.cursors.fire(NODE, 1, False, batch, careful=careful)
    assert (await cursor(look, job))["fire_at"] == late
    assert (await cursor(look, job))["next_tick"] == NEXT
    assert (await cursor(look, plain))["fire_at"] == NEXT


async def test_a_one_off_has_no_next_tick_and_has_come_to_its_end(look: Any, verbs: Store, careful: bool) -> None:
    job = await add_job(look)
    await verbs.cursors.fire(NODE, 1, False, [advance(job, next_tick=None)], careful=careful)
    ended = await cursor(look, job)
    assert (ended["next_tick"], ended["fire_at"], ended["ended"]) == (None, None, True)
    assert len(await live(look, job)) == 1


# --- overlap ---


async def test_a_tick_over_a_run_of_a_skip_job_is_skipped_and_in_the_ledger(
    look: Any, verbs: Store, careful: bool
) -> None:
    job = await add_job(look)
    await add_live_run(look, job, LONG_AGO - HOUR)
    assert await verbs.cursors.fire(NODE, 1, True, [advance(job)], careful=careful) == [
        Exceptional(job, None, "overlap")
    ]
    assert await skipped(look, job) == [(LONG_AGO, "overlap")]
    assert (await cursor(look, job))["next_tick"] == NEXT
    assert [run["scheduled_at"] for run in await live(look, job)] == [LONG_AGO - HOUR]


@pytest.mark.parametrize("state", [{"owner": NODE}, {"attempt": 2}, {"crashes": 1}], ids=str)
async def test_running_and_retrying_runs_occupy_their_lane_too(look: Any, verbs: Store, state: dict[str, Any]) -> None:
    job = await add_job(look)
    await add_live_run(look, job, LONG_AGO - HOUR, **state)
    assert [item.why for item in await verbs.cursors.fire(NODE, 1, True, [advance(job)])] == ["overlap"]


@pytest.mark.parametrize(("taken", "lane"), [((), 0), ((0,), 1), ((1, 2), 0), ((0, 2), 1), ((0, 1, 2), None)])
async def test_an_allow_job_takes_its_lowest_free_lane(
    look: Any, verbs: Store, careful: bool, taken: tuple[int, ...], lane: int | None
) -> None:
    job = await add_job(look, lanes=3)
    for number in taken:
        await add_live_run(look, job, LONG_AGO - (number + 1) * HOUR, lane=number)
    answer = await verbs.cursors.fire(NODE, 1, True, [advance(job)], careful=careful)
    expected = {0: [], 1: [Exceptional(job, 1, None)], None: [Exceptional(job, None, "overlap")]}[lane]
    assert answer == expected
    ours = [run["lane"] for run in await live(look, job) if run["scheduled_at"] == LONG_AGO]
    assert ours == ([] if lane is None else [lane])
    assert await skipped(look, job) == ([(LONG_AGO, "overlap")] if lane is None else [])


# --- bounded jobs ---


async def test_a_bounded_job_is_refused_by_the_plain_fire(look: Any, verbs: Store) -> None:
    job = await add_job(look, runs_left=1)
    assert [item.why for item in await verbs.cursors.fire(NODE, 1, True, [advance(job)])] == ["refused"]
    assert (await cursor(look, job))["runs_left"] == 1


async def test_each_run_of_a_bounded_job_counts_and_the_last_one_ends_it(look: Any, verbs: Store) -> None:
    job = await add_job(look, runs_left=2, lanes=5)
    await verbs.cursors.fire(NODE, 1, True, [advance(job)], careful=True)
    after_one = await cursor(look, job)
    assert (after_one["runs_left"], after_one["next_tick"], after_one["ended"]) == (1, NEXT, False)
    await verbs.cursors.fire(NODE, 1, True, [advance(job, NEXT, next_tick=NEXT + HOUR)], careful=True)
    after_two = await cursor(look, job)
    assert (after_two["runs_left"], after_two["next_tick"], after_two["fire_at"]) == (0, None, None)
    assert (after_two["ended"], after_two["last_tick"]) == (True, NEXT)
    assert len(await live(look, job)) == 2


async def test_a_skipped_tick_of_a_bounded_job_does_not_count(look: Any, verbs: Store) -> None:
    job = await add_job(look, runs_left=1)
    await add_live_run(look, job, LONG_AGO - HOUR)
    await verbs.cursors.fire(NODE, 1, True, [advance(job)], careful=True)
    after = await cursor(look, job)
    assert (after["runs_left"], after["next_tick"], after["ended"]) == (1, NEXT, False)
    assert await skipped(look, job) == [(LONG_AGO, "overlap")]


async def test_a_job_whose_last_run_is_over_is_completed(look: Any, verbs: Store) -> None:
    one_off, bounded = await add_job(look), await add_job(look, runs_left=1)
    await verbs.cursors.fire(NODE, 1, True, [advance(one_off, next_tick=None)])
    await verbs.cursors.fire(NODE, 1, True, [advance(bounded)], careful=True)
    assert await verbs.upkeep.complete_jobs() == [], "a run is still live"
    await look.execute("DELETE FROM live_runs WHERE job = $1", one_off)
    assert await verbs.upkeep.complete_jobs() == [one_off]
    await look.execute("DELETE FROM live_runs")
    assert await verbs.upkeep.complete_jobs() == [bounded]
    assert await verbs.upkeep.complete_jobs() == []
    assert await look.fetchval("SELECT bool_and(status = 'completed') FROM jobs")
    assert not await look.fetchval("SELECT bool_or(ended) FROM cursors")


async def test_a_job_that_was_deleted_before_its_last_run_ended_stays_deleted(look: Any, verbs: Store) -> None:
    job = await add_job(look, None, ended=True)
    await look.execute("UPDATE jobs SET status = 'deleted'")
    assert await verbs.upkeep.complete_jobs() == []
    assert await look.fetchval("SELECT status FROM jobs WHERE job = $1", job) == "deleted"


async def test_completion_is_limited_per_pass(look: Any, verbs: Store) -> None:
    jobs = [await add_job(look, None, ended=True) for _ in range(3)]
    assert await verbs.upkeep.complete_jobs(2) == jobs[:2]
    assert await verbs.upkeep.complete_jobs(2) == jobs[2:]


# --- waiting, and what cannot be fired ---


async def test_a_locked_cursor_ends_the_wait_and_the_careful_fire_goes_round_it(
    look: Any, verbs: Store, another: Any
) -> None:
    free, locked = await add_job(look), await add_job(look)
    async with another.transaction():
        await another.execute("SELECT FROM cursors WHERE job = $1 FOR NO KEY UPDATE", locked)
        batch = [advance(free), advance(locked)]
        with pytest.raises(LockTimeout):
            await verbs.cursors.fire(NODE, 1, True, batch)
        assert await look.fetchval("SELECT count(*) FROM live_runs") == 0, "a fire is all or nothing"
        assert await verbs.cursors.fire(NODE, 1, True, batch, careful=True) == [Exceptional(locked, None, "refused")]
    assert (await cursor(look, free))["next_tick"] == NEXT
    assert (await cursor(look, locked))["next_tick"] == LONG_AGO


async def test_a_run_that_takes_the_lane_meanwhile_ends_the_fire_and_the_careful_one_skips_the_tick(
    look: Any, verbs: Store, another: Any
) -> None:
    free, taken = await add_job(look), await add_job(look)
    batch = [advance(free), advance(taken)]
    transaction = another.transaction()
    await transaction.start()
    await add_live_run(another, taken, MANUAL_TICK, serial=MANUAL)
    firing = asyncio.create_task(verbs.cursors.fire(NODE, 1, True, batch))
    waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    await until(lambda: look.fetchval(waits))
    await transaction.commit()
    with pytest.raises(LockTimeout):
        await firing
    assert (await cursor(look, free))["next_tick"] == LONG_AGO, "a fire is all or nothing"
    assert await verbs.cursors.fire(NODE, 1, True, batch, careful=True) == [Exceptional(taken, None, "overlap")]
    assert [run["scheduled_at"] for run in await live(look, free)] == [LONG_AGO]
    assert await skipped(look, taken) == [(LONG_AGO, "overlap")]


async def test_a_fire_does_not_wait_for_an_eviction_for_ever(look: Any, verbs: Store, another: Any) -> None:
    job = await add_job(look)
    async with another.transaction():
        await another.execute("UPDATE nodes SET evicted = true WHERE node = $1", NODE)
        with pytest.raises(LockTimeout):
            await verbs.cursors.fire(NODE, 1, True, [advance(job)])
    assert [item.why for item in await verbs.cursors.fire(NODE, 1, True, [advance(job)])] == ["refused"]


async def test_a_heartbeat_under_way_does_not_hold_up_a_fire(look: Any, verbs: Store, another: Any) -> None:
    job = await add_job(look)
    async with another.transaction():
        await another.execute("UPDATE nodes SET expires_at = now() + ttl WHERE node = $1", NODE)
        assert await verbs.cursors.fire(NODE, 1, True, [advance(job)]) == []


async def test_a_next_tick_before_the_last_is_rejected_as_a_whole(look: Any, verbs: Store, careful: bool) -> None:
    good, bad = await add_job(look), await add_job(look)
    batch = [advance(good), advance(bad, next_tick=LONG_AGO - HOUR)]
    with pytest.raises(Rejected) as refusal:
        await verbs.cursors.fire(NODE, 1, True, batch, careful=careful)
    assert refusal.value.sqlstate == "23514"
    assert await look.fetchval("SELECT count(*) FROM live_runs") == 0
    assert (await cursor(look, good))["next_tick"] == LONG_AGO


async def test_a_fire_that_fails_before_its_commit_leaves_nothing(look: Any, verbs: Store) -> None:
    job = await add_job(look)
    failpoints.arm("S4=error")
    try:
        with pytest.raises(failpoints.FailpointError):
            await verbs.cursors.fire(NODE, 1, True, [advance(job)])
    finally:
        failpoints.arm("")
    assert await live(look, job) == []
    assert await verbs.cursors.fire(NODE, 1, True, [advance(job)]) == []


# --- late through no fault of their own ---


@pytest.mark.parametrize("lanes", [1, 3])
async def test_a_patient_fire_leaves_a_tick_without_a_free_lane_where_it_is(
    look: Any, verbs: Store, lanes: int
) -> None:
    full, free = await add_job(look, lanes=lanes), await add_job(look, lanes=lanes)
    for lane in range(lanes):
        await add_live_run(look, full, LONG_AGO - (lane + 1) * HOUR, lane=lane)
    answer = await verbs.cursors.fire(NODE, 1, True, [advance(full), advance(free)], patient=True)
    assert answer == [Exceptional(full, None, "refused")]
    assert (await cursor(look, full))["next_tick"] == LONG_AGO
    assert (await cursor(look, free))["next_tick"] == NEXT
    assert await skipped(look, full) == []
    await look.execute("DELETE FROM live_runs WHERE job = $1 AND lane = $2", full, lanes - 1)
    answer = await verbs.cursors.fire(NODE, 1, True, [advance(full)], patient=True)
    assert answer == ([] if lanes == 1 else [Exceptional(full, lanes - 1, None)])


async def test_a_patient_fire_counts_the_runs_of_a_bounded_job(look: Any, verbs: Store) -> None:
    job = await add_job(look, runs_left=1)
    assert await verbs.cursors.fire(NODE, 1, True, [advance(job)], patient=True) == []
    assert (await cursor(look, job))["ended"]
