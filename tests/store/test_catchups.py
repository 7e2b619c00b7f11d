"""Missed ticks that are made up for, and backfills: what is let go, what stays, and what is given up."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from detent.domain.identity import MANUAL, first_token
from detent.domain.misfire import CatchUp, MissedRange
from detent.store import Store
from detent.store.catchups import DueCatchUp, RangeDrop, Release
from detent.store.cursors import Cursor, Leap
from tests.support.factories import LONG_AGO, add_job, add_live_run, add_node

NODE, OTHER = 11, 12
HOUR = timedelta(hours=1)
LATER = datetime.max.replace(year=2100, tzinfo=LONG_AGO.tzinfo)
LAST = LONG_AGO + 3 * HOUR


@pytest.fixture(autouse=True)
async def node(look: Any) -> int:
    await look.execute("DELETE FROM catchups; DELETE FROM skips")
    return await add_node(look, NODE)


async def a_job(look: Any, **columns: Any) -> int:
    """A job whose live tick is to come, and whose partition is 7."""
    return await add_job(look, LATER, **{"partition": 7, "last_tick": LAST, **columns})


async def a_range(look: Any, job: int, kind: str = "missed", first: datetime = LONG_AGO, **columns: Any) -> int:
    values = {
        "job": job,
        "partition": 7,
        "kind": kind,
        "schedule": await look.fetchval("SELECT schedule FROM cursors WHERE job = $1", job),
        "since": first,
        "until": LAST,
        "next_tick": first,
        "left_over": 4,
        **columns,
    }
    places = ", ".join(f"${n}" for n in range(1, len(values) + 1))
    number: int = await look.fetchval(
        f"INSERT INTO catchups ({', '.join(values)}) VALUES ({places}) RETURNING catchup", *values.values()
    )
    return number


async def release(
    look: Any, verbs: Store, catchup: int, node: int = NODE, following: datetime | None = LONG_AGO + HOUR, **off: Any
) -> str | None:
    row = await look.fetchrow("SELECT * FROM catchups JOIN cursors c USING (job) WHERE catchup = $1", catchup)
    tick = await look.fetchval("SELECT next_tick FROM catchups WHERE catchup = $1", catchup)
    one = Release(catchup, tick, row["generation"], following)._replace(**off)
    return (await verbs.catchups.release(node, 1, [row["job"]], [one])).get(catchup)


async def runs(look: Any, job: int) -> list[tuple[datetime, int, int, int]]:
    rows = await look.fetch("SELECT * FROM live_runs WHERE job = $1 ORDER BY scheduled_at, serial", job)
    return [(row["scheduled_at"], row["serial"], row["lane"], row["priority"]) for row in rows]


async def standing(look: Any, catchup: int) -> tuple[datetime, int] | None:
    row = await look.fetchrow("SELECT next_tick, left_over FROM catchups WHERE catchup = $1", catchup)
    return None if row is None else (row["next_tick"], row["left_over"])


async def add_history(look: Any, job: int, at: datetime, status: int, serial: int = 0, **columns: Any) -> None:
    ran = {"token": first_token(1), "attempt": 1} if status in (1, 2, 3) else {}
    values = {"job": job, "scheduled_at": at, "finished_at": at, "serial": serial, "revision": 1, "status": status}
    values |= {"reason": "of old", **ran, **columns}
    places = ", ".join(f"${n}" for n in range(1, len(values) + 1))
    await look.execute(f"INSERT INTO run_history ({', '.join(values)}) VALUES ({places})", *values.values())


async def test_a_job_that_became_a_task_runs_the_ticks_that_it_owes(look: Any, verbs: Store) -> None:
    job = await add_job(look, None, partition=7, last_tick=LAST, task=True)
    assert await release(look, verbs, await a_range(look, job)) == "released"
    assert await runs(look, job) == [(LONG_AGO, 0, 0, 4)]


# --- how a range comes to be ---


async def test_the_miss_that_moves_the_cursor_leaves_the_ticks_to_be_made_up_for(look: Any, verbs: Store) -> None:
    job = await add_job(look, partition=7)
    read = await look.fetchrow("SELECT * FROM cursors WHERE job = $1", job)
    cursor = Cursor(**{name: read[name] for name in Cursor._fields if name != "bounded"}, bounded=False)
    missed = [MissedRange(LONG_AGO, LONG_AGO, 1, "grace"), MissedRange(LAST, LAST, 1, "limit")]
    made_up = CatchUp(LONG_AGO + HOUR, LONG_AGO + 2 * HOUR, 2)
    assert await verbs.cursors.miss(NODE, [Leap(cursor, LATER, LATER, LAST, missed, made_up)]) == {job}
    (due,) = await verbs.catchups.due({7: 0}, 10)
    assert due == DueCatchUp(
        due.catchup, job, 7, "missed", read["schedule"], LONG_AGO + HOUR, LONG_AGO + 2 * HOUR, LONG_AGO + HOUR,
        False, 1, False, "active", 2,
    )  # fmt: skip
    assert await standing(look, due.catchup) == (LONG_AGO + HOUR, 2)
    assert await look.fetchval("SELECT last_tick FROM cursors WHERE job = $1", job) == LAST
    assert await verbs.cursors.miss(NODE, [Leap(cursor, LATER, LATER, LAST, missed, made_up)]) == set()
    assert await look.fetchval("SELECT count(*) FROM catchups") == 1, "a cursor that has moved leaves nothing twice"


async def test_an_evicted_node_leaves_nothing_to_be_made_up_for(look: Any, verbs: Store) -> None:
    await add_node(look, OTHER, evicted=True)
    job = await add_job(look)
    read = await look.fetchrow("SELECT * FROM cursors WHERE job = $1", job)
    cursor = Cursor(**{name: read[name] for name in Cursor._fields if name != "bounded"}, bounded=False)
    await verbs.cursors.miss(OTHER, [Leap(cursor, LATER, LATER, LAST, [], CatchUp(LONG_AGO, LAST, 4))])
    assert await look.fetchval("SELECT count(*) FROM catchups") == 0


# --- what is due ---


async def test_ranges_are_found_by_partition_behind_the_one_that_was_last_seen(look: Any, verbs: Store) -> None:
    numbers = [await a_range(look, await a_job(look)) for _ in range(4)]
    await a_range(look, await a_job(look, partition=8), partition=8)
    assert [due.catchup for due in await verbs.catchups.due({7: 0}, 3)] == numbers[:3]
    assert [due.catchup for due in await verbs.catchups.due({7: numbers[2]}, 3)] == numbers[3:]
    assert [due.partition for due in await verbs.catchups.due({8: 0, 9: 0}, 3)] == [8]


async def test_what_a_paused_job_has_missed_waits_and_what_a_deleted_one_has_is_over(look: Any, verbs: Store) -> None:
    paused, deleted, good = [await a_job(look) for _ in range(3)]
    numbers = [await a_range(look, job) for job in (paused, deleted, good)]
    await look.execute("UPDATE jobs SET status = 'paused' WHERE job = $1", paused)
    await look.execute("UPDATE jobs SET status = 'deleted' WHERE job = $1", deleted)
    found = await verbs.catchups.due({7: 0}, 10)
    assert [(due.catchup, due.dead) for due in found] == [(numbers[1], True), (numbers[2], False)]


async def test_of_two_missed_ranges_of_a_job_the_older_comes_first_and_a_backfill_is_independent(
    look: Any, verbs: Store
) -> None:
    job = await a_job(look)
    first = await a_range(look, job)
    await a_range(look, job)
    backfill = await a_range(look, job, "backfill")
    assert [due.catchup for due in await verbs.catchups.due({7: 0}, 10)] == [first, backfill]


# --- missed ticks ---


async def test_a_released_tick_is_a_run_under_its_own_key_with_the_job_as_it_is_now(look: Any, verbs: Store) -> None:
    job = await a_job(look, priority=7, revision=3, once=True)
    catchup = await a_range(look, job)
    assert await release(look, verbs, catchup) == "released"
    assert await standing(look, catchup) == (LONG_AGO + HOUR, 3)
    row = await look.fetchrow("SELECT * FROM live_runs WHERE job = $1", job)
    assert (row["scheduled_at"], row["serial"], row["lane"], row["revision"]) == (LONG_AGO, 0, 0, 3)
    assert (row["owner"], row["once"], row["token"]) == (None, True, first_token(1))
    assert row["priority"] == 6, "live ticks of such jobs go first"
    assert row["not_before"] > LONG_AGO, "nor do they wait behind what is made up for"


async def test_the_last_tick_ends_the_range(look: Any, verbs: Store) -> None:
    catchup = await a_range(look, await a_job(look))
    assert await release(look, verbs, catchup, following=None) == "released"
    assert await standing(look, catchup) is None


@pytest.mark.parametrize("lanes", [1, -1, -2])
async def test_an_occupied_lane_leaves_the_tick_where_it_is(look: Any, verbs: Store, lanes: int) -> None:
    job = await a_job(look, lanes=lanes)
    catchup = await a_range(look, job)
    await add_live_run(look, job, LAST, owner=NODE)
    assert await release(look, verbs, catchup) == "lane"
    assert await standing(look, catchup) == (LONG_AGO, 4)
    await look.execute("UPDATE live_runs SET lane = -1, owner = NULL WHERE job = $1", job)
    assert await release(look, verbs, catchup) == "lane", "nor does it go before one that waits"
    await look.execute("DELETE FROM live_runs")
    assert await release(look, verbs, catchup) == "released"


async def test_a_job_with_several_lanes_keeps_one_for_live_ticks(look: Any, verbs: Store) -> None:
    job = await a_job(look, lanes=3)
    catchup = await a_range(look, job)
    fates = [await release(look, verbs, catchup, following=LONG_AGO + n * HOUR) for n in (1, 2, 3)]
    assert fates == ["released", "released", "lane"]
    assert [lane for _, _, lane, _ in await runs(look, job)] == [1, 2]


async def test_nothing_is_released_while_a_live_tick_of_the_job_is_due(look: Any, verbs: Store) -> None:
    job = await add_job(look, LAST + HOUR, partition=7, last_tick=LAST)
    catchup = await a_range(look, job)
    assert await release(look, verbs, catchup) == "live"
    assert await runs(look, job) == []


async def test_nothing_is_released_into_a_queue_whose_runs_have_waited(look: Any, verbs: Store) -> None:
    job, other = await a_job(look), await add_job(look)
    catchup = await a_range(look, job)
    await add_live_run(look, other, owner=NODE)
    assert await release(look, verbs, catchup) == "released", "what runs does not wait"
    await look.execute("DELETE FROM live_runs WHERE job = $1", job)
    for priority in (5, -100, 100):
        await look.execute("UPDATE live_runs SET owner = NULL, priority = $2 WHERE job = $1", other, priority)
        assert await release(look, verbs, catchup, following=LONG_AGO + 2 * HOUR) == "queue"
    await look.execute("UPDATE live_runs SET not_before = now() + interval '1 hour' WHERE job = $1", other)
    assert await release(look, verbs, catchup, following=LONG_AGO + 2 * HOUR) == "released", "a retry is not ready"


async def test_a_run_of_the_lowest_priority_that_is_caught_up_keeps_it(look: Any, verbs: Store) -> None:
    job = await a_job(look, priority=-100)
    assert await release(look, verbs, await a_range(look, job)) == "released"
    assert await runs(look, job) == [(LONG_AGO, 0, 0, -100)]


@pytest.mark.parametrize(
    "off", [{"tick": LONG_AGO + HOUR}, {"generation": 2}], ids=["another node released it", "the job was changed"]
)
async def test_a_range_or_a_job_that_is_not_as_expected_releases_nothing(look: Any, verbs: Store, off: Any) -> None:
    job = await a_job(look)
    catchup = await a_range(look, job)
    assert await release(look, verbs, catchup, **off) is None
    assert (await standing(look, catchup), await runs(look, job)) == ((LONG_AGO, 4), [])


async def test_an_evicted_node_and_a_held_cluster_release_nothing(look: Any, verbs: Store) -> None:
    await add_node(look, OTHER, evicted=True)
    job = await a_job(look)
    catchup = await a_range(look, job)
    assert await release(look, verbs, catchup, OTHER) is None
    await look.execute("UPDATE cluster SET held_at = now(), held_by = 'test', held_reason = 'test'")
    assert await release(look, verbs, catchup) is None
    assert await runs(look, job) == []


async def test_a_job_that_another_session_has_in_hand_is_left_for_later(look: Any, verbs: Store, another: Any) -> None:
    job = await a_job(look)
    catchup = await a_range(look, job)
    async with another.transaction():
        await another.execute("SELECT FROM cursors WHERE job = $1 FOR NO KEY UPDATE", job)
        assert await release(look, verbs, catchup) is None
    assert await release(look, verbs, catchup) == "released"


async def test_what_is_made_up_for_counts_as_a_run_of_a_bounded_job_and_the_last_one_ends_it(
    look: Any, verbs: Store
) -> None:
    job = await a_job(look, runs_left=2, lanes=4)
    catchup = await a_range(look, job)
    assert await release(look, verbs, catchup) == "released"
    assert tuple(await look.fetchrow("SELECT runs_left, ended FROM cursors WHERE job = $1", job)) == (1, False)
    assert await release(look, verbs, catchup, following=LONG_AGO + 2 * HOUR) == "released"
    row = await look.fetchrow("SELECT runs_left, ended, next_tick FROM cursors WHERE job = $1", job)
    assert tuple(row) == (0, True, None)
    assert await release(look, verbs, catchup, following=LAST) is None
    (due,) = await verbs.catchups.due({7: 0}, 10)
    assert due.dead


async def test_a_job_is_not_completed_while_it_has_something_to_make_up_for(look: Any, verbs: Store) -> None:
    job = await add_job(look, None, ended=True, partition=7)
    catchup = await a_range(look, job)
    assert await verbs.upkeep.complete_jobs() == []
    assert await release(look, verbs, catchup, following=None) == "released"
    assert await verbs.upkeep.complete_jobs() == []
    await look.execute("DELETE FROM live_runs")
    assert await verbs.upkeep.complete_jobs() == [job]


async def test_a_missed_tick_that_was_to_be_skipped_is_skipped(look: Any, verbs: Store) -> None:
    job = await a_job(look)
    catchup = await a_range(look, job)
    await look.execute("INSERT INTO skips (job, tick) VALUES ($1, $2)", job, LONG_AGO)
    assert await release(look, verbs, catchup) == "left out"
    assert await standing(look, catchup) == (LONG_AGO + HOUR, 3)
    row = await look.fetchrow("SELECT status, reason FROM run_history WHERE job = $1", job)
    assert (tuple(row), await runs(look, job)) == ((4, "by request"), [])


# --- backfills ---


async def test_a_tick_of_which_nothing_is_known_runs_under_its_own_key(look: Any, verbs: Store) -> None:
    job = await a_job(look)
    catchup = await a_range(look, job, "backfill")
    assert await release(look, verbs, catchup) == "released"
    assert await runs(look, job) == [(LONG_AGO, 0, 0, 4)]


@pytest.mark.parametrize("status", [1, 2, 3])
async def test_a_tick_that_ran_is_left_out(look: Any, verbs: Store, status: int) -> None:
    job = await a_job(look)
    catchup = await a_range(look, job, "backfill")
    await add_history(look, job, LONG_AGO, status)
    assert await release(look, verbs, catchup) == "left out"
    assert (await standing(look, catchup), await runs(look, job)) == ((LONG_AGO + HOUR, 3), [])


async def test_a_tick_whose_run_is_under_way_is_left_out(look: Any, verbs: Store) -> None:
    job = await a_job(look, lanes=4)
    catchup = await a_range(look, job, "backfill")
    await add_live_run(look, job, LONG_AGO, owner=NODE)
    assert await release(look, verbs, catchup, following=None) == "left out"
    assert await standing(look, catchup) is None


async def test_a_tick_that_ran_runs_again_under_the_next_serial_where_that_is_asked_for(
    look: Any, verbs: Store
) -> None:
    job = await a_job(look)
    catchup = await a_range(look, job, "backfill", reprocess=True)
    await add_history(look, job, LONG_AGO, 1)
    await add_history(look, job, LONG_AGO, 2, serial=1)
    await add_history(look, job, LONG_AGO, 1, serial=MANUAL)
    assert await release(look, verbs, catchup) == "released"
    assert await runs(look, job) == [(LONG_AGO, 2, 0, 4)]


@pytest.mark.parametrize(
    ("first", "columns"),
    [(LONG_AGO, {}), (LONG_AGO, {"ticks": 3, "until": LAST}), (LONG_AGO - HOUR, {"ticks": 5, "until": LAST})],
    ids=["a line of its own", "the first of a range", "inside a range"],
)
async def test_a_tick_that_did_not_run_keeps_its_line_and_runs_as_the_next_of_its_tick(
    look: Any, verbs: Store, first: datetime, columns: dict[str, Any]
) -> None:
    job = await a_job(look)
    catchup = await a_range(look, job, "backfill")
    await add_history(look, job, first, 5, **columns)
    assert await release(look, verbs, catchup) == "released"
    assert await runs(look, job) == [(LONG_AGO, 1, 0, 4)]


async def test_a_range_that_ended_before_the_tick_does_not_cover_it(look: Any, verbs: Store) -> None:
    job = await a_job(look)
    catchup = await a_range(look, job, "backfill")
    await add_history(look, job, LONG_AGO - 3 * HOUR, 5, ticks=2, until=LONG_AGO - 2 * HOUR)
    assert await release(look, verbs, catchup) == "released"
    assert await runs(look, job) == [(LONG_AGO, 0, 0, 4)]


async def test_a_missed_tick_that_is_still_to_be_made_up_for_is_left_out(look: Any, verbs: Store) -> None:
    job = await a_job(look)
    await a_range(look, job)
    catchup = await a_range(look, job, "backfill")
    assert await release(look, verbs, catchup) == "left out"


async def test_a_missed_tick_that_is_processed_again_before_it_was_made_up_for_keeps_its_first_run(
    look: Any, verbs: Store
) -> None:
    """Both runs have a key of their own, whichever comes first; else the second could never be recorded."""
    job = await a_job(look)
    owed = await a_range(look, job)
    again = await a_range(look, job, "backfill", reprocess=True)
    assert await release(look, verbs, again) == "released"
    assert await runs(look, job) == [(LONG_AGO, 1, 0, 4)]
    await look.execute("DELETE FROM live_runs")
    await add_history(look, job, LONG_AGO, 1, serial=1)
    assert await release(look, verbs, owed) == "released"
    assert await runs(look, job) == [(LONG_AGO, 0, 0, 4)]


async def test_no_more_of_a_backfill_are_under_way_than_it_may_have(look: Any, verbs: Store) -> None:
    job = await a_job(look, lanes=10)
    catchup = await a_range(look, job, "backfill", concurrent=2)
    await add_live_run(look, job, LATER, owner=NODE)
    fates = [await release(look, verbs, catchup, following=LONG_AGO + n * HOUR) for n in (1, 2, 3)]
    assert fates == ["released", "released", "lane"]


async def test_a_backfill_is_no_run_of_a_bounded_job_and_runs_though_that_is_completed(look: Any, verbs: Store) -> None:
    job = await add_job(look, None, runs_left=0, partition=7, last_tick=LAST)
    await look.execute("UPDATE jobs SET status = 'completed' WHERE job = $1", job)
    catchup = await a_range(look, job, "backfill")
    assert not (await verbs.catchups.due({7: 0}, 10))[0].dead
    assert await release(look, verbs, catchup) == "released"
    assert await look.fetchval("SELECT runs_left FROM cursors WHERE job = $1", job) == 0


async def test_a_tick_of_a_gap_counts_as_fired_through(look: Any, verbs: Store) -> None:
    """So that no resumption comes back to it."""
    job = await a_job(look, last_tick=LONG_AGO - HOUR)
    catchup = await a_range(look, job, "backfill")
    assert await release(look, verbs, catchup) == "released"
    assert await look.fetchval("SELECT last_tick FROM cursors WHERE job = $1", job) == LONG_AGO


async def test_a_live_tick_that_has_not_fired_is_not_backfilled(look: Any, verbs: Store) -> None:
    job = await add_job(look, LONG_AGO, partition=7)
    catchup = await a_range(look, job, "backfill")
    assert await release(look, verbs, catchup) is None


# --- giving up ---


async def test_what_is_dropped_is_in_the_ledger_as_missed(look: Any, verbs: Store) -> None:
    job = await a_job(look, revision=1)
    catchup = await a_range(look, job)
    ranges = [MissedRange(LONG_AGO, LAST, 4, "dropped")]
    assert await verbs.catchups.drop([RangeDrop(catchup, LONG_AGO, ranges)]) == 4
    assert await standing(look, catchup) is None
    row = await look.fetchrow("SELECT * FROM run_history WHERE job = $1", job)
    assert (row["scheduled_at"], row["until"], row["ticks"], row["status"]) == (LONG_AGO, LAST, 4, 5)
    assert row["reason"] == "dropped"


async def test_a_range_that_has_moved_meanwhile_is_not_dropped_as_it_was(look: Any, verbs: Store) -> None:
    job = await a_job(look)
    catchup = await a_range(look, job)
    await release(look, verbs, catchup)
    ranges = [MissedRange(LONG_AGO, LAST, 4, "dropped")]
    assert await verbs.catchups.drop([RangeDrop(catchup, LONG_AGO, ranges)]) == 0
    assert await look.fetchval("SELECT count(*) FROM run_history") == 0
