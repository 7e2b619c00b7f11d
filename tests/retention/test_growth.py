"""Nothing grows without bound: schedules, revisions and spans go when nothing needs them, and not before."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from detent.domain.job import HttpTarget, JobSpec
from detent.errors import NotFound
from detent.jobs import JobOperations
from detent.store import Store, sql
from detent.store.db import PoolName
from detent.upkeep import retention as keeping
from detent.upkeep.retention import Keeper
from tests.retention.conftest import NODE
from tests.support.factories import add_live_run
from tests.support.waiting import until

DAY = timedelta(days=1)
KEEP = 90
HTTP = HttpTarget(url="http://127.0.0.1:9/")
KNOWS = 1_000


@pytest.fixture(autouse=True)
def none_are_spared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "SPARED", {"schedules": 0, "queues": 0})


@pytest.fixture(autouse=True)
async def knowing_node(look: Any) -> None:
    await look.execute("UPDATE nodes SET knows = $1", KNOWS)


async def keep_house(look: Any, store: Store, **options: Any) -> None:
    await look.execute("UPDATE turns SET done_at = NULL")
    await Keeper(store, NODE, KEEP, None, lambda: None, **options).tick()


async def schedules(look: Any) -> set[str]:
    return {row[0] for row in await look.fetch("SELECT stored->>'cron' FROM schedules")}


async def a_day_later(look: Any) -> None:
    await look.execute("UPDATE schedules SET unused_since = unused_since - interval '25 hours'")


async def add(store: Store, schedule: str, **fields: Any) -> Any:
    (job,) = await JobOperations(store).registration.add([JobSpec(schedule=schedule, target=HTTP, **fields)])
    return job


# --- schedules ---


async def test_a_schedule_that_no_job_has_any_more_is_removed_a_day_later(look: Any, store: Store) -> None:
    job = await add(store, "1 1 * * *")
    await add(store, "2 2 * * *")
    await JobOperations(store).registration.patch(job.id, {"schedule": "3 3 * * *"})
    await look.execute("DELETE FROM segments")
    await keep_house(look, store)
    await keep_house(look, store)
    assert await schedules(look) == {"1 1 * * *", "2 2 * * *", "3 3 * * *"}  # not before a day has passed
    await a_day_later(look)
    await keep_house(look, store)
    assert await schedules(look) == {"2 2 * * *", "3 3 * * *"}


async def test_a_schedule_that_a_span_or_a_catch_up_needs_stays(look: Any, store: Store) -> None:
    jobs = [await add(store, f"{n} 1 * * *") for n in range(3)]
    for n, job in enumerate(jobs):
        await JobOperations(store).registration.patch(job.id, {"schedule": f"{n} 2 * * *"})
    numbers = [await look.fetchval("SELECT job FROM jobs WHERE id = $1", job.id) for job in jobs]
    await look.execute(
        "INSERT INTO catchups (job, partition, kind, schedule, since, until, next_tick, left_over)"
        " SELECT job, 1, 'missed', schedule, since, until, since, 1 FROM segments WHERE job = $1",
        numbers[1],
    )
    await look.execute("DELETE FROM segments WHERE job <> $1", numbers[0])
    for _ in range(2):
        await keep_house(look, store)
        await a_day_later(look)
    await keep_house(look, store)
    assert {text for text in await schedules(look) if text.endswith("1 * * *")} == {"0 1 * * *", "1 1 * * *"}


async def test_a_schedule_that_is_used_again_before_it_goes_stays(look: Any, store: Store) -> None:
    job = await add(store, "1 1 * * *")
    await JobOperations(store).registration.patch(job.id, {"schedule": "3 3 * * *"})
    await look.execute("DELETE FROM segments")
    await keep_house(look, store)
    await a_day_later(look)
    await add(store, "1 1 * * *")
    assert await look.fetchval("SELECT count(*) FROM schedules WHERE unused_since IS NOT NULL") == 0
    await keep_house(look, store)
    assert "1 1 * * *" in await schedules(look)


async def test_a_registration_under_way_keeps_its_schedule_from_being_removed(
    look: Any, store: Store, another: Any
) -> None:
    """The registration has read the number and has not committed: the removal must not pull it away from under it."""

    job = await add(store, "1 1 * * *")
    await JobOperations(store).registration.patch(job.id, {"schedule": "3 3 * * *"})
    await look.execute("DELETE FROM segments")
    await keep_house(look, store)
    await a_day_later(look)
    number, digest = await look.fetchrow("SELECT schedule, digest FROM schedules WHERE unused_since IS NOT NULL")
    async with another.transaction():
        kept = await another.fetch(sql.schedule.KEEP.text, [number])
        assert [row["schedule"] for row in kept] == [number]
        await asyncio.wait_for(keep_house(look, store), 10)
        assert await look.fetchval("SELECT count(*) FROM schedules WHERE digest = $1", digest) == 1
    await keep_house(look, store)
    assert await look.fetchval("SELECT unused_since FROM schedules WHERE digest = $1", digest) is not None


async def test_a_schedule_that_is_removed_under_a_registration_is_written_anew(
    look: Any, store: Store, another: Any
) -> None:
    """The removal holds the row when the registration wants it: the registration waits, and finds that it is gone."""
    job = await add(store, "1 1 * * *")
    await JobOperations(store).registration.patch(job.id, {"schedule": "3 3 * * *"})
    await look.execute("DELETE FROM segments")
    await keep_house(look, store)
    async with another.transaction():
        await another.execute("DELETE FROM schedules WHERE unused_since IS NOT NULL")
        adding = asyncio.create_task(add(store, "1 1 * * *"))
        await until(lambda: look.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"), what="it waits")
    again = await adding
    row = await look.fetchrow(
        "SELECT s.stored->>'cron' AS cron FROM jobs j JOIN cursors c USING (job) LEFT JOIN schedules s USING (schedule)"
        " WHERE j.id = $1",
        again.id,
    )
    assert row["cron"] == "1 1 * * *"


async def test_schedules_stay_while_a_node_is_alive_that_does_not_know_the_mark(look: Any, store: Store) -> None:
    job = await add(store, "1 1 * * *")
    await JobOperations(store).registration.patch(job.id, {"schedule": "3 3 * * *"})
    await look.execute("DELETE FROM segments")
    await keep_house(look, store)
    await a_day_later(look)
    await look.execute("UPDATE nodes SET knows = 9")
    await keep_house(look, store)
    assert "1 1 * * *" in await schedules(look)


async def test_the_cache_of_schedules_is_bounded(look: Any, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("detent.store.cursors.MAX_CACHED", 5)
    for n in range(20):
        await add(store, f"{n} 1 * * *")
    numbers = [row["schedule"] for row in await look.fetch("SELECT schedule FROM schedules")]
    assert len(await store.cursors.schedules(set(numbers))) == 20
    assert len(store.cursors._schedules) == 5


async def test_a_queue_that_nothing_is_in_is_removed_a_day_later(look: Any, store: Store) -> None:
    jobs = {name: await add(store, "1 1 * * *", queue=name) for name in ("left", "busy", "limited", "again", "used")}
    for name in ("left", "busy", "limited", "again"):
        await JobOperations(store).registration.patch(jobs[name].id, {"queue": "used"})
    number = await look.fetchval("SELECT job FROM jobs WHERE id = $1", jobs["busy"].id)
    await add_live_run(look, number, queue=await look.fetchval("SELECT queue FROM queues WHERE name = 'busy'"))
    await look.execute("INSERT INTO limits (tenant, queue, max_concurrent) VALUES (1, 'limited', 3)")
    await keep_house(look, store)
    await look.execute("UPDATE queues SET unused_since = unused_since - interval '25 hours'")
    await JobOperations(store).registration.patch(jobs["again"].id, {"queue": "again"})
    await keep_house(look, store)
    names = {row["name"] for row in await look.fetch("SELECT name FROM queues")}
    assert names == {"default", "busy", "limited", "again", "used"}
    await JobOperations(store).registration.patch(jobs["left"].id, {"queue": "left"})
    place = "SELECT q.name FROM cursors c JOIN queues q USING (queue) JOIN jobs j USING (job) WHERE id = $1"
    assert await look.fetchval(place, jobs["left"].id) == "left"


# --- revisions ---


async def revisions(store: Store, job: Any) -> list[int]:
    return [one.revision for one in (await store.revisions.list(job.id, limit=100))[0]]


async def test_of_former_revisions_so_many_are_kept_and_those_that_live_runs_need(look: Any, store: Store) -> None:
    job = await add(store, "1 1 * * *", name="edited")
    number = await look.fetchval("SELECT job FROM jobs WHERE id = $1", job.id)
    for n in range(9):
        await JobOperations(store).registration.patch(job.id, {"priority": n})
    assert await revisions(store, job) == list(range(10, 0, -1))
    await add_live_run(look, number, revision=3)
    await keep_house(look, store, revisions=4)
    assert await revisions(store, job) == [10, 9, 8, 7, 6, 3]
    definitions = await store.live_runs.definitions([(number, 3)])
    assert definitions[number, 3].spec.priority == 1
    await look.execute("DELETE FROM live_runs")
    await keep_house(look, store, revisions=4)
    assert await revisions(store, job) == [10, 9, 8, 7, 6]


async def test_what_is_reported_revisions_that_are_gone_is_true(look: Any, store: Store) -> None:
    job = await add(store, "1 1 * * *", name="edited")
    number = await look.fetchval("SELECT job FROM jobs WHERE id = $1", job.id)
    for n in range(9):
        await JobOperations(store).registration.patch(job.id, {"priority": n}, by=f"hand {n + 2}")
    await look.execute(
        "UPDATE jobs SET created_at = now() - interval '10 hours', revised_at = now() - interval '1 hour'"
    )
    await look.execute(
        "UPDATE job_revisions SET made_at = now() - (11 - revision) * interval '1 hour',"
        " replaced_at = now() - (10 - revision) * interval '1 hour'"
    )
    await add_live_run(look, number, revision=3)
    await keep_house(look, store, revisions=4)
    with pytest.raises(NotFound, match="no longer kept"):
        await JobOperations(store).revisions.get(job.id, 2)
    with pytest.raises(NotFound, match="has no revision 11"):
        await JobOperations(store).revisions.get(job.id, 11)
    (at,) = await look.fetchrow("SELECT now() - interval '5 hours 30 minutes'")  # revision 5 was in force
    assert await store.database.fetch(PoolName.REQUEST, sql.revision.FIND_AT, number, at) == []
    (row,) = await store.database.fetch(PoolName.REQUEST, sql.job.READ_FOR_EXPLANATION, number)
    assert row["created_by"] is None


# --- spans ---


async def old_span(look: Any, job: Any, days_ago: float, length: float = 1) -> int:
    number: int = await look.fetchval("SELECT job FROM jobs WHERE id = $1", job.id)
    await look.execute(
        "INSERT INTO segments (job, since, until, schedule, opened, closed)"
        " SELECT $1, now() - $2::interval, now() - $3::interval, schedule, 'created', 'edited'"
        " FROM cursors WHERE job = $1",
        number, days_ago * DAY, (days_ago - length) * DAY,
    )  # fmt: skip
    return number


async def spans(look: Any) -> list[int]:
    return [
        round(row["days"]) for row in await look.fetch(
            "SELECT extract(epoch FROM now() - since) / 86400 AS days FROM segments ORDER BY since"
        )
    ]  # fmt: skip


async def dropped(look: Any, days_ago: float) -> None:
    await look.execute(
        "INSERT INTO history_parts (parent, name, since, until, detached_at, dropped_at)"
        " VALUES ('run_history', 'gone', now() - $1::interval - interval '1 day', now() - $1::interval, now(), now())",
        days_ago * DAY,
    )


async def test_spans_go_with_the_history_of_their_ticks(look: Any, store: Store) -> None:
    job = await add(store, "1 1 * * *")
    for days in (300, 120, 95, 50):
        await old_span(look, job, days)
    await keep_house(look, store)
    assert await spans(look) == [300, 120, 95, 50]  # nothing of history is gone
    await dropped(look, 100)
    await keep_house(look, store)
    assert await spans(look) == [95, 50]


async def test_a_span_with_something_on_record_or_to_be_caught_up_with_stays(look: Any, store: Store) -> None:
    job = await add(store, "1 1 * * *")
    number = await old_span(look, job, 300)
    await old_span(look, job, 200)
    await old_span(look, job, 150)
    await dropped(look, 100)
    at = await look.fetchval("SELECT now() - interval '299.5 days'")
    await look.execute("SELECT make_history_part('run_history', $1)", at)
    await look.execute(
        "INSERT INTO run_history (job, scheduled_at, finished_at, serial, revision, status, token, attempt)"
        " VALUES ($1, $2, now(), 0, 1, 1, 1, 1)",
        number, at,
    )  # fmt: skip
    await look.execute(
        "INSERT INTO catchups (job, partition, kind, schedule, since, until, next_tick, left_over)"
        " SELECT $1, 1, 'backfill', schedule, now() - interval '199.9 days', now() - interval '199.1 days',"
        " now() - interval '199.9 days', 1 FROM cursors",
        number,
    )
    await keep_house(look, store)
    assert await spans(look) == [300, 200]


async def test_ticks_of_a_time_whose_history_is_gone_are_unknown_and_not_missing(look: Any, store: Store) -> None:
    from detent.jobs.explanation import explain

    job = await add(store, "0 * * * *")
    await look.execute("UPDATE jobs SET created_at = now() - interval '200 days'")
    await look.execute("UPDATE cursors SET last_tick = next_tick - interval '1 hour'")
    await dropped(look, 1)
    now = await look.fetchval("SELECT now()")
    found = await JobOperations(store).audit.ticks(job.id, now - 2 * DAY, now, 500)
    assert found.ticks[0].status == "unknown"
    assert [tick.status for tick in found.ticks].count("unknown") == 1
    assert 20 <= [tick.status for tick in found.ticks].count("missing") <= 25
    tick = (now - 2 * DAY).replace(minute=0, second=0, microsecond=0)
    told = " ".join(explain((await JobOperations(store).explainer.story(job.id, tick.isoformat())).facts))
    assert "is no longer kept" in told
    assert "Nobody knows" not in told
