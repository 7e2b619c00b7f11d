"""The verbs people use on jobs, each against a real PostgreSQL."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from detent.contract.job import Job
from detent.domain.job import HttpTarget, JobSpec, PythonTarget
from detent.domain.states import RunStatus
from detent.errors import Conflict, NotFound, UsageError
from detent.jobs import JobOperations
from detent.store import Store
from detent.store import sql as statements
from detent.store.job_search import JobSearch
from tests.support.factories import add_node
from tests.support.ticks import advance_of

HTTP = HttpTarget(url="http://127.0.0.1:9/")
TABLES = ("jobs", "cursors", "schedules", "queues", "job_revisions", "run_history", "live_runs")


def spec(**fields: Any) -> JobSpec:
    return JobSpec(**{"schedule": "every 1h", "target": HTTP, **fields})


async def counts(sql: Any) -> dict[str, int]:
    return {table: await sql.fetchval(f"SELECT count(*) FROM {table}") for table in TABLES}


async def cursor_of(sql: Any, job: Job) -> Any:
    return await sql.fetchrow("SELECT c.* FROM cursors c JOIN jobs USING (job) WHERE id = $1", job.id)


async def listen(sql: Any, channel: str) -> list[str]:
    heard: list[str] = []
    await sql.add_listener(channel, lambda *said: heard.append(said[3]))
    return heard


async def fire(store: Store, sql: Any, job: Job, tick: datetime, next_tick: datetime | None) -> None:
    """Fire a job's tick, wherever its cursor stands."""
    row = await cursor_of(sql, job)
    await sql.execute("UPDATE cursors SET next_tick = $2, fire_at = $2 WHERE job = $1", row["job"], tick)
    advance = advance_of(row["job"], tick, row["generation"], next_tick, next_tick)
    await store.cursors.fire(7, 1, False, [advance])


