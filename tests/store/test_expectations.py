"""Expectations: which ticks count as missed, when a notice is sent, and that it is sent once."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from detent.cluster.operations import ClusterOperations
from detent.domain.identity import decode_run_id
from detent.domain.job import HttpTarget, JobSpec
from detent.jobs import JobOperations
from detent.store import Store, sql
from detent.store.expectations import DeadlineResult
from detent.store.statement import STATEMENTS
from tests.support.factories import add_live_run, add_node
from tests.support.waiting import until

NODE = 11
ALL = list(range(256))
NOW_AT_ONCE = timedelta()
MINUTE = timedelta(minutes=1)
LEASE = timedelta(seconds=60)
EMPTY = "DELETE FROM notices; DELETE FROM incidents; DELETE FROM expectations"


class Made(NamedTuple):
    id: UUID
    job: int
    born: datetime


@pytest.fixture(autouse=True)
async def nothing_else(look: Any) -> None:
    await look.execute(EMPTY)
    await add_node(look, NODE)


async def make(verbs: Store, look: Any, **fields: Any) -> Made:
    """A job that was made an hour ago and has ticked every minute since; nothing is known of its ticks."""
    values = {"expect_finish_within": 60.0, **fields}
    spec = JobSpec(schedule="every 1m", target=HttpTarget(url="http://127.0.0.1:9/"), **values)
    (job,) = await JobOperations(verbs).registration.add([spec])
    number = await look.fetchval("SELECT job FROM jobs WHERE id = $1", job.id)
    born = datetime.now(UTC).replace(microsecond=0) - 60 * MINUTE
    await look.execute("UPDATE expectations SET judged = $1, check_at = now()", born)
    return Made(job.id, number, born)


async def ended(
    look: Any, made: Made, minute: int, *, status: int = 1, took: float = 1, late: float = 0, **more: Any
) -> None:
    at = made.born + minute * MINUTE
    ran = status in (1, 2)
    values = {
        "job": made.job,
        "scheduled_at": at,
        "token": 1 if ran else None,
        "attempt": 1 if ran else None,
        "started_at": at + timedelta(seconds=late) if ran else None,
        "finished_at": at + timedelta(seconds=late + took),
        "serial": 0,
        "revision": 1,
        "status": status,
        **more,
    }
    places = ", ".join(f"${n}" for n in range(1, len(values) + 1))
    await look.execute(f"INSERT INTO run_history ({', '.join(values)}) VALUES ({places})", *values.values())


async def evaluate(verbs: Store, look: Any) -> list[DeadlineResult]:
    await look.execute("UPDATE expectations SET check_at = now() WHERE check_at < 'infinity'")
    found, _ = await verbs.expectations.evaluate(NODE, ALL, 100, NOW_AT_ONCE)
    return found


async def told(look: Any) -> list[str]:
    return [row["event"] for row in await look.fetch("SELECT event FROM notices ORDER BY notice")]


# --- which ticks are missed ---


async def test_a_tick_that_succeeded_in_time_is_as_expected(verbs: Store, look: Any) -> None:
    made = await make(verbs, look, expect_start_within=10)
    await ended(look, made, 1, took=59)
    assert await evaluate(verbs, look) == []
    assert await told(look) == []


@pytest.mark.parametrize(
    ("expectation", "tick"),
    [
        ("finish", {"took": 61}),
        ("finish", {"status": 2}),
        ("finish", {"status": 5, "reason": "merged"}),
        ("start", {"late": 31}),
        ("start", {"late": 31, "status": 2}),
        ("start", {"status": 5, "reason": "merged"}),
    ],
)
async def test_a_tick_is_missed_when_it_was_late_dead_or_never_ran(
    verbs: Store, look: Any, expectation: str, tick: dict[str, Any]
) -> None:
    fields = {"expect_finish_within": None, "expect_start_within": None, f"expect_{expectation}_within": 60}
    made = await make(verbs, look, **{**fields, "expect_start_within": 30 if expectation == "start" else None})
    await ended(look, made, 1, **tick)
    (result,) = await evaluate(verbs, look)
    assert (result.kind, result.missed, result.opens, result.job_id) == (expectation, 1, True, made.id)
    assert result.tick == made.born + MINUTE
    assert await told(look) == ["missed"]


@pytest.mark.parametrize("tick", [{"status": 3}, {"status": 4, "reason": "overlap"}])
async def test_a_tick_that_was_cancelled_or_skipped_counts_neither_way(
    verbs: Store, look: Any, tick: dict[str, Any]
) -> None:
    made = await make(verbs, look, notify_after=2, expect_start_within=30)
    await ended(look, made, 1, took=61, late=31)
    await ended(look, made, 2, **tick)
    await ended(look, made, 3, took=61, late=31)
    found = await evaluate(verbs, look)
    assert sorted((result.kind, result.streak) for result in found) == [("finish", 2), ("start", 2)]


async def test_a_run_that_is_not_over_is_missed_and_one_that_began_has_started(verbs: Store, look: Any) -> None:
    made = await make(verbs, look, expect_start_within=30)
    at = made.born + MINUTE
    await add_live_run(look, made.job, at, owner=NODE, started_at=at + timedelta(seconds=5))
    assert [result.kind for result in await evaluate(verbs, look)] == ["finish"]


async def test_a_run_that_waits_has_not_started(verbs: Store, look: Any) -> None:
    made = await make(verbs, look, expect_start_within=30, expect_finish_within=None)
    await add_live_run(look, made.job, made.born + MINUTE)
    assert [result.kind for result in await evaluate(verbs, look)] == ["start"]


async def test_a_retry_started_when_its_first_attempt_did(verbs: Store, look: Any) -> None:
    made = await make(verbs, look, expect_start_within=30, expect_finish_within=None)
    at = made.born + MINUTE
    await look.execute(
        "INSERT INTO attempts (job, scheduled_at, serial, token, started_at, finished_at, attempt, outcome)"
        " VALUES ($1, $2, 0, 1, $2, $2, 1, 'failed')",
        *(made.job, at),
    )
    await ended(look, made, 1, late=50, attempt=2, token=2)
    assert await evaluate(verbs, look) == []


async def test_a_tick_that_is_due_and_not_fired_is_missed_once(verbs: Store, look: Any) -> None:
    made = await make(verbs, look)
    at = made.born + MINUTE
    await look.execute("UPDATE cursors SET next_tick = $2, fire_at = $2 WHERE job = $1", made.job, at)
    (result,) = await evaluate(verbs, look)
    assert (result.tick, result.missed) == (at, 1)
    assert await evaluate(verbs, look) == []
    assert await told(look) == ["missed"]


async def test_ticks_that_are_to_be_made_up_for_are_missed(verbs: Store, look: Any) -> None:
    made = await make(verbs, look)
    await look.execute(
        "INSERT INTO catchups (job, partition, kind, schedule, since, until, next_tick, left_over)"
        " VALUES ($1, 1, 'missed', 1, $2, $2, $2, 1)",
        *(made.job, made.born + MINUTE),
    )
    assert [result.missed for result in await evaluate(verbs, look)] == [1]


async def test_a_deadline_that_has_not_come_is_waited_for(verbs: Store, look: Any) -> None:
    made = await make(verbs, look, expect_finish_within=3600)
    await add_live_run(look, made.job, made.born + MINUTE)
    assert await evaluate(verbs, look) == []
    check_at, judged = await look.fetchrow("SELECT check_at, judged FROM expectations")
    assert check_at == made.born + MINUTE + timedelta(hours=1)
    assert judged < made.born + MINUTE


async def test_runs_by_hand_and_backfills_of_old_ticks_are_not_expected(verbs: Store, look: Any) -> None:
    made = await make(verbs, look)
    await ended(look, made, 1, serial=1 << 20, status=2)
    await ended(look, made, -5, status=2)
    assert await evaluate(verbs, look) == []


# --- when a notice is sent ---


async def test_it_is_said_after_so_many_in_a_row_once_and_then_the_recovery(verbs: Store, look: Any) -> None:
    made = await make(verbs, look, notify_after=3)
    for minute in (1, 2):
        await ended(look, made, minute, status=2)
    assert [result.opens for result in await evaluate(verbs, look)] == [False]
    await move_on(look, made, 3)
    await ended(look, made, 4, status=2)
    assert [result.opens for result in await evaluate(verbs, look)] == [True]
    await move_on(look, made, 5)
    await ended(look, made, 6, status=2)
    assert [(result.opens, result.streak) for result in await evaluate(verbs, look)] == [(False, 4)]
    assert await told(look) == ["missed"]
    await move_on(look, made, 7)
    await ended(look, made, 8)
    assert [result.closes for result in await evaluate(verbs, look)] == [True]
    assert await told(look) == ["missed", "recovered"]


async def move_on(look: Any, made: Made, minute: int) -> None:
    """Pretend that all ticks up to this minute are evaluated: passes use the present time, these ticks are past."""
    await look.execute("UPDATE expectations SET judged = $1", made.born + minute * MINUTE)


async def test_one_that_was_as_expected_in_between_begins_the_count_anew(verbs: Store, look: Any) -> None:
    made = await make(verbs, look, notify_after=3)
    for minute, status in enumerate((2, 2, 1, 2, 2), 1):
        await ended(look, made, minute, status=status)
    (result,) = await evaluate(verbs, look)
    assert (result.missed, result.streak, result.opens) == (4, 2, False)


async def test_a_run_that_succeeds_after_all_ends_the_incident(verbs: Store, look: Any) -> None:
    made = await make(verbs, look)
    await add_live_run(look, made.job, made.born + MINUTE, owner=NODE)
    assert [result.opens for result in await evaluate(verbs, look)] == [True]
    assert await evaluate(verbs, look) == []
    await look.execute("DELETE FROM live_runs")
    await ended(look, made, 1, took=600)
    assert [result.closes for result in await evaluate(verbs, look)] == [True]
    assert await told(look) == ["missed", "recovered"]
    assert await look.fetchrow("SELECT misses, incident FROM expectations") == (0, None)


async def test_two_leaders_that_evaluate_concurrently_report_once(verbs: Store, look: Any, another: Any) -> None:
    made = await make(verbs, look)
    await ended(look, made, 1, status=2)
    async with another.transaction():
        await another.execute("SELECT FROM expectations FOR UPDATE")  # one is at it
        assert await verbs.expectations.evaluate(NODE, ALL, 100, NOW_AT_ONCE) == ([], False)
    assert len(await evaluate(verbs, look)) == 1
    assert await evaluate(verbs, look) == []
    assert await told(look) == ["missed"]


async def test_an_evicted_node_evaluates_nothing(verbs: Store, look: Any) -> None:
    made = await make(verbs, look)
    await ended(look, made, 1, status=2)
    await look.execute("UPDATE nodes SET evicted = true")
    assert await evaluate(verbs, look) == []


# --- the job changes ---


async def test_a_job_without_expectations_has_no_row(verbs: Store, look: Any) -> None:
    made = await make(verbs, look, expect_finish_within=None)
    assert await look.fetchval("SELECT count(*) FROM expectations") == 0
    await JobOperations(verbs).registration.patch(
        made.id, {"expect_start_within": 5.0, "expect_finish_within": 90.0, "notify_after": 2}
    )
    rows = await look.fetch("SELECT kind, within, notify_after FROM expectations ORDER BY kind")
    assert [tuple(row) for row in rows] == [
        ("finish", timedelta(seconds=90), 2),
        ("start", timedelta(seconds=5), 2),
    ]


async def test_what_is_expected_no_more_ends_its_incident_without_a_word(verbs: Store, look: Any) -> None:
    made = await make(verbs, look)
    await ended(look, made, 1, status=2)
    await evaluate(verbs, look)
    await JobOperations(verbs).registration.patch(made.id, {"expect_finish_within": None})
    assert await look.fetchval("SELECT closed FROM incidents") == "changed"
    assert await told(look) == ["missed"]
    assert await look.fetchval("SELECT count(*) FROM expectations") == 0


async def test_the_ticks_of_a_pause_are_not_evaluated(verbs: Store, look: Any) -> None:
    made = await make(verbs, look)
    await JobOperations(verbs).lifecycle.pause(made.id, "a test")
    assert await evaluate(verbs, look) == []
    assert await look.fetchval("SELECT check_at = 'infinity' FROM expectations")
    await ended(look, made, 1, status=5, reason="merged")
    await JobOperations(verbs).lifecycle.resume(made.id)
    assert await evaluate(verbs, look) == []


async def test_while_all_ticks_are_held_nothing_is_evaluated_and_afterwards_nothing_from_before(
    verbs: Store, look: Any
) -> None:
    made = await make(verbs, look)
    await ended(look, made, 1, status=2)
    await ClusterOperations(verbs).pause_ticks("somebody", "a test")
    assert await evaluate(verbs, look) == []
    assert await look.fetchval("SELECT judged FROM expectations") == made.born
    await ClusterOperations(verbs).resume_ticks()
    assert await evaluate(verbs, look) == []
    await look.execute("UPDATE cluster SET resumed_at = $1", made.born + 2 * MINUTE)
    await move_on(look, made, 0)
    await ended(look, made, 3, status=2)
    (result,) = await evaluate(verbs, look)
    assert (result.missed, result.tick) == (1, made.born + 3 * MINUTE)


async def test_what_was_evaluated_while_the_clock_was_ahead_is_evaluated_again_after_the_hold(
    verbs: Store, look: Any
) -> None:
    await make(verbs, look)
    await look.execute(
        "UPDATE expectations SET judged = now() + interval '1 year', check_at = now() + interval '1 year'"
    )
    await ClusterOperations(verbs).pause_ticks("clock", "it stepped")
    await ClusterOperations(verbs).resume_ticks()
    due = "SELECT judged <= now() AND check_at <= now() FROM expectations"
    assert await look.fetchval(due)
    await look.execute("UPDATE expectations SET judged = now() + interval '1 year'")  # a step that held nothing
    await evaluate(verbs, look)
    assert await look.fetchval("SELECT judged <= now() FROM expectations")


async def test_a_job_that_is_deleted_is_expected_to_do_nothing(verbs: Store, look: Any) -> None:
    made = await make(verbs, look)
    await ended(look, made, 1, status=2)
    await evaluate(verbs, look)
    await JobOperations(verbs).lifecycle.delete(made.id)
    assert await look.fetchval("SELECT closed FROM incidents") == "deleted"
    assert await look.fetchval("SELECT count(*) FROM expectations") == 0


@pytest.mark.parametrize("change", ["deleted", "changed"])
async def test_an_incident_that_is_opened_while_its_job_changes_does_not_stay_open(
    verbs: Store, look: Any, another: Any, change: str
) -> None:
    made = await make(verbs, look)
    await ended(look, made, 1, status=2)
    async with another.transaction():  # its leader judges, and has not told yet
        rows = await another.fetch(sql.incident.EVALUATE_EXPECTATIONS.text, NODE, ALL, 100, NOW_AT_ONCE)
        assert [row["opens"] for row in rows] == [True, None]
        patch = {"expect_finish_within": None}
        changing = asyncio.create_task(
            JobOperations(verbs).lifecycle.delete(made.id)
            if change == "deleted"
            else JobOperations(verbs).registration.patch(made.id, patch)
        )
        waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        await until(lambda: look.fetchval(waits), 10, "the change to wait for the leader")
    await changing
    assert await look.fetchval("SELECT closed FROM incidents") == change
    assert (await verbs.signals.read()).incidents_open == 0


# --- messages ---


async def test_a_sender_so_slow_that_another_took_the_message_can_only_say_that_it_was_sent(
    verbs: Store, look: Any
) -> None:
    made = await make(verbs, look)
    await ended(look, made, 1, status=2)
    await evaluate(verbs, look)
    (slow,) = await verbs.expectations.take(10, LEASE)
    await look.execute("UPDATE notices SET due_at = now()")  # it stood still for longer than its lease
    (other,) = await verbs.expectations.take(10, LEASE)
    before = await look.fetchrow("SELECT * FROM notices")
    await verbs.expectations.put_off(slow, timedelta(), "it was slow")
    await verbs.expectations.give_up(slow, "it was slow")
    assert await look.fetchrow("SELECT * FROM notices") == before
    await verbs.expectations.put_off(other, MINUTE, "nobody there")
    assert await look.fetchval("SELECT error FROM notices") == "nobody there"
    await verbs.expectations.sent(slow)
    assert await look.fetchval("SELECT ended_at IS NOT NULL AND error IS NULL FROM notices")


async def test_a_message_that_is_taken_is_out_of_others_reach_and_the_recovery_waits_for_it(
    verbs: Store, look: Any
) -> None:
    made = await make(verbs, look)
    await ended(look, made, 1, status=2)
    await evaluate(verbs, look)
    await move_on(look, made, 2)
    await ended(look, made, 3)
    await evaluate(verbs, look)
    (notice,) = await verbs.expectations.take(10, LEASE)
    assert (notice.event, notice.tries, notice.job, notice.tenant) == ("missed", 1, notice.job, "default")
    assert await verbs.expectations.take(10, LEASE) == []
    await look.execute("UPDATE notices SET due_at = now() WHERE tries > 0")  # its sender died
    (again,) = await verbs.expectations.take(10, LEASE)
    assert (again.notice, again.tries) == (notice.notice, 2)
    await verbs.expectations.sent(again)
    (recovery,) = await verbs.expectations.take(10, LEASE)
    assert (recovery.event, recovery.incident) == ("recovered", notice.incident)


async def test_people_see_incidents_of_their_tenant_from_the_newest_on(verbs: Store, look: Any) -> None:
    made = await make(verbs, look)
    await ended(look, made, 1, status=2)
    await evaluate(verbs, look)
    (notice,) = await verbs.expectations.take(10, LEASE)
    await verbs.expectations.give_up(notice, "nobody there")
    (seen,) = await verbs.expectations.incidents(tenant=1, before=None, limit=10, only_open=True)
    assert (seen.job_id, seen.expectation, seen.misses, seen.notify_error) == (made.id, "finish", 1, "nobody there")
    assert seen.closed is None
    assert seen.notified_at is None
    assert await verbs.expectations.incidents(tenant=1, before=seen.id, limit=10) == []
    assert await verbs.expectations.incidents(tenant=2, before=None, limit=10) == []


async def test_open_incidents_are_found_among_very_many_that_are_over(verbs: Store, look: Any) -> None:
    made = await make(verbs, look)
    await look.execute(
        "INSERT INTO incidents (tenant, job, kind, within, tick, misses, closed_at, closed)"
        " SELECT 1, $1, 'finish', interval '1 min', now(), 1, now(), 'recovered' FROM generate_series(1, 5000)",
        made.job,
    )
    await ended(look, made, 5, status=2)
    await evaluate(verbs, look)
    await look.execute("ANALYZE incidents")
    await look.execute("SET plan_cache_mode = force_generic_plan")
    for name, arguments in (("incident/list_open", "1, NULL, 20, NULL"), ("incident/count_open", "1, 1000")):
        types = "integer, bigint, bigint, jsonb" if name == "incident/list_open" else "integer, integer"
        await look.execute(f"PREPARE looking ({types}) AS {STATEMENTS[name].text}")
        plan = "\n".join(row[0] for row in await look.fetch(f"EXPLAIN EXECUTE looking ({arguments})"))
        await look.execute("DEALLOCATE looking")
        assert "incidents_open" in plan, plan
    await look.execute("RESET plan_cache_mode")
    assert await verbs.expectations.count_open(tenant=1) == (1, False)
    assert await verbs.expectations.count_open(tenant=2) == (0, False)
    (seen,) = await verbs.expectations.incidents(tenant=1, before=None, limit=10, only_open=True)
    assert seen.run_id is not None
    assert decode_run_id(seen.run_id) == (made.job, made.born + 5 * MINUTE, 0)
    of_job = await verbs.expectations.incidents(tenant=1, before=None, limit=10, job_id=made.id)
    assert len(of_job) == 10
    assert of_job[0] == seen
    assert await verbs.expectations.incidents(tenant=2, before=None, limit=10, job_id=made.id) == []


async def test_an_incident_about_a_tick_that_never_fired_names_no_run(verbs: Store, look: Any) -> None:
    made = await make(verbs, look)
    await look.execute("UPDATE cursors SET next_tick = $2, fire_at = $2 WHERE job = $1", made.job, made.born + MINUTE)
    await evaluate(verbs, look)
    (seen,) = await verbs.expectations.incidents(tenant=1, before=None, limit=10, only_open=True)
    assert (seen.scheduled_at, seen.run_id) == (made.born + MINUTE, None)
