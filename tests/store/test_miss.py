"""What is too late to be fired, and what is looked up to be fired next."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from detent.domain.misfire import MissedRange
from detent.store import Store
from detent.store.cursors import Cursor, Leap
from tests.support.factories import LONG_AGO, add_job, add_node

NODE, OTHER = 11, 12
HOUR = timedelta(hours=1)
NEXT = LONG_AGO + HOUR


@pytest.fixture(autouse=True)
async def node(look: Any) -> int:
    return await add_node(look, NODE)


async def cursor(look: Any, job: int) -> Any:
    return await look.fetchrow("SELECT * FROM cursors WHERE job = $1", job)


# --- misses ---


def leap(read: Any, *missed: MissedRange, next_tick: datetime | None) -> Leap:
    fields = {name: read[name] for name in Cursor._fields if name != "bounded"}
    return Leap(Cursor(**fields, bounded=False), next_tick, next_tick, missed[-1].last, missed)


async def test_missed_ticks_are_passed_over_and_kept_as_ranges(look: Any, verbs: Store) -> None:
    job = await add_job(look)
    day = timedelta(days=1)
    ranges = [
        MissedRange(LONG_AGO, LONG_AGO + 23 * HOUR, 24, "merged"),
        MissedRange(LONG_AGO + day, LONG_AGO + day + HOUR, 2, "merged"),
    ]
    moved = await verbs.cursors.miss(
        NODE, [leap(await cursor(look, job), *ranges, next_tick=LONG_AGO + day + 2 * HOUR)]
    )
    assert moved == {job}
    after = await cursor(look, job)
    assert (after["next_tick"], after["last_tick"]) == (LONG_AGO + day + 2 * HOUR, LONG_AGO + day + HOUR)
    kept = await look.fetch("SELECT * FROM run_history WHERE job = $1 ORDER BY scheduled_at", job)
    assert [(r["scheduled_at"], r["until"], r["ticks"], r["reason"], r["status"]) for r in kept] == [
        (first, last, count, reason, 5) for first, last, count, reason in ranges
    ]
    assert await look.fetchval("SELECT count(*) FROM live_runs") == 0


async def test_a_miss_without_a_tick_to_come_ends_the_job(look: Any, verbs: Store) -> None:
    job = await add_job(look)
    one = MissedRange(LONG_AGO, LONG_AGO, 1, "grace")
    assert await verbs.cursors.miss(NODE, [leap(await cursor(look, job), one, next_tick=None)]) == {job}
    after = await cursor(look, job)
    assert (after["next_tick"], after["ended"]) == (None, True)


async def test_a_miss_of_a_cursor_that_moved_changed_or_is_not_due_writes_nothing(look: Any, verbs: Store) -> None:
    one = MissedRange(LONG_AGO, LONG_AGO, 1, "grace")
    moved, changed, good = [await add_job(look) for _ in range(3)]
    early = await add_job(look, fire_at=await look.fetchval("SELECT now() + '1 hour'::interval"))
    leaps = [leap(await cursor(look, job), one, next_tick=NEXT) for job in (moved, changed, good, early)]
    await look.execute("UPDATE cursors SET next_tick = $2, fire_at = $2 WHERE job = $1", moved, NEXT)
    await look.execute("UPDATE cursors SET generation = 2 WHERE job = $1", changed)
    assert await verbs.cursors.miss(NODE, leaps) == {good}
    assert [row["job"] for row in await look.fetch("SELECT job FROM run_history")] == [good]


async def test_an_evicted_node_records_no_miss(look: Any, verbs: Store) -> None:
    job = await add_job(look)
    await add_node(look, OTHER, evicted=True)
    one = MissedRange(LONG_AGO, LONG_AGO, 1, "grace")
    assert await verbs.cursors.miss(OTHER, [leap(await cursor(look, job), one, next_tick=NEXT)]) == set()
    assert await look.fetchval("SELECT count(*) FROM run_history") == 0


# --- the window ---


async def test_the_window_holds_what_fires_from_its_lower_to_its_upper_bound(look: Any, verbs: Store) -> None:
    ticks = [LONG_AGO + hours * HOUR for hours in range(5)]
    jobs = [await add_job(look, tick, partition=7) for tick in ticks]
    await add_job(look, ticks[2], partition=8)
    await add_job(look, None, partition=7)
    found = await verbs.cursors.window([7], ticks[1], ticks[3], 100)
    assert [item.job for item in found] == jobs[1:4]
    everything = await verbs.cursors.window([7], None, ticks[3], 100)
    assert [item.job for item in everything] == jobs[:4], "a sweep has no lower bound"


async def test_the_window_is_limited_per_partition_to_what_fires_first(look: Any, verbs: Store) -> None:
    for hours in (3, 1, 2, 0):
        for partition in (7, 8):
            await add_job(look, LONG_AGO + hours * HOUR, partition=partition)
    found = await verbs.cursors.window([7, 8, 9], None, LONG_AGO + 9 * HOUR, 2)
    assert [(item.partition, item.next_tick) for item in found] == [
        (partition, LONG_AGO + hours * HOUR) for partition in (7, 8) for hours in (0, 1)
    ]


async def test_jitter_decides_when_a_cursor_is_in_the_window(look: Any, verbs: Store) -> None:
    job = await add_job(look, LONG_AGO, fire_at=NEXT, partition=7)
    assert await verbs.cursors.window([7], None, NEXT - timedelta(seconds=1), 10) == []
    (found,) = await verbs.cursors.window([7], NEXT, NEXT, 10)
    assert (found.job, found.next_tick, found.fire_at) == (job, LONG_AGO, NEXT)


async def test_cursors_are_read_by_job_with_all_a_fire_needs(look: Any, verbs: Store) -> None:
    job = await add_job(look, runs_left=3, lanes=4, priority=2, once=True, revision=5, generation=6, grace=30, missed=3)
    (found,) = await verbs.cursors.load([job, job + 1])
    assert found == Cursor(
        job, LONG_AGO, LONG_AGO, 6, True, found.queue, found.schedule, 5, 30, found.partition, 2, 4, True, 3, 100
    )