async def test_the_cursor_of_a_registered_job_is_at_its_first_tick(store: Store, sql: Any) -> None:
    (job,) = await JobOperations(store).registration.add(
        [spec(name="hourly", tags=["a", "b"], queue="mail", max_runs=3)]
    )
    cursor = await cursor_of(sql, job)
    created = job.created_at.replace(microsecond=job.created_at.microsecond // 1000 * 1000)
    assert cursor["next_tick"] == cursor["fire_at"] == job.next_run_at == created + timedelta(hours=1)
    assert cursor["runs_left"] == 3
    assert (job.status, job.revision, job.last_run_at) == ("active", 1, None)
    assert await store.jobs.get(job.id) == job == await store.jobs.find("hourly")
    assert await sql.fetchval("SELECT tags FROM jobs") == ["a", "b"]
    assert await sql.fetchval("SELECT name FROM queues WHERE queue = $1", cursor["queue"]) == "mail"


async def test_jobs_with_the_same_schedule_share_its_row(store: Store, sql: Any) -> None:
    await JobOperations(store).registration.add([spec(schedule="0 9 * * MON") for _ in range(50)])
    await JobOperations(store).registration.add([spec(schedule="0 9 * * MON")])
    assert await sql.fetchval("SELECT count(*) FROM schedules") == 1
    assert await sql.fetchval("SELECT count(DISTINCT name) FROM jobs") == 51


async def test_a_batch_is_registered_as_a_whole_or_not_at_all(store: Store, sql: Any) -> None:
    await JobOperations(store).registration.add([spec(name="taken")])
    before = await counts(sql)
    with pytest.raises(Conflict, match="job named 'taken' already exists"):
        await JobOperations(store).registration.add(
            [spec(name="a", schedule="every 7m", queue="new"), spec(name="taken")]
        )
    with pytest.raises(Conflict, match="job named 'twice' already exists"):
        await JobOperations(store).registration.add([spec(name="twice"), spec(name="twice")])
    with pytest.raises(UsageError):
        await JobOperations(store).registration.add([spec(name="b"), spec(name="c", schedule="nonsense")])
    assert await counts(sql) == before


async def test_two_batches_with_the_same_new_names_in_opposite_order_do_not_wait_for_each_other(
    store: Store,
) -> None:
    names = [f"n{number:03}" for number in range(200)]
    batches = [[spec(name=name) for name in order] for order in (names, names[::-1])]
    results = await asyncio.gather(
        *(JobOperations(store).registration.add(batch) for batch in batches), return_exceptions=True
    )
    assert sorted(type(result).__name__ for result in results) == ["NameTaken", "list"]


async def test_a_registration_is_announced_by_number_and_a_large_one_as_a_sweep(store: Store, sql: Any) -> None:
    from tests.support.waiting import until

    heard = await listen(sql, "detent_jobs")
    await JobOperations(store).registration.add([spec(), spec()])
    await JobOperations(store).registration.add([spec() for _ in range(101)])
    await until(lambda: len(heard) == 2)
    assert heard[1] == "sweep"
    assert len(heard[0].split(",")) == 2


async def test_an_upsert_creates_then_changes_nothing_then_makes_a_revision(store: Store, sql: Any) -> None:
    wanted = spec(name="report", payload={"n": 1, "big": 1e300, "text": "ü"}, priority=3)
    created, first = await JobOperations(store).registration.upsert(wanted, owner="shop")
    before = await cursor_of(sql, created)
    same, second = await JobOperations(store).registration.upsert(wanted, owner="shop")
    assert (first, second) == ("created", "unchanged")
    assert same.revision == 1
    assert await cursor_of(sql, created) == before

    changed, third = await JobOperations(store).registration.upsert(spec(name="report", payload={"n": 2}, priority=8))
    after = await cursor_of(sql, created)
    assert third == "updated"
    assert (changed.id, changed.revision, changed.payload) == (created.id, 2, {"n": 2})
    assert (after["revision"], after["priority"]) == (2, 8)
    assert after["generation"] > before["generation"]
    assert after["next_tick"] == before["next_tick"]
    former = await sql.fetchrow("SELECT revision, definition->'payload'->>'n' AS n FROM job_revisions")
    assert (former["revision"], former["n"]) == (1, "1")
    assert await store.jobs.owned("shop") == ["report"]


async def test_an_edit_of_the_schedule_never_returns_to_a_tick_that_fired(store: Store, sql: Any) -> None:
    await add_node(sql, 7)
    (job,) = await JobOperations(store).registration.add([spec(name="daily", schedule="0 0 0 * * *")])
    now = await sql.fetchval("SELECT date_trunc('second', now())")
    ahead = now + timedelta(days=2)  # as after a zone-data change, or a database restored behind its clock
    await sql.execute(
        "UPDATE cursors SET last_tick = $1, next_tick = $2, fire_at = $2", ahead, ahead + timedelta(days=1)
    )
    changed, change = await JobOperations(store).registration.upsert(spec(name="daily", schedule="* * * * * *"))
    assert change == "updated"
    assert changed.next_run_at == ahead + timedelta(seconds=1)
    assert changed.id == job.id


async def test_an_edit_accounts_for_a_tick_that_was_due(store: Store, sql: Any) -> None:
    (job,) = await JobOperations(store).registration.add([spec(name="minutely", schedule="* * * * *")])
    due = (datetime.now(UTC) - timedelta(minutes=3)).replace(second=0, microsecond=0)
    await sql.execute("UPDATE cursors SET next_tick = $1, fire_at = $1", due)
    changed, _ = await JobOperations(store).registration.upsert(spec(name="minutely", schedule="0 9 * * *"))
    rows = await sql.fetch("SELECT * FROM run_history ORDER BY scheduled_at")
    assert sum(row["ticks"] for row in rows) in (3, 4)
    assert rows[0]["scheduled_at"] == due
    assert {(row["status"], row["reason"]) for row in rows} == {(4, "edited")}
    assert (await cursor_of(sql, job))["last_tick"] == rows[-1]["until"]
    assert changed.last_status == RunStatus.SKIPPED


async def test_an_edit_that_meets_a_fire_is_computed_again(store: Store, sql: Any, database_url: str) -> None:
    await add_node(sql, 7)
    (job,) = await JobOperations(store).registration.add([spec(name="racing", schedule="* * * * * *")])
    tick = datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=2)
    row = await cursor_of(sql, job)
    await sql.execute("UPDATE cursors SET next_tick = $1, fire_at = $1", tick)
    # The fire holds the cursor while the edit, computed from what was before it, waits.
    other = await asyncpg.connect(database_url, server_settings={"search_path": "detent"})
    transaction = other.transaction()
    await transaction.start()
    await other.execute(
        "UPDATE cursors SET last_tick = next_tick, next_tick = $1, fire_at = $1, generation = generation + 1",
        tick + timedelta(seconds=1),
    )
    edit = asyncio.create_task(JobOperations(store).registration.upsert(spec(name="racing", schedule="0 9 * * *")))
    from tests.support.waiting import until

    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    await until(lambda: sql.fetchval(waiting))
    await transaction.commit()
    await other.close()
    changed, change = await edit
    after = await cursor_of(sql, job)
    assert (change, changed.revision) == ("updated", 2)
    assert after["last_tick"] > tick
    assert after["generation"] > row["generation"] + 1
    ledger = await sql.fetch("SELECT scheduled_at FROM run_history")
    assert tick not in [entry["scheduled_at"] for entry in ledger]


