"""Tasks, jobs without a schedule, on a real PostgreSQL: registered, edited, paused, deleted, explained, audited."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from detent.contract.job import Job
from detent.contract.tick import BackfillRequest
from detent.domain.job import JobSpec
from detent.domain.schedule import tzdata_version
from detent.errors import Conflict, UsageError
from detent.jobs import JobOperations
from detent.jobs.explain import TickExplainer
from detent.jobs.explanation import explain
from detent.store import Store
from detent.store.job_writes import FEW
from tests.store.moving import HOUR, HOURLY, NODE, database_time, fire, job_of_old, spec
from tests.support.factories import add_node

KEYS = "SELECT task, key_limit, key_rate, key_shared, key_text FROM cursors"


@pytest.fixture(autouse=True)
async def node(look: Any) -> None:
    await add_node(look, NODE)


def task(**fields: Any) -> JobSpec:
    return spec(**{"schedule": None, "name": "mail", **fields})


async def add_task(verbs: Store, **fields: Any) -> Job:
    (job,) = await JobOperations(verbs).registration.add([task(**fields)], by="ada")
    return job


async def cursor(look: Any) -> Any:
    return await look.fetchrow("SELECT c.*, s.stored FROM cursors c JOIN schedules s USING (schedule)")


async def test_a_task_is_registered_without_a_next_tick_and_is_active(verbs: Store, look: Any) -> None:
    job = await add_task(verbs, priority=-7)
    assert (job.schedule, job.next_run_at, job.status, job.description) == (None, None, "active", "On demand")
    assert await verbs.jobs.get(job.id) == job
    row = await cursor(look)
    assert (row["next_tick"], row["fire_at"], row["ended"], row["priority"]) == (None, None, False, -7)
    assert row["stored"] == '{"kind": "never"}'
    assert tuple(await look.fetchrow(KEYS)) == (True, None, None, False, None)


@pytest.mark.parametrize("count", [1, FEW])
async def test_limits_of_keys_are_columns_of_the_cursor(verbs: Store, look: Any, count: int) -> None:
    limits = {"concurrency_limit": 2, "concurrency_rate": 0.5, "concurrency_scope": "tenant", "concurrency_key": "c"}
    await JobOperations(verbs).registration.add([task(name=f"mail-{n}", **limits) for n in range(count)])
    assert [tuple(row) for row in await look.fetch(KEYS)] == [(True, 2, 0.5, True, "c")] * count


async def test_an_edit_changes_the_limits_of_keys(verbs: Store, look: Any) -> None:
    job = await add_task(verbs, concurrency_limit=2, concurrency_key="c")
    registration = JobOperations(verbs).registration
    changed, _ = await registration.patch(job.id, {"concurrency_limit": 3, "concurrency_rate": 9.0})
    assert (changed.concurrency_limit, changed.concurrency_rate, changed.concurrency_key) == (3, 9, "c")
    assert tuple(await look.fetchrow(KEYS)) == (True, 3, 9.0, False, "c")
    await registration.patch(job.id, dict.fromkeys(("concurrency_limit", "concurrency_rate", "concurrency_key")))
    assert tuple(await look.fetchrow(KEYS)) == (True, None, None, False, None)


async def test_a_job_becomes_a_task_and_a_task_becomes_a_job_with_ticks(verbs: Store, look: Any) -> None:
    job = await job_of_old(verbs, look, 2.5 * HOUR, name="mail")
    due = (await cursor(look))["next_tick"]
    registration = JobOperations(verbs).registration
    became, change = await registration.patch(job.id, {"schedule": None})
    assert (change, became.schedule, became.next_run_at, became.status) == ("updated", None, None, "active")
    row = await cursor(look)
    assert (row["task"], row["next_tick"], row["ended"]) == (True, None, False)
    first, *_ = await look.fetch("SELECT * FROM run_history ORDER BY scheduled_at")
    assert (first["scheduled_at"], first["reason"]) == (due, "edited")
    back, _ = await registration.patch(job.id, {"schedule": HOURLY})
    row = await cursor(look)
    assert (row["task"], row["next_tick"]) == (False, back.next_run_at)
    assert back.next_run_at is not None and back.next_run_at > await database_time(look)
    rows = await look.fetch(
        "SELECT stored->>'kind' AS kind FROM segments JOIN schedules USING (schedule) ORDER BY since"
    )
    assert [row["kind"] for row in rows] == ["cron", "never"]


async def test_an_upsert_of_the_same_task_changes_nothing_and_of_a_schedule_changes_it(verbs: Store, look: Any) -> None:
    job = await add_task(verbs)
    registration = JobOperations(verbs).registration
    assert (await registration.upsert(task()))[1] == "unchanged"
    assert (await registration.upsert(task(payload={"a": 1})))[1] == "updated"
    changed, change = await registration.upsert(spec(name="mail"))
    assert (change, changed.id, changed.schedule) == ("updated", job.id, HOURLY)
    results = await JobOperations(verbs).batches.upsert([task(), task(name="other")])
    assert [result.change for result in results] == ["updated", "created"]
    assert [row["task"] for row in await look.fetch(KEYS)] == [True, True]


async def test_a_completed_job_that_becomes_a_task_is_active_again(verbs: Store, look: Any) -> None:
    (job,) = await JobOperations(verbs).registration.add([spec(schedule={"at": "2090-01-01T00:00:00Z"}, name="mail")])
    await look.execute("UPDATE cursors SET next_tick = NULL, fire_at = NULL")
    await look.execute("UPDATE jobs SET status = 'completed', collect_at = now()")
    became, _ = await JobOperations(verbs).registration.patch(job.id, {"schedule": None})
    assert became.status == "active"
    assert await look.fetchval("SELECT collect_at FROM jobs") is None


async def test_a_field_about_ticks_keeps_a_job_from_becoming_a_task(verbs: Store, look: Any) -> None:
    (job,) = await JobOperations(verbs).registration.add([spec(concurrent_policy="QUEUE")])
    with pytest.raises(UsageError) as caught:
        await JobOperations(verbs).registration.patch(job.id, {"schedule": None})
    assert caught.value.pointer == "/concurrent_policy"
    await JobOperations(verbs).registration.patch(job.id, {"schedule": None, "concurrent_policy": None})
    assert (await cursor(look))["task"]


async def test_a_task_is_paused_resumed_and_deleted(verbs: Store, look: Any) -> None:
    job = await add_task(verbs)
    lifecycle = JobOperations(verbs).lifecycle
    assert (await lifecycle.pause(job.id, "why not")).status == "paused"
    for on_resume in ("skip", "once", "all"):
        await lifecycle.pause(job.id)
        resumed = await lifecycle.resume(job.id, on_resume=on_resume)
        assert (resumed.status, resumed.next_run_at) == ("active", None)
        assert not (await cursor(look))["ended"]
    assert await verbs.upkeep.complete_jobs() == []
    assert await look.fetchval("SELECT count(*) FROM catchups") == 0
    await lifecycle.pause(job.id)
    await JobOperations(verbs).registration.patch(job.id, {"payload": 1})
    assert (await cursor(look))["task"]
    await lifecycle.delete(job.id)
    assert await look.fetchval("SELECT status FROM jobs") == "deleted"


async def test_a_task_is_triggered(verbs: Store, look: Any) -> None:
    job = await add_task(verbs, priority=42)
    key = await JobOperations(verbs).lifecycle.trigger(job.id, {"to": "a"})
    assert key.manual
    assert await look.fetchval("SELECT priority FROM backlog") == 42


async def test_commands_about_the_ticks_of_a_task_say_that_it_has_none(verbs: Store, look: Any) -> None:
    job = await add_task(verbs)
    now = await database_time(look)
    with pytest.raises(Conflict, match="'mail' has no schedule: its runs are enqueued"):
        await JobOperations(verbs).lifecycle.skip(job.id, now + HOUR)
    with pytest.raises(Conflict, match="'mail' has no schedule: its runs are enqueued"):
        await JobOperations(verbs).backfills.add(job.id, BackfillRequest(from_=now - HOUR))


async def sentences(verbs: Store, job_id: UUID, at: str) -> list[str]:
    return explain((await TickExplainer(verbs).story(job_id, at)).facts)


async def test_a_time_of_a_task_is_explained(verbs: Store, look: Any) -> None:
    job = await add_task(verbs)
    await look.execute("UPDATE jobs SET created_at = created_at - interval '2 hours'")
    (words,) = await sentences(verbs, job.id, f"{await database_time(look) - HOUR:%Y-%m-%dT%H:%M:%SZ}")
    assert "is not a tick of 'mail'. It had no schedule: its runs were enqueued, set by revision 1" in words
    (words,) = await sentences(verbs, job.id, "2090-01-01T00:00:00Z")
    assert "It has no schedule: its runs are enqueued" in words


async def test_the_ledger_expects_nothing_of_a_task(verbs: Store, look: Any) -> None:
    job = await job_of_old(verbs, look, 2.5 * HOUR, name="mail")
    await fire(verbs, look, job)
    await JobOperations(verbs).registration.patch(job.id, {"schedule": None})
    now = await database_time(look)
    number = (await cursor(look))["job"]
    reading = await verbs.ledger.read(number, (now - timedelta(days=1), now + timedelta(days=1)))
    assert [segment.schedule.kind for segment in reading.segments] == ["cron", "never"]
    assert reading.unread == []


async def test_new_zone_data_leaves_a_task_alone(verbs: Store, look: Any) -> None:
    await add_task(verbs, timezone="Europe/Berlin")
    await look.execute("UPDATE cluster SET tzdata = NULL")
    before = (await cursor(look))["generation"]
    assert await JobOperations(verbs).zone_data.renew(tzdata_version()) == 0
    assert (await cursor(look))["generation"] == before


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"schedule": None}, "has no schedule"),
        ({"priority": 10}, "has the priority 10"),
        ({"priority": -1}, "has the priority -1"),
        ({"concurrency_limit": 1}, "has a concurrency limit"),
        ({"retry_on": ["TimeoutError"]}, "has retries by exception"),
        ({"retry_delays": {"TimeoutError": 60}}, "has retries by exception"),
        ({"schedule": "cron(0 10 ? * MON *)", "dialect": "aws"}, "has the dialect aws"),
        ({"schedule": "0 14 ? * 2#1", "dialect": "quartz"}, "has an expression of five fields in the dialect quartz"),
        ({"schedule": {"cron": "H H * * *"}}, "has H in its schedule"),
        ({"schedule": {"cron": "@daily", "also": ["@weekly"]}}, "has 'also' in its schedule"),
        ({"schedule": {"every": "1h", "after": "finish"}}, "has 'after' in its schedule"),
    ],
)
async def test_what_an_older_node_cannot_read_is_refused_while_there_is_one(
    verbs: Store, look: Any, fields: dict[str, Any], why: str
) -> None:
    (plain,) = await JobOperations(verbs).registration.add([spec(name="plain")])
    await look.execute("UPDATE nodes SET knows = 20, version = '0.19.0'")
    new = spec(name="mail", **fields)
    jobs = JobOperations(verbs)
    for attempt in (
        jobs.registration.add([spec(), new]),
        jobs.registration.upsert(new),
        jobs.batches.create([spec(), new]),
        jobs.batches.upsert([new]),
    ):
        with pytest.raises(Conflict, match=f"'mail' {why}, and the node .*0.19.0.* cannot read it: upgrade all nodes"):
            await attempt
    with pytest.raises(Conflict, match=f"'plain' {why}"):
        await jobs.registration.patch(plain.id, fields)
    assert await look.fetchval("SELECT count(*) FROM jobs") == 1
    await jobs.registration.patch(plain.id, {"payload": 1})
    await look.execute("UPDATE nodes SET evicted = true")
    await jobs.registration.add([new])
