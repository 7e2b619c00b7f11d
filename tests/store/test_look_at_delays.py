"""Where the cursor of a fixed delay stands: by the runs that are unfinished, and by the end of the last one."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from detent.store import Store
from detent.store.cursors import DelayLook
from tests.support.factories import LONG_AGO, add_job, add_live_run, add_node

NODE = 11
DELAY, LOOK = timedelta(minutes=10), timedelta(minutes=3)
MILLISECOND = timedelta(milliseconds=1)
STANDS: tuple[dict[int, Any], set[int]] = ({}, set())
"""On its tick: it may fire."""


@pytest.fixture(autouse=True)
async def node(look: Any) -> int:
    return await add_node(look, NODE)


@pytest.fixture
async def tick(look: Any) -> datetime:
    """Where the cursor stands: due since a moment."""
    found: datetime = await look.fetchval("SELECT date_trunc('second', now())")
    return found


async def job_at(look: Any, tick: datetime, **columns: Any) -> int:
    return await add_job(look, tick, last_tick=tick - timedelta(hours=1), **columns)


def a_look(job: int, tick: datetime, *, generation: int = 1, ends_at: datetime | None = None) -> DelayLook:
    return DelayLook(job, tick, generation, DELAY, LOOK, ends_at)


async def ended(look: Any, job: int, scheduled_at: datetime, finished_at: datetime, status: int = 1) -> None:
    if status == 4:
        await look.execute(
            "INSERT INTO run_history (job, scheduled_at, finished_at, serial, revision, status, reason)"
            " VALUES ($1, $2, $3, 0, 1, 4, 'overlap')",
            job, scheduled_at, finished_at,
        )  # fmt: skip
        return
    await look.execute(
        "INSERT INTO run_history (job, scheduled_at, started_at, finished_at, serial, revision, status, token, node,"
        " attempt) VALUES ($1, $2, $2, $3, 0, 1, $4, 1 << 22 | 1, $5, 1)",
        job, scheduled_at, finished_at, status, NODE,
    )  # fmt: skip


async def cursor(look: Any, job: int) -> tuple[Any, ...]:
    return tuple(await look.fetchrow("SELECT next_tick, fire_at, ended FROM cursors WHERE job = $1", job))


@pytest.mark.parametrize(
    "columns",
    [{}, {"owner": NODE}, {"attempt": 3, "not_before": datetime.fromisoformat("2100-01-01T00:00:00Z")}, {"serial": 4}],
    ids=["pending", "running", "retrying", "by hand"],
)
async def test_while_a_run_is_unfinished_the_cursor_moves_on_by_a_look(
    look: Any, verbs: Store, tick: datetime, columns: dict[str, Any]
) -> None:
    job = await job_at(look, tick)
    await add_live_run(look, job, tick - timedelta(hours=1), **columns)
    moved, busy = await verbs.cursors.look_at_delays(NODE, [a_look(job, tick)])
    after = moved[job]
    assert not busy
    assert after is not None and after.microsecond % 1000 == 0
    assert tick + LOOK <= after <= await look.fetchval("SELECT now()") + LOOK
    assert await cursor(look, job) == (after, after, False)


@pytest.mark.parametrize("status", [1, 2, 3], ids=["succeeded", "dead", "cancelled"])
async def test_after_the_end_of_a_run_the_cursor_stands_on_that_end_and_the_delay(
    look: Any, verbs: Store, tick: datetime, status: int
) -> None:
    job = await job_at(look, tick)
    end = tick - timedelta(minutes=4, microseconds=300)
    await ended(look, job, tick - timedelta(hours=1), end, status)
    due = tick - timedelta(minutes=4) + DELAY  # rounded up to the millisecond
    assert await verbs.cursors.look_at_delays(NODE, [a_look(job, tick)]) == ({job: due}, set())
    assert await cursor(look, job) == (due, due, False)
    assert await verbs.cursors.look_at_delays(NODE, [a_look(job, due)]) == STANDS  # it is there: it may fire


async def test_a_tick_that_is_late_for_another_reason_keeps_its_time(look: Any, verbs: Store, tick: datetime) -> None:
    """No node looked for an hour: the tick is still the end and the delay, in the past."""
    job = await job_at(look, tick - timedelta(minutes=50))
    await ended(look, job, tick - timedelta(hours=1), tick - timedelta(minutes=49))
    due = tick - timedelta(minutes=39)
    seen = await verbs.cursors.look_at_delays(NODE, [a_look(job, tick - timedelta(minutes=50))])
    assert seen == ({job: due}, set())


@pytest.mark.parametrize("recorded", ["nothing", "long ago", "skipped", "before the last tick"])
async def test_a_job_whose_last_run_ended_long_enough_ago_may_fire(
    look: Any, verbs: Store, tick: datetime, recorded: str
) -> None:
    job = await job_at(look, tick)
    if recorded == "long ago":
        await ended(look, job, tick - timedelta(hours=1), tick - DELAY)
    if recorded == "skipped":
        await ended(look, job, tick - timedelta(hours=1), tick - MILLISECOND, 4)
    if recorded == "before the last tick":
        await ended(look, job, tick - timedelta(hours=2), tick - MILLISECOND)
    assert await verbs.cursors.look_at_delays(NODE, [a_look(job, tick)]) == STANDS
    assert await cursor(look, job) == (tick, tick, False)


async def test_an_end_in_the_future_counts_as_now(look: Any, verbs: Store, tick: datetime) -> None:
    job = await job_at(look, tick)
    await ended(look, job, tick - timedelta(hours=1), tick + timedelta(days=30))
    due = (await verbs.cursors.look_at_delays(NODE, [a_look(job, tick)])).moved[job]
    assert due is not None and due <= await look.fetchval("SELECT now()") + DELAY + MILLISECOND


async def test_a_tick_after_the_end_of_the_schedule_ends_the_job(look: Any, verbs: Store, tick: datetime) -> None:
    over, running, going_on = [await job_at(look, tick) for _ in range(3)]
    await ended(look, over, tick - timedelta(hours=1), tick - MILLISECOND)
    await add_live_run(look, running, tick - timedelta(hours=1))
    await ended(look, going_on, tick - timedelta(hours=1), tick)
    ends = tick + LOOK - MILLISECOND
    looks = [a_look(over, tick, ends_at=ends), a_look(running, tick, ends_at=ends)]
    later = a_look(going_on, tick, ends_at=tick + DELAY)
    seen = await verbs.cursors.look_at_delays(NODE, [later, *looks])
    assert seen == ({over: None, running: None, going_on: tick + DELAY}, set())
    assert [await cursor(look, job) for job in (over, running)] == [(None, None, True)] * 2
    assert await verbs.upkeep.complete_jobs() == [over]  # the other one has a run
    assert await look.fetchval("SELECT status FROM jobs WHERE job = $1", over) == "completed"


@pytest.mark.parametrize("changed", ["edited", "fired", "evicted", "held"])
async def test_a_cursor_that_is_not_as_it_was_read_and_a_lost_node_move_nothing(
    look: Any, verbs: Store, tick: datetime, changed: str
) -> None:
    job = await job_at(look, tick, generation=2 if changed == "edited" else 1)
    await ended(look, job, tick - timedelta(hours=1), tick)
    if changed == "evicted":
        await look.execute("UPDATE nodes SET evicted = true")
    if changed == "held":
        await look.execute("UPDATE cluster SET held_at = now(), held_reason = 'the clock', held_by = 'detent'")
    read = LONG_AGO if changed == "fired" else tick
    assert await verbs.cursors.look_at_delays(NODE, [a_look(job, read)]) == ({}, {job})
    assert await cursor(look, job) == (tick, tick, False)


async def test_a_locked_cursor_is_not_waited_for_and_the_others_are_moved(
    look: Any, verbs: Store, another: Any, tick: datetime
) -> None:
    jobs = [await job_at(look, tick) for _ in range(3)]
    for job in jobs[:2]:
        await ended(look, job, tick - timedelta(hours=1), tick)
    async with another.transaction():
        await another.execute("SELECT FROM cursors WHERE job = $1 FOR UPDATE", jobs[0])
        seen = await verbs.cursors.look_at_delays(NODE, [a_look(job, tick) for job in jobs])
    assert seen == ({jobs[1]: tick + DELAY}, {jobs[0]})  # the third stands on its tick
    assert await cursor(look, jobs[0]) == (tick, tick, False)