async def test_max_runs_can_be_raised_after_the_last_run(store: Store, sql: Any) -> None:
    (job,) = await JobOperations(store).registration.add([spec(name="bounded", max_runs=2)])
    await sql.execute("UPDATE cursors SET runs_left = 0, next_tick = NULL, fire_at = NULL")
    await sql.execute("UPDATE jobs SET status = 'completed'")
    changed, _ = await JobOperations(store).registration.upsert(spec(name="bounded", max_runs=5))
    assert (changed.status, changed.next_run_at is not None) == ("active", True)
    assert (await cursor_of(sql, job))["runs_left"] == 3
    lowered, _ = await JobOperations(store).registration.upsert(spec(name="bounded", max_runs=1))
    assert (lowered.status, lowered.next_run_at) == ("completed", None)


async def test_a_paused_job_has_no_tick_and_goes_on_in_its_rhythm(store: Store, sql: Any) -> None:
    (job,) = await JobOperations(store).registration.add([spec(name="steady", schedule="every 10m")])
    before = await cursor_of(sql, job)
    paused = await JobOperations(store).lifecycle.pause(job.id, "maintenance")
    assert (paused.status, paused.paused_reason, paused.next_run_at) == ("paused", "maintenance", None)
    again = await JobOperations(store).lifecycle.pause(job.id)
    assert again.paused_reason == "maintenance"
    assert (await JobOperations(store).lifecycle.pause(job.id, "longer")).paused_reason == "longer"
    resumed = await JobOperations(store).lifecycle.resume(job.id)
    assert (resumed.status, resumed.paused_reason) == ("active", None)
    assert resumed.next_run_at == job.next_run_at
    assert (await cursor_of(sql, job))["generation"] > before["generation"]
    assert (await JobOperations(store).lifecycle.resume(job.id)).next_run_at == job.next_run_at


async def test_an_edit_leaves_a_paused_job_paused(store: Store) -> None:
    (job,) = await JobOperations(store).registration.add([spec(name="quiet")])
    await JobOperations(store).lifecycle.pause(job.id, "later")
    changed, _ = await JobOperations(store).registration.upsert(spec(name="quiet", schedule="* * * * *"))
    assert (changed.status, changed.next_run_at) == ("paused", None)
    resumed = await JobOperations(store).lifecycle.resume(job.id)
    assert resumed.next_run_at is not None
    assert resumed.next_run_at.second == 0


async def test_a_pause_accounts_for_a_tick_that_was_due(store: Store, sql: Any) -> None:
    (job,) = await JobOperations(store).registration.add([spec(schedule="0 0 1 1 *")])
    due = datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=5)
    await sql.execute("UPDATE cursors SET next_tick = $1, fire_at = $1", due)
    paused = await JobOperations(store).lifecycle.pause(job.id)
    row = await sql.fetchrow("SELECT * FROM run_history")
    assert (row["scheduled_at"], row["status"], row["reason"], row["ticks"]) == (due, 4, "paused", 1)
    assert (paused.last_run_at, paused.last_status) == (due, RunStatus.SKIPPED)


async def test_a_one_off_whose_instant_passed_during_a_pause_is_completed_by_resume(store: Store, sql: Any) -> None:
    soon = datetime.now(UTC) + timedelta(hours=1)
    (job,) = await JobOperations(store).registration.add([spec(schedule=soon.isoformat(timespec="seconds"))])
    await JobOperations(store).lifecycle.pause(job.id)
    past = datetime.now(UTC) - timedelta(hours=1)
    await sql.execute(
        "UPDATE jobs SET definition = jsonb_set(definition, '{schedule}', to_jsonb($1::text))",
        past.isoformat(timespec="seconds"),
    )
    resumed = await JobOperations(store).lifecycle.resume(job.id)
    assert (resumed.status, resumed.next_run_at) == ("completed", None)
    with pytest.raises(Conflict, match="completed"):
        await JobOperations(store).lifecycle.pause(job.id)
    with pytest.raises(Conflict, match="completed"):
        await JobOperations(store).lifecycle.resume(job.id)


