"""Reading, listing and cancelling runs, against a real PostgreSQL."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from detent.contract.run import Run
from detent.domain.identity import RunKey, decode_run_id, node_name, run_id
from detent.domain.job import HttpTarget, JobSpec
from detent.domain.run import Claim
from detent.domain.states import CODES, RunStatus
from detent.errors import Conflict, NotFound
from detent.jobs import JobOperations
from detent.store import Store, history
from detent.store import sql as statements
from tests.support.ends import ended_run, failed_run
from tests.support.factories import add_job, add_live_run, add_node
from tests.support.waiting import until

NODE = 7
AT = datetime.now(UTC).replace(hour=0, minute=5, second=0, microsecond=0)


@pytest.fixture
async def sql(sql: Any) -> Any:
    await add_node(sql, NODE)
    return sql


async def add_history(sql: Any, job: int, at: datetime, status: RunStatus, **columns: Any) -> RunKey:
    ran = status in (RunStatus.SUCCEEDED, RunStatus.DEAD)
    values = {
        "job": job,
        "scheduled_at": at,
        "serial": 0,
        "revision": 1,
        "status": CODES[status],
        "finished_at": at + timedelta(seconds=2),
        "token": 1 << 22 | 1 if ran else None,
        "attempt": 1 if ran else None,
        "started_at": at + timedelta(seconds=1) if ran else None,
        "node": NODE if ran else None,
        **columns,
    }
    places = ", ".join(f"${n}" for n in range(1, len(values) + 1))
    await sql.execute(f"INSERT INTO run_history ({', '.join(values)}) VALUES ({places})", *values.values())
    return RunKey(job, at, values["serial"])


async def claimed(store: Store, sql: Any, job: int) -> Claim:
    await sql.execute("UPDATE jobs SET created_at = $1", AT)
    await add_live_run(sql, job, AT)
    (claim,) = await store.live_runs.claim(NODE, 1, [1], 10)
    return claim


async def every_page(store: Store, limit: int, **filters: Any) -> list[Run]:
    runs: list[Run] = []
    after = None
    while True:
        page, after = await store.runs.list(after=after, limit=limit, **filters)
        assert len(page) <= limit
        runs += page
        if after is None:
            return runs


async def test_a_run_that_succeeded_first_time_shows_its_one_attempt(store: Store, sql: Any) -> None:
    job = await add_job(sql, name="first")
    claim = await claimed(store, sql, job)
    started, finished = AT + timedelta(milliseconds=20), AT + timedelta(milliseconds=45.5)
    done = ended_run(claim, started, finished, CODES[RunStatus.SUCCEEDED], result='{"a": [1, "ü"]}')
    assert await store.live_runs.settle(NODE, [done]) == []
    run = await store.runs.get(claim.key)
    assert run is not None
    assert (run.status, run.attempt, run.token, run.error) == (RunStatus.SUCCEEDED, 1, claim.token, None)
    assert (run.lateness_ms, run.duration_ms) == (20, 25)
    assert (run.job, run.node, run.id) == ("first", node_name(NODE), run_id(claim.key))
    assert msgspec.json.decode(run.result) == {"a": [1, "ü"]}
    (attempt,) = run.attempts
    assert (attempt.attempt, attempt.token, attempt.outcome) == (1, claim.token, "succeeded")
    assert run.idempotency_key == f"{run.job_id}:{int(AT.timestamp())}"
    assert decode_run_id(run.id) == claim.key


async def test_a_run_that_failed_and_then_succeeded_shows_both_attempts(store: Store, sql: Any) -> None:
    job = await add_job(sql)
    claim = await claimed(store, sql, job)
    first = AT + timedelta(seconds=1)
    failure = failed_run(claim, first, first + timedelta(seconds=1), "failed", "status 500", timedelta(0))
    assert await store.live_runs.retry(NODE, [failure]) == []
    waiting = await store.runs.get(claim.key)
    assert waiting is not None
    assert (waiting.status, waiting.attempt, waiting.error) == (RunStatus.RETRYING, 2, "status 500")
    (again,) = await store.live_runs.claim(NODE, 1, [1], 10)
    later = AT + timedelta(seconds=9)
    done = ended_run(again, later, later, CODES[RunStatus.SUCCEEDED])
    assert await store.live_runs.settle(NODE, [done]) == []
    run = await store.runs.get(claim.key)
    assert run is not None
    assert [attempt.outcome for attempt in run.attempts] == ["failed", "succeeded"]
    assert (run.error, run.lateness_ms, run.attempt) == (None, 1000, 2)
    assert msgspec.json.decode(run.result) is None


async def test_a_dead_run_shows_its_last_error(store: Store, sql: Any) -> None:
    job = await add_job(sql)
    claim = await claimed(store, sql, job)
    end = ended_run(claim, AT, AT, CODES[RunStatus.DEAD], "exhausted", outcome="timeout", error="no answer in 5 s")
    await store.live_runs.settle(NODE, [end])
    run = await store.runs.get(claim.key)
    assert run is not None
    assert (run.status, run.reason, run.error) == (RunStatus.DEAD, "exhausted", "no answer in 5 s")
    assert [attempt.outcome for attempt in run.attempts] == ["timeout"]


async def test_a_range_of_missed_ticks_is_one_entry(store: Store, sql: Any) -> None:
    job = await add_job(sql)
    until_tick = AT + timedelta(hours=3)
    key = await add_history(sql, job, AT, RunStatus.MISSED, reason="merged", ticks=4, until=until_tick)
    run = await store.runs.get(key)
    assert run is not None
    assert (run.status, run.reason, run.ticks, run.until) == (RunStatus.MISSED, "merged", 4, until_tick)
    assert (run.attempts, run.token, run.lateness_ms) == ([], None, None)


async def test_text_that_is_not_json_is_shown_as_text(store: Store, sql: Any) -> None:
    job = await add_job(sql)
    key = await add_history(sql, job, AT, RunStatus.SUCCEEDED, result="not json")
    run = await store.runs.get(key)
    assert run is not None
    assert msgspec.json.decode(run.result) == "not json"


async def test_the_key_of_a_run_follows_the_revision_it_was_fired_with(store: Store, sql: Any) -> None:
    target = HttpTarget(url="http://127.0.0.1:9/")
    spec = JobSpec(name="keyed", schedule="@daily", target=target, idempotency_key_template="old-{{date}}")
    job, _ = await JobOperations(store).registration.upsert(spec)
    number = await store.jobs.number(job.id)
    assert number is not None
    old = await add_history(sql, number, AT, RunStatus.SUCCEEDED, revision=1)
    changed = msgspec.structs.replace(spec, idempotency_key_template="new-{{date}}")
    await JobOperations(store).registration.upsert(changed)
    new = await add_history(sql, number, AT + timedelta(seconds=1), RunStatus.SUCCEEDED, revision=2)
    manual = await JobOperations(store).lifecycle.trigger(job.id)
    keys = [run.idempotency_key for key in (old, new, manual) if (run := await store.runs.get(key))]
    assert keys == [f"old-{AT:%Y-%m-%d}", f"new-{AT:%Y-%m-%d}", f"{job.id}:{run_id(manual)}"]


async def test_an_unknown_run_is_none(store: Store, sql: Any) -> None:
    job = await add_job(sql)
    assert await store.runs.get(RunKey(job, AT, 0)) is None
    assert await store.runs.get(RunKey(job + 1, datetime(9000, 1, 1, tzinfo=UTC), 5)) is None


@pytest.fixture
async def crowd(store: Store, sql: Any) -> list[int]:
    """Three jobs with finished runs over many days, close together and far apart, and one live run each."""
    jobs = [await add_job(sql) for _ in range(3)]
    for job in jobs:
        for hours in range(40):
            status = RunStatus.DEAD if hours % 10 == 3 else RunStatus.SUCCEEDED
            await add_history(sql, job, AT - timedelta(hours=hours * hours), status)
        for seconds in range(30):
            await add_history(sql, job, AT - timedelta(days=3, seconds=seconds), RunStatus.SKIPPED)
        await add_history(sql, job, datetime(1999, 12, 31, tzinfo=UTC), RunStatus.MISSED)
        await add_live_run(sql, job, AT + timedelta(seconds=1), owner=NODE)
    return jobs


def order(run: Run) -> tuple[datetime, int, int]:
    key = decode_run_id(run.id)
    assert key is not None
    return key.scheduled_at, key.job, key.serial


@pytest.mark.parametrize("limit", [7, 50, 500])
@pytest.mark.parametrize("status", ["", "dead", "running", "missed", "running dead"])
async def test_pages_hold_every_run_once_newest_first(
    store: Store, sql: Any, crowd: list[int], limit: int, status: str
) -> None:
    words = status.split() or list(RunStatus)
    expected = await sql.fetchval("SELECT count(*) FROM runs WHERE status = ANY ($1)", words)
    runs = await every_page(store, limit, status=[RunStatus(word) for word in status.split()])
    keys = [order(run) for run in runs]
    assert len(keys) == expected
    assert keys == sorted(set(keys), reverse=True)
    assert not status or {run.status for run in runs} == set(words)


@pytest.mark.parametrize("status", [[], [RunStatus.SKIPPED]])
async def test_pages_of_one_job_hold_its_runs_only(
    store: Store, sql: Any, crowd: list[int], status: list[RunStatus]
) -> None:
    job_id = await sql.fetchval("SELECT id FROM jobs WHERE job = $1", crowd[1])
    runs = await every_page(store, 9, job=job_id, status=status)
    assert len(runs) == (30 if status else 72)
    assert {run.job_id for run in runs} == {job_id}
    assert [order(run) for run in runs] == sorted((order(run) for run in runs), reverse=True)


async def test_a_search_for_something_rare_ends_early_and_can_go_on(
    store: Store, crowd: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "MAX_EXAMINED", 20)
    page, after = await store.runs.list(status=[RunStatus.MISSED])
    assert page == []
    assert after is not None
    assert len(await every_page(store, 50, status=[RunStatus.MISSED])) == 3


async def test_runs_of_an_unknown_job_are_not_found(store: Store) -> None:
    with pytest.raises(NotFound):
        await store.runs.list(job=run_id(RunKey(1, AT)))


async def test_a_job_list_goes_along_the_key_of_history(store: Store, sql: Any) -> None:
    await sql.execute("SET plan_cache_mode = force_custom_plan")
    await sql.execute("SET enable_seqscan = off")  # the tables are empty here
    key = history.NEWEST
    arguments = (AT - timedelta(days=90), AT, key.scheduled_at, key.job, key.serial, None, 51, [1])
    rows = await sql.fetch("EXPLAIN " + statements.history.LIST_OF_JOBS.text, *arguments)
    plan = "\n".join(row[0] for row in rows)
    assert "Index Scan" in plan
    assert "Seq Scan" not in plan


async def test_a_list_of_all_jobs_finds_its_stretch_without_reading_the_whole_day(store: Store, sql: Any) -> None:
    await sql.execute("SET plan_cache_mode = force_custom_plan")
    await sql.execute("SET random_page_cost = 1.1")
    await sql.execute(
        "INSERT INTO run_history (job, scheduled_at, finished_at, serial, revision, status)"
        " SELECT n, $1::timestamptz + n / 50 * interval '1 second', now(), 0, 1, 4 FROM generate_series(1, 100000) n",
        AT,
    )
    await sql.execute("ANALYZE run_history")
    await sql.execute(
        "SELECT brin_summarize_new_values(c.oid) FROM pg_class c JOIN pg_am a ON a.oid = c.relam JOIN pg_index i"
        f" ON i.indexrelid = c.oid WHERE a.amname = 'brin' AND i.indrelid = 'run_history_{AT:%Y%m%d}'::regclass"
    )
    key, end = history.NEWEST, AT + timedelta(seconds=1500)
    arguments = (end - timedelta(seconds=2), end, key.scheduled_at, key.job, key.serial, None, 51, 1, None)
    rows = await sql.fetch("EXPLAIN (ANALYZE, BUFFERS) " + statements.history.LIST.text, *arguments)
    plan = "\n".join(row[0] for row in rows)
    assert "Seq Scan" not in plan
    assert plan.count("on run_history_") == plan.count(f"on run_history_{AT:%Y%m%d}"), "other days are looked at"


async def test_a_run_that_no_node_holds_is_cancelled_at_once(store: Store, sql: Any) -> None:
    job = await add_job(sql)
    await add_live_run(sql, job, AT)
    key = RunKey(job, AT, 0)
    assert await JobOperations(store).runs.cancel(key) is RunStatus.CANCELLED
    run = await store.runs.get(key)
    assert run is not None
    assert run.status is RunStatus.CANCELLED
    assert await JobOperations(store).runs.cancel(key) is RunStatus.CANCELLED


async def test_a_running_run_is_asked_to_stop_and_its_node_is_reported(store: Store, sql: Any) -> None:
    heard: list[str] = []
    await sql.add_listener("detent_runs", lambda *said: heard.append(said[3]))
    job = await add_job(sql)
    claim = await claimed(store, sql, job)
    assert await JobOperations(store).runs.cancel(claim.key) is RunStatus.RUNNING
    run = await store.runs.get(claim.key)
    assert run is not None
    assert (run.status, run.reason) == (RunStatus.RUNNING, "cancelling")
    await until(lambda: heard == ["cancel"])


async def test_a_finished_run_cannot_be_cancelled(store: Store, sql: Any) -> None:
    job = await add_job(sql)
    key = await add_history(sql, job, AT, RunStatus.SUCCEEDED)
    with pytest.raises(Conflict, match="already succeeded"):
        await JobOperations(store).runs.cancel(key)
    with pytest.raises(NotFound):
        await JobOperations(store).runs.cancel(RunKey(job, AT, 9))
