"""What people do to a job, and what becomes of the ticks it takes away: each verb on a real PostgreSQL."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from detent.contract.job import Job
from detent.domain.identity import RunKey
from detent.domain.misfire import MissedRange, split_by_day
from detent.domain.schedule.stagger import stagger_start
from detent.errors import UsageError
from detent.jobs import JobOperations, moves
from detent.store import Store
from tests.store.moving import HOUR, NODE, database_time, fire, full_hour, job_of_old, number_of, run, settle, spec
from tests.support.factories import add_node
from tests.support.ticks import advance_of


@pytest.fixture(autouse=True)
async def node(look: Any) -> AsyncIterator[None]:
    await add_node(look, NODE)
    yield


async def history(look: Any) -> list[tuple[datetime, str | None, int, str]]:
    rows = await look.fetch("SELECT * FROM runs WHERE serial = 0 ORDER BY scheduled_at")
    return [(row["scheduled_at"], row["reason"], row["ticks"] or 1, row["status"]) for row in rows]


async def ticks_of(look: Any, status: str, reason: str | None) -> int:
    rows = await history(look)
    return sum(ticks for _, why, ticks, what in rows if (what, why) == (status, reason))


async def spans(look: Any, job: Job) -> list[tuple[str, str | None, str | None]]:
    rows = await look.fetch("SELECT s.* FROM spans s JOIN jobs j USING (job) WHERE j.id = $1 ORDER BY s.since", job.id)
    return [(row["opened"], row["closed"], row["closed_by"]) for row in rows]


async def clean(verbs: Store, look: Any, job: Job) -> dict[str, int]:
    """The accounts of a job, in which nothing is missing, doubled or extra."""
    now = await database_time(look)
    ((_, _, account),), _ = await JobOperations(verbs).audit.audit(
        (now - timedelta(days=30), now), [await number_of(look, job)]
    )
    assert account.clean, account
    return {**account.accounted, **{f"open {word}": count for word, count in account.open.items()}}


# -- pause and resume


async def test_a_pause_gives_up_what_is_due_and_skips_the_ticks_it_covers(verbs: Store, look: Any) -> None:
    job = await job_of_old(verbs, look, 5 * HOUR)
    await run(verbs, look, job, 2)
    await JobOperations(verbs).lifecycle.pause(job.id, "too loud", by="ada")
    assert await ticks_of(look, "skipped", "paused") in (2, 3)
    assert (await clean(verbs, look, job))["succeeded"] == 2
    resumed = await JobOperations(verbs).lifecycle.resume(job.id, by="bob")
    assert resumed.next_run_at == await full_hour(look) + HOUR
    assert await spans(look, job) == [
        ("created", "paused", "ada"),
        ("paused", "resumed", "bob"),
        ("resumed", None, None),
    ]
    assert sum((await clean(verbs, look, job)).values()) in (4, 5)


async def paused_for(verbs: Store, look: Any, hours: int, **pause: Any) -> Job:
    """A job whose pause began so many hours ago, on the half hour."""
    job = await job_of_old(verbs, look, 10 * HOUR)
    began = await full_hour(look) - hours * HOUR - HOUR / 2
    while await look.fetchval("SELECT next_tick FROM cursors") < began:
        await run(verbs, look, job)
    await JobOperations(verbs).lifecycle.pause(job.id, by="ada", **pause)
    await look.execute("DELETE FROM run_history WHERE reason = 'paused'")
    await look.execute("UPDATE cursors SET last_tick = $1", began - HOUR / 2)
    await look.execute("UPDATE jobs SET since = $1", began)
    await look.execute("UPDATE segments SET until = $1", began)
    return job


async def test_the_ticks_of_a_pause_that_is_not_over_are_open(verbs: Store, look: Any) -> None:
    job = await paused_for(verbs, look, 3)
    assert (await clean(verbs, look, job))["open paused"] == 4


async def test_on_resume_skip_accounts_for_every_tick_of_the_pause(verbs: Store, look: Any) -> None:
    job = await paused_for(verbs, look, 3)
    await JobOperations(verbs).lifecycle.resume(job.id)
    assert await ticks_of(look, "skipped", "paused") == 4
    assert (await clean(verbs, look, job))["skipped: paused"] == 4


async def test_on_resume_once_runs_the_latest_tick_of_the_pause(verbs: Store, look: Any) -> None:
    job = await paused_for(verbs, look, 3, on_resume="once")
    await JobOperations(verbs).lifecycle.resume(job.id, by="bob")
    assert await ticks_of(look, "skipped", "paused") == 3
    owed = await look.fetchrow("SELECT * FROM catchups")
    assert (owed["next_tick"], owed["until"], owed["left_over"]) == (await full_hour(look), await full_hour(look), 1)
    assert (owed["kind"], owed["created_by"]) == ("missed", "bob")
    assert (await clean(verbs, look, job))["open catching up"] == 1
    assert await look.fetchval("SELECT last_tick FROM cursors") == await full_hour(look)


async def test_on_resume_all_runs_every_tick_of_the_pause_as_far_as_max_missed_goes(verbs: Store, look: Any) -> None:
    job = await paused_for(verbs, look, 3)
    await look.execute("UPDATE cursors SET max_missed = 3")
    await JobOperations(verbs).lifecycle.resume(job.id, on_resume="all")
    owed = await look.fetchrow("SELECT * FROM catchups")
    hour = await full_hour(look)
    assert (owed["next_tick"], owed["until"], owed["left_over"]) == (hour - 3 * HOUR, hour - HOUR, 3)
    assert await ticks_of(look, "skipped", "paused") == 1
    assert (await clean(verbs, look, job))["open catching up"] == 3


async def test_a_pause_with_an_end_ends_by_itself_and_ticks_from_then_on_fire(verbs: Store, look: Any) -> None:
    job = await paused_for(verbs, look, 3, until=await database_time(look) + HOUR)
    assert await JobOperations(verbs).automatic.end_pauses() > 0
    hour = await full_hour(look)
    await look.execute("UPDATE jobs SET paused_until = $1", hour - HOUR)
    await JobOperations(verbs).automatic.end_pauses()
    row = await look.fetchrow("SELECT * FROM jobs")
    assert (row["status"], row["opened"], row["opened_by"], row["paused_until"]) == (
        "active",
        "resumed",
        "detent",
        None,
    )
    assert await look.fetchval("SELECT next_tick FROM cursors") == hour - HOUR
    assert await clean(verbs, look, job) == {"succeeded": 6, "skipped: paused": 2, "open due": 2}


async def test_two_nodes_that_end_a_pause_at_once_end_it_once(verbs: Store, look: Any) -> None:
    job = await paused_for(verbs, look, 3, until=await database_time(look) + HOUR)
    await look.execute("UPDATE jobs SET paused_until = now() - interval '1 second'")
    await asyncio.gather(*(JobOperations(verbs).automatic.end_pauses() for _ in range(4)))
    assert await look.fetchval("SELECT count(*) FROM segments WHERE closed = 'resumed'") == 1
    assert (await clean(verbs, look, job))["skipped: paused"] == 4


async def test_upkeep_ignores_pauses_without_an_end(verbs: Store, look: Any) -> None:
    (job,) = await JobOperations(verbs).registration.add([spec()])
    await JobOperations(verbs).lifecycle.pause(job.id)
    assert await JobOperations(verbs).automatic.end_pauses() is None


async def test_a_pause_until_the_past_is_refused(verbs: Store, look: Any) -> None:
    (job,) = await JobOperations(verbs).registration.add([spec()])
    with pytest.raises(UsageError, match="which is in the past: give a later time"):
        await JobOperations(verbs).lifecycle.pause(job.id, until=await database_time(look) - HOUR)
    assert (await verbs.jobs.get(job.id)).status == "active"


async def test_a_second_pause_changes_only_what_it_says(verbs: Store, look: Any) -> None:
    (job,) = await JobOperations(verbs).registration.add([spec()])
    until = await database_time(look) + HOUR
    await JobOperations(verbs).lifecycle.pause(job.id, "first", until=until, on_resume="all", by="ada")
    again = await JobOperations(verbs).lifecycle.pause(job.id, "second", by="bob")
    assert (again.paused_reason, again.paused_until, again.on_resume, again.paused_by) == (
        "second",
        until,
        "all",
        "ada",
    )
    resumed = await JobOperations(verbs).lifecycle.resume(job.id)
    assert (resumed.paused_reason, resumed.paused_until, resumed.on_resume, resumed.paused_by) == (None,) * 4


async def test_the_tick_in_hand_wins_against_a_pause_and_the_next_is_paused(verbs: Store, look: Any) -> None:
    job = await job_of_old(verbs, look, 2.5 * HOUR)
    row = await look.fetchrow("SELECT * FROM cursors")
    tick = await fire(verbs, look, job)
    await JobOperations(verbs).lifecycle.pause(job.id)
    late = advance_of(row["job"], tick + HOUR, row["generation"], tick + 2 * HOUR, None)
    (refused,) = await verbs.cursors.fire(NODE, 1, True, [late])
    assert refused.why == "refused"
    assert await look.fetchval("SELECT count(*) FROM live_runs") == 1
    await settle(verbs, look, job, tick)
    assert (await clean(verbs, look, job))["succeeded"] == 1


async def test_a_pause_that_races_a_fire_is_computed_again(verbs: Store, look: Any) -> None:
    job = await job_of_old(verbs, look, 4.5 * HOUR)
    for _ in range(3):
        await asyncio.gather(
            run(verbs, look, job), JobOperations(verbs).lifecycle.pause(job.id), return_exceptions=True
        )
        await JobOperations(verbs).lifecycle.resume(job.id)
        await clean(verbs, look, job)


# -- edit and delete


async def test_an_edit_of_the_schedule_gives_up_what_is_due_and_begins_behind_it(verbs: Store, look: Any) -> None:
    job = await job_of_old(verbs, look, 3.5 * HOUR)
    await run(verbs, look, job)
    await JobOperations(verbs).registration.patch(job.id, {"schedule": "30 * * * *"}, by="ada")
    assert await ticks_of(look, "skipped", "edited") in (2, 3)
    assert await spans(look, job) == [("created", "edited", "ada"), ("edited", None, None)]
    assert await look.fetchval("SELECT next_tick > now() FROM cursors")
    await clean(verbs, look, job)


async def test_an_edit_of_something_else_leaves_the_due_tick_due(verbs: Store, look: Any) -> None:
    job = await job_of_old(verbs, look, 1.5 * HOUR)
    await JobOperations(verbs).registration.patch(job.id, {"priority": 9})
    assert await look.fetchval("SELECT next_tick < now() FROM cursors")
    assert await spans(look, job) == [("created", None, None)]
    assert set(await clean(verbs, look, job)) == {"open due"}


@pytest.mark.parametrize("change", [{"priority": 9}, {"release": "exact"}, {"release": "exact", "jitter_seconds": 60}])
async def test_an_edit_of_the_release_leaves_a_tick_that_waits_for_it(
    verbs: Store, look: Any, change: dict[str, Any]
) -> None:
    job = await job_of_old(verbs, look, 1.5 * HOUR, release="staggered", priority=2)
    later = await database_time(look) + timedelta(seconds=2)
    await look.execute("UPDATE cursors SET fire_at = $1", later)
    tick = await look.fetchval("SELECT next_tick FROM cursors")
    changed, _ = await JobOperations(verbs).registration.patch(job.id, change)
    row = await look.fetchrow(
        "SELECT next_tick, fire_at, stored ->> 'stagger_ms' FROM cursors JOIN schedules USING (schedule)"
    )
    starts = stagger_start(9) if "priority" in change else None
    assert tuple(row) == (tick, later, None if starts is None else str(starts))
    assert await history(look) == [] and await spans(look, job) == [("created", None, None)]
    assert set(await clean(verbs, look, job)) == {"open due"} and changed.next_run_at == tick


async def test_an_edit_of_the_release_moves_a_tick_to_come(verbs: Store, look: Any) -> None:
    (job,) = await JobOperations(verbs).registration.add([spec(release="staggered", priority=0)])
    tick = await look.fetchval("SELECT next_tick FROM cursors")
    await JobOperations(verbs).registration.patch(job.id, {"release": "exact"})
    assert tuple(await look.fetchrow("SELECT next_tick, fire_at FROM cursors")) == (tick, tick)
    assert await history(look) == []


async def test_an_edit_back_to_the_schedule_it_had_repeats_no_instant(verbs: Store, look: Any) -> None:
    job = await job_of_old(verbs, look, 2.5 * HOUR)
    ticks = await run(verbs, look, job, 2)
    await JobOperations(verbs).registration.patch(job.id, {"schedule": "every 1h"})
    await JobOperations(verbs).registration.patch(job.id, {"schedule": "0 * * * *"})
    cursor = await look.fetchrow("SELECT * FROM cursors")
    assert cursor["last_tick"] >= ticks[-1]
    assert cursor["next_tick"] > await database_time(look)
    await clean(verbs, look, job)


async def test_a_paused_job_that_is_edited_stays_paused_and_its_ticks_are_distinguished(
    verbs: Store, look: Any
) -> None:
    job = await paused_for(verbs, look, 3)
    edited, _ = await JobOperations(verbs).registration.patch(job.id, {"schedule": "15 * * * *"}, by="bob")
    assert (edited.status, edited.paused_by) == ("paused", "ada")
    assert await ticks_of(look, "skipped", "paused") == 4
    assert [span[:2] for span in await spans(look, job)] == [
        ("created", "paused"),
        ("paused", "edited"),
        ("paused", None),
    ]
    await JobOperations(verbs).lifecycle.resume(job.id)
    await clean(verbs, look, job)


@pytest.mark.parametrize(("on_resume", "owed"), [("once", 1), ("all", 4)])
async def test_an_edit_keeps_what_a_pause_said_of_its_ticks(verbs: Store, look: Any, on_resume: Any, owed: int) -> None:
    job = await paused_for(verbs, look, 3, on_resume=on_resume)
    former = await look.fetchval("SELECT schedule FROM cursors")
    edited, _ = await JobOperations(verbs).registration.patch(job.id, {"schedule": "0 0 1 1 *"}, by="bob")
    assert (edited.status, edited.on_resume) == ("paused", on_resume)
    assert await ticks_of(look, "skipped", "paused") == 4 - owed
    kept = await look.fetchrow("SELECT * FROM catchups")
    assert (kept["left_over"], kept["until"], kept["schedule"]) == (owed, await full_hour(look), former)
    assert await verbs.catchups.due({kept["partition"]: 0}, 10) == [], "not before the pause is over"
    assert (await clean(verbs, look, job))["open catching up"] == owed
    await JobOperations(verbs).lifecycle.resume(job.id)
    assert len(await verbs.catchups.due({kept["partition"]: 0}, 10)) == 1
    assert (await clean(verbs, look, job))["open catching up"] == owed


@pytest.mark.parametrize("change", ["resume", "edit", "delete"])
async def test_the_ticks_of_a_pause_are_counted_outside_the_event_loop(
    verbs: Store, look: Any, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """For some rules that takes half a second and more, for every job that was paused for a year."""
    job = await paused_for(verbs, look, 3)
    counted_by: list[threading.Thread] = []

    def count(*arguments: Any) -> list[MissedRange]:
        counted_by.append(threading.current_thread())
        return split_by_day(*arguments)

    monkeypatch.setattr(moves, "split_by_day", count)
    if change == "resume":
        await JobOperations(verbs).lifecycle.resume(job.id)
    elif change == "edit":
        await JobOperations(verbs).registration.patch(job.id, {"schedule": "0 0 1 1 *"})
    else:
        await JobOperations(verbs).lifecycle.delete(job.id)
    assert counted_by
    assert threading.main_thread() not in counted_by


async def test_a_deleted_job_keeps_its_run_in_flight_and_expects_nothing_more(verbs: Store, look: Any) -> None:
    job = await job_of_old(verbs, look, 4.5 * HOUR)
    tick = await fire(verbs, look, job)
    await JobOperations(verbs).lifecycle.delete(job.id, by="ada")
    assert await ticks_of(look, "skipped", "deleted") >= 3
    assert await clean(verbs, look, job) | {"open running": 1} == await clean(verbs, look, job)
    await settle(verbs, look, job, tick)
    assert (await clean(verbs, look, job))["succeeded"] == 1
    assert await spans(look, job) == [("created", "deleted", "ada")]


async def test_a_job_that_is_deleted_in_its_pause_has_no_tick_left_open(verbs: Store, look: Any) -> None:
    job = await paused_for(verbs, look, 3)
    await JobOperations(verbs).lifecycle.delete(job.id)
    assert await clean(verbs, look, job) == {"succeeded": 6, "skipped: paused": 4}


async def test_after_the_last_run_of_a_bounded_job_nothing_is_expected(verbs: Store, look: Any) -> None:
    job = await job_of_old(verbs, look, 6.5 * HOUR, max_runs=2)
    for _ in range(2):
        tick = await fire(verbs, look, job, careful=True)
        await settle(verbs, look, job, tick)
    assert await verbs.upkeep.complete_jobs()
    assert await clean(verbs, look, job) == {"succeeded": 2}
    await JobOperations(verbs).registration.patch(job.id, {"max_runs": 3})
    assert await clean(verbs, look, job) == {"succeeded": 2}


# -- one-offs


async def test_a_one_off_is_expected_once_also_when_it_is_late(verbs: Store, look: Any) -> None:
    at = (await full_hour(look) - 5 * HOUR).isoformat()
    (job,) = await JobOperations(verbs).registration.add([spec(schedule=at, allow_past=True)])
    assert await clean(verbs, look, job) == {"open due": 1}
    tick = await fire(verbs, look, job)
    await settle(verbs, look, job, tick)
    assert await clean(verbs, look, job) == {"succeeded": 1}


async def test_a_one_off_that_falls_into_a_pause_runs_after_it_if_that_was_asked_for(verbs: Store, look: Any) -> None:
    at = await full_hour(look) + HOUR
    (job,) = await JobOperations(verbs).registration.add([spec(schedule=at.isoformat())])
    await JobOperations(verbs).lifecycle.pause(job.id, on_resume="once")
    past = await full_hour(look) - HOUR
    await look.execute("UPDATE jobs SET since = $1, created_at = $1", past - HOUR)
    await look.execute("DELETE FROM segments")
    await look.execute(
        "UPDATE jobs SET definition = jsonb_set(definition, '{schedule}', to_jsonb($1::text))", past.isoformat()
    )
    await look.execute("UPDATE jobs SET anchor = $1", past)
    resumed = await JobOperations(verbs).lifecycle.resume(job.id)
    assert resumed.status == "active"
    assert await look.fetchval("SELECT next_tick FROM catchups") == past
    assert await clean(verbs, look, job) == {"open catching up": 1}


async def test_a_one_off_is_collected_when_it_has_been_over_for_long_enough(verbs: Store, look: Any) -> None:
    at = (await full_hour(look) - 5 * HOUR).isoformat()
    (job,) = await JobOperations(verbs).registration.add(
        [spec(name="once", schedule=at, allow_past=True, collect_after=3600)]
    )
    await JobOperations(verbs).registration.add([spec(name="bounded", schedule="every 1h", max_runs=1)])
    await settle(verbs, look, job, await fire(verbs, look, job))
    await look.execute("UPDATE cursors SET ended = true, next_tick = NULL, fire_at = NULL")
    assert len(await verbs.upkeep.complete_jobs()) == 2
    assert await JobOperations(verbs).automatic.delete_completed() == 0
    remaining = await look.fetchval("SELECT collect_at - now() FROM jobs WHERE name = 'once'")
    assert timedelta(minutes=59) < remaining <= HOUR
    await look.execute("UPDATE jobs SET collect_at = now() WHERE collect_at IS NOT NULL")
    await look.execute("UPDATE cluster SET held_at = now(), held_by = 'clock', held_reason = 'a step'")
    assert await JobOperations(verbs).automatic.delete_completed() == 0, "the clock may be wrong"
    await look.execute("UPDATE cluster SET held_at = NULL, held_by = NULL, held_reason = NULL")
    assert await JobOperations(verbs).automatic.delete_completed() == 1
    assert (await verbs.jobs.get(job.id)).status == "deleted"
    assert (await verbs.jobs.find("bounded")).status == "completed"
    assert (await verbs.runs.get(RunKey(await number_of(look, job), await full_hour(look) - 5 * HOUR))) is not None
    assert await clean(verbs, look, job) == {"succeeded": 1}