async def test_a_deleted_job_keeps_the_record_of_its_runs_and_gives_up_its_name(store: Store, sql: Any) -> None:
    (job,) = await JobOperations(store).registration.add([spec(name="gone")])
    key = await JobOperations(store).lifecycle.trigger(job.id)
    generation = (await cursor_of(sql, job))["generation"]
    await JobOperations(store).lifecycle.delete(job.id)
    cursor = await cursor_of(sql, job)
    assert (cursor["next_tick"], cursor["generation"]) == (None, generation + 1)
    run = await sql.fetchrow("SELECT status, reason FROM runs WHERE scheduled_at = $1", key.scheduled_at)
    assert (run["status"], run["reason"]) == ("cancelled", "job deleted")
    assert await store.jobs.find("gone") is None
    gone = await store.jobs.get(job.id)
    assert gone is not None
    assert gone.status == "deleted"
    (other,) = await JobOperations(store).registration.add([spec(name="gone")])
    assert other.id != job.id
    for verb in (
        JobOperations(store).lifecycle.delete,
        JobOperations(store).lifecycle.pause,
        JobOperations(store).lifecycle.resume,
        JobOperations(store).lifecycle.trigger,
    ):
        with pytest.raises(NotFound):
            await verb(job.id)


@pytest.mark.parametrize("verb", ["pause", "resume", "delete", "trigger"])
async def test_an_unknown_job_is_not_found(store: Store, verb: str) -> None:
    with pytest.raises(NotFound, match="no job"):
        await getattr(JobOperations(store).lifecycle, verb)(uuid4())


async def test_a_trigger_runs_beside_the_schedule(store: Store, sql: Any) -> None:
    from tests.support.waiting import until

    heard = await listen(sql, "detent_runs")
    (job,) = await JobOperations(store).registration.add([spec()])
    before = await cursor_of(sql, job)
    key = await JobOperations(store).lifecycle.trigger(job.id)
    after = await cursor_of(sql, job)
    assert key.on_demand
    assert (after["next_tick"], after["generation"]) == (before["next_tick"], before["generation"])
    run = await sql.fetchrow("SELECT * FROM live_runs")
    assert (run["job"], run["scheduled_at"], run["serial"], run["owner"]) == (*key, None)
    assert run["token"] == 1 << 22 | 1
    await until(lambda: f"task:{key.job}" in heard)


async def test_a_trigger_without_a_free_lane_waits_in_the_backlog(store: Store, sql: Any) -> None:
    (job,) = await JobOperations(store).registration.add([spec()])
    await JobOperations(store).lifecycle.trigger(job.id)
    key = await JobOperations(store).lifecycle.trigger(job.id)
    row = await sql.fetchrow("SELECT * FROM backlog")
    assert (row["job"], row["scheduled_at"], row["serial"]) == key
    assert await sql.fetchval("SELECT count(*) FROM run_history") == 0


async def test_a_trigger_that_may_not_wait_is_refused_and_leaves_nothing(store: Store, sql: Any) -> None:
    (job,) = await JobOperations(store).registration.add([spec()])
    await JobOperations(store).lifecycle.trigger(job.id, if_busy="refuse")
    with pytest.raises(Conflict, match="already has its maximum of unfinished runs"):
        await JobOperations(store).lifecycle.trigger(job.id, if_busy="refuse")
    assert await sql.fetchval("SELECT count(*) FROM backlog") == 0


async def test_a_run_that_is_not_due_keeps_no_trigger_from_its_lane(store: Store, sql: Any) -> None:
    (job,) = await JobOperations(store).registration.add([spec(name="busy")])
    later = '[{"delay_seconds": 3600, "priority": 100}]'
    await sql.fetch("SELECT * FROM enqueue_many('busy', $1)", later)
    key = await JobOperations(store).lifecycle.trigger(job.id, if_busy="refuse")
    assert await sql.fetchval("SELECT serial FROM live_runs") == key.serial


async def test_concurrent_triggers_fill_every_lane_of_an_allow_job(store: Store, sql: Any) -> None:
    (job,) = await JobOperations(store).registration.add([spec(concurrent_policy="ALLOW", max_concurrent=3)])
    await asyncio.gather(*(JobOperations(store).lifecycle.trigger(job.id) for _ in range(5)))
    lanes = [row["lane"] for row in await sql.fetch("SELECT lane FROM live_runs ORDER BY lane")]
    assert lanes == [0, 1, 2]
    assert await sql.fetchval("SELECT count(*) FROM backlog") == 2
    assert await sql.fetchval("SELECT count(*) FROM run_history") == 0


async def test_lists_filter_and_go_on_where_they_ended(store: Store) -> None:
    specs = [
        spec(name="mail-1", tags=["x"]),
        spec(name="mail-2", tags=["x", "y"]),
        spec(name="py", target=PythonTarget(function="a:b")),
        spec(name="mail%"),
    ]
    jobs = await JobOperations(store).registration.add(specs)
    await JobOperations(store).lifecycle.pause(jobs[1].id)

    async def names(**filters: Any) -> list[str]:
        return [job.name for job in (await store.jobs.list(JobSearch(**filters)))[0]]

    assert await names() == ["mail-1", "mail-2", "py", "mail%"]
    assert await names(statuses=("paused",)) == ["mail-2"]
    assert await names(prefix="mail%") == ["mail%"]
    assert await names(prefix="mail-") == ["mail-1", "mail-2"]
    assert await names(tags=("y",)) == ["mail-2"]
    assert await names(targets=("python",)) == ["py"]
    first, after = await store.jobs.list(limit=3)
    assert after is not None
    rest, end = await store.jobs.list(limit=3, after=after)
    assert [job.name for job in first + rest] == ["mail-1", "mail-2", "py", "mail%"]
    assert end is None
    await JobOperations(store).lifecycle.delete(jobs[0].id)
    assert await names(prefix="mail-1") == []
    assert await names(statuses=("deleted",)) == ["mail-1"]


async def test_a_job_shows_its_newest_run_live_or_finished(store: Store, sql: Any) -> None:
    await add_node(sql, 7)
    (job,) = await JobOperations(store).registration.add([spec(schedule="* * * * * *")])
    tick = datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=2)
    await fire(store, sql, job, tick, tick + timedelta(seconds=1))
    live = await store.jobs.get(job.id)
    assert live is not None
    assert (live.last_run_at, live.last_status) == (tick, RunStatus.PENDING)
    await fire(store, sql, job, tick + timedelta(seconds=1), tick + timedelta(hours=1))
    after = await store.jobs.get(job.id)
    assert after is not None
    assert (after.last_run_at, after.last_status) == (tick + timedelta(seconds=1), RunStatus.SKIPPED)


async def test_looking_at_jobs_reads_no_table_as_a_whole(store: Store, sql: Any) -> None:

    (job,) = await JobOperations(store).registration.add([spec()])
    number = await store.jobs.number(job.id)
    await sql.execute("SET plan_cache_mode = force_custom_plan")
    await sql.execute("SET enable_seqscan = off")  # the tables are nearly empty here
    plan = "\n".join(row[0] for row in await sql.fetch("EXPLAIN " + statements.job.READ.text, [number]))
    assert "Seq Scan" not in plan
    assert "run_history" in plan


async def test_a_one_off_in_the_past_runs_now_when_it_may(store: Store, sql: Any) -> None:
    at = datetime(2024, 2, 29, 12, tzinfo=UTC)
    (job,) = await JobOperations(store).registration.add([spec(schedule={"at": at.isoformat()}, allow_past=True)])
    cursor = await cursor_of(sql, job)
    assert cursor["next_tick"] == cursor["fire_at"] == at
    late = (job.created_at - at).total_seconds()
    assert cursor["grace"] > late + 3600 - 1
    edit = spec(name=job.name, schedule={"at": at.isoformat()}, allow_past=True, priority=9)
    assert (await JobOperations(store).registration.upsert(edit))[1] == "updated"
    edited = await cursor_of(sql, job)
    assert (edited["next_tick"], edited["priority"]) == (at, 9)
    assert edited["grace"] >= cursor["grace"]
