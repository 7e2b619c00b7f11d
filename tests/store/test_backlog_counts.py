"""Counts, signals, dead letters and changes of many runs include the backlog, and count a bounded part of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from detent.domain.identity import ON_DEMAND, RunKey, run_id
from detent.jobs import JobOperations
from detent.store import Store, live_runs, overview, queues
from detent.store import sql as statements
from detent.store.job_search import JobSearch
from detent.telemetry.metrics import QueueDepth
from tests.store.test_backlog_lists import add_waiting
from tests.support import factories

NODE = 7
AGO = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=10)
LATER = AGO + timedelta(days=2)


def seconds_since(moment: datetime) -> float:
    return (datetime.now(UTC) - moment).total_seconds()


@pytest.fixture
async def task(look: Any) -> int:
    await factories.add_node(look, NODE)
    job = await factories.add_task(look, name="mail")
    number = await look.fetchval("SELECT queue FROM cursors WHERE job = $1", job)
    for serial in range(8):
        columns: dict[str, Any] = {"queue": number, "priority": serial % 2}
        if serial == 5:
            columns |= {"attempt": 2, "not_before": AGO + timedelta(minutes=1)}
        if serial >= 6:
            columns |= {"keyed": True, "key": "c", "parked": True}
        await add_waiting(look, job, LATER if serial == 4 else AGO, serial, **columns)
    return job


async def test_the_overview_counts_runs_that_wait(verbs: Store, task: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await verbs.overview.open(tenant=1) == overview.OpenCounts(0, 1, 7, False)
    assert await verbs.overview.open(tenant=2) == overview.OpenCounts(0, 0, 0, False)


async def test_many_runs_are_counted_up_to_a_bound(verbs: Store, look: Any, task: int) -> None:
    await look.execute(
        "INSERT INTO backlog (job, scheduled_at, not_before, token, serial, queue, revision, priority)"
        " SELECT $1, now(), now(), 1, $2 + n, queue, 1, 5 FROM cursors, generate_series(100, 400) n WHERE job = $1",
        task, ON_DEMAND,
    )  # fmt: skip
    rows = await look.fetch(statements.task.COUNT_WAITING.text, 1, None, 300)
    assert [(row["pending"] + row["retrying"], row["more"]) for row in rows] == [(308, True)]


async def test_a_queue_shows_how_many_wait_and_since_when(verbs: Store, look: Any, task: int) -> None:
    await factories.add_live_run(look, task, AGO, lane=ON_DEMAND, serial=ON_DEMAND + 90, owner=NODE)
    (queue,) = await verbs.queues.list(tenant=1)
    assert (queue.name, queue.waiting, queue.running, queue.more) == ("default", 8, 1, False)
    assert (queue.ready, queue.oldest_ready_at) == (5, AGO)  # not the one for later, nor those that wait for a key
    assert 600 <= queue.oldest_ready_seconds < seconds_since(AGO) + 1
    limited = await verbs.queues.limit("default", queues.RunLimits(3, None), tenant=1)
    assert (limited.waiting, limited.ready, limited.max_concurrent) == (8, 5, 3)
    await verbs.queues.limit("default", queues.RunLimits(None, None), tenant=1)


async def test_the_depth_for_autoscalers_counts_on_demand_runs_for_which_a_worker_is_missing(
    verbs: Store, look: Any, task: int
) -> None:
    await factories.add_queue(look, "idle")
    await factories.add_live_run(look, 4711, AGO - timedelta(minutes=1))
    depths = (await verbs.signals.read()).queues
    assert (depths["default"].runs, depths["idle"]) == (6, QueueDepth(0, 0.0))
    assert 660 <= depths["default"].oldest < seconds_since(AGO) + 61
    listed = {queue.name: queue.ready for queue in await verbs.queues.list(tenant=1)}
    assert listed == {"default": 6, "idle": 0}  # by both ways the same
    await look.execute("UPDATE jobs SET status = 'paused' WHERE job = $1", task)
    assert (await verbs.signals.read()).queues["default"].runs == 1
    assert [queue.ready for queue in await verbs.queues.list(tenant=1)] == [1, 0]


async def test_signals_count_only_runs_for_which_a_worker_is_missing(verbs: Store, look: Any, task: int) -> None:
    signals = await verbs.signals.read()
    assert signals.runs_ready == 5
    assert signals.oldest_ready > 500
    (load,) = await look.fetch(statements.cluster.MEASURE_LOAD.text)
    assert load["oldest_ready"] > timedelta(minutes=5)
    await look.execute("UPDATE jobs SET status = 'paused' WHERE job = $1", task)
    signals = await verbs.signals.read()
    assert (signals.runs_ready, signals.oldest_ready) == (0, 0.0)
    (load,) = await look.fetch(statements.cluster.MEASURE_LOAD.text)
    assert load["oldest_ready"] is None


async def test_an_on_demand_run_that_waits_for_a_lane_of_its_job_is_not_ready(verbs: Store, look: Any) -> None:
    await add_waiting(look, await factories.add_job(look, None), AGO, 1)
    assert (await verbs.signals.read()).runs_ready == 0


async def test_the_doctor_reports_on_demand_runs_that_wait_for_a_worker(verbs: Store, look: Any, task: int) -> None:
    arguments = (timedelta(minutes=1), None, 2)
    (row,) = await look.fetch(statements.doctor.WAITING.text, *arguments)
    assert (row["queue"], row["needs"], row["runs"], row["names"]) == ("default", "task:", 4, ["mail"])
    assert await look.fetch(statements.doctor.WAITING.text, timedelta(minutes=1), task + 1, 2) == []
    await look.execute("UPDATE jobs SET status = 'paused' WHERE job = $1", task)
    assert await look.fetch(statements.doctor.WAITING.text, *arguments) == []


async def test_the_doctor_counts_on_demand_runs_by_what_they_call(look: Any, task: int) -> None:
    asked = (statements.doctor.WAITING_TARGETS.text, [1], None, 2, timedelta(minutes=2))
    (row,) = await look.fetch(*asked)
    assert (row["tenant"], row["runs"], row["names"], row["jobs"]) == (1, 4, ["mail"], 1)
    assert await look.fetch(asked[0], [2], *asked[2:]) == []
    await look.execute("UPDATE jobs SET status = 'paused' WHERE job = $1", task)
    assert await look.fetch(*asked) == []


async def test_the_doctor_finds_a_run_in_two_tables(verbs: Store, look: Any, task: int) -> None:
    async def both() -> int:
        found: int = await look.fetchval(statements.doctor.LIVE_AND_FINISHED.text, None, 1000)
        return found

    assert await both() == 0
    key = RunKey(task, AGO, ON_DEMAND)
    await factories.add_live_run(look, task, AGO, lane=key.serial, serial=key.serial)
    assert await both() == 1
    await look.execute(
        "INSERT INTO run_history (job, scheduled_at, token, finished_at, serial, revision, attempt, status)"
        " VALUES ($1, $2, 1, $2, $3, 1, 1, 1)", *key,
    )  # fmt: skip
    assert await both() == 3


async def test_runs_of_tasks_are_no_runs_that_were_requested_in_addition_to_ticks(look: Any, task: int) -> None:
    await look.execute(
        "INSERT INTO run_history (job, scheduled_at, token, finished_at, serial, revision, attempt, status)"
        " VALUES ($1, $2, 1, $2, $3, 1, 1, 1)", task, AGO, ON_DEMAND + 99,
    )  # fmt: skip
    row = await look.fetchrow(statements.doctor.REPEATS.text, timedelta(days=7), None, 1 << 27)
    assert (row["repeated"], row["manual"]) == (0, 0)


# --- cancel ---


async def test_all_runs_of_a_job_are_cancelled_some_with_each_call(
    verbs: Store, look: Any, task: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_runs, "CANCEL_BATCH", 2)
    monkeypatch.setattr(live_runs, "MAX_CANCELLED", 4)
    job_id = await look.fetchval("SELECT id FROM jobs WHERE job = $1", task)
    await factories.add_live_run(look, task, AGO, lane=ON_DEMAND + 50, serial=ON_DEMAND + 50, owner=NODE)
    await factories.add_live_run(look, task, AGO, lane=ON_DEMAND + 51, serial=ON_DEMAND + 51)
    lifecycle = JobOperations(verbs).lifecycle
    first = await lifecycle.cancel_runs(job_id)
    assert (len(first.cancelled), len(first.stopping), first.more) == (5, 1, True)
    second = await lifecycle.cancel_runs(job_id)
    third = await lifecycle.cancel_runs(job_id)
    assert (len(second.cancelled), len(third.cancelled), third.more) == (4, 0, False)
    assert await look.fetchval("SELECT count(*) FROM backlog") == 0
    rows = await look.fetch("SELECT status, reason FROM run_history")
    assert [(row["status"], row["reason"]) for row in rows] == [(3, "cancelled")] * 9
    counts = await look.fetch("SELECT (after->>'count')::integer AS n FROM audit_events WHERE action = 'job.cancel'")
    assert [row["n"] for row in counts][-3:] == [6, 5, 1]


async def test_runs_that_are_due_in_a_year_can_be_cancelled(verbs: Store, look: Any) -> None:
    job = await factories.add_task(look, name="later")
    job_id = await look.fetchval("SELECT id FROM jobs WHERE job = $1", job)
    keys = [await add_waiting(look, job, AGO + timedelta(days=11 * n), n) for n in range(1, 31)]
    done = await JobOperations(verbs).lifecycle.cancel_runs(job_id)
    assert sorted(done.cancelled) == keys
    run = await verbs.runs.get(keys[-1])
    assert run is not None and (run.status, run.reason) == ("cancelled", "cancelled")


async def test_a_bulk_cancel_includes_waiting_runs_and_repeats_a_chunk_that_has_more(
    verbs: Store, look: Any, task: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_runs, "CANCEL_BATCH", 3)
    monkeypatch.setattr(live_runs, "MAX_CANCELLED", 6)
    await factories.add_task(look, name="idle")
    bulk = JobOperations(verbs).bulk
    search = JobSearch()
    counted = await bulk.count("cancel", search, after=0, tenant=1)
    assert (counted.matched, [each.number for each in counted.sample]) == (1, [task])
    chunks = [await bulk.apply("cancel", search, after=0, limit=100, tenant=1)]
    while chunks[-1].following is not None:
        chunks.append(await bulk.apply("cancel", search, after=chunks[-1].following, limit=100, tenant=1))
    assert [(chunk.matched, chunk.changed) for chunk in chunks] == [(1, 1), (1, 1)]
    assert await look.fetchval("SELECT count(*) FROM backlog") == 0


# --- dead letters ---


async def test_dead_on_demand_runs_are_redriven_without_a_free_lane(verbs: Store, look: Any, task: int) -> None:
    for serial in range(3):
        await look.execute(
            "INSERT INTO run_history (job, scheduled_at, token, finished_at, serial, revision, attempt, status, key,"
            " payload) VALUES ($1, $2, 1, $2, $3, 1, 1, 2, 'c', '{\"n\": 1}')", task, AGO, ON_DEMAND + 70 + serial,
        )  # fmt: skip
    await factories.add_live_run(look, task, AGO, lane=ON_DEMAND + 50, serial=ON_DEMAND + 50, owner=NODE)
    oldest = await look.fetch(statements.dead_letter.LIST_OLDEST.text, 1, None, None, None, 100, 1000, None)
    keys = [RunKey(row["job"], row["scheduled_at"], row["serial"]) for row in oldest]
    assert len(keys) == 3
    redriven = await verbs.reruns.redrive(keys, tenant=1)
    assert sorted(redriven.runs) == keys
    rows = await look.fetch("SELECT key, payload, attempt FROM backlog WHERE serial >= $1", ON_DEMAND + 70)
    assert [(row["key"], row["payload"], row["attempt"]) for row in rows] == [("c", '{"n": 1}', 1)] * 3


async def test_the_newest_dead_run_of_a_task_can_be_retried_while_others_run(
    verbs: Store, look: Any, task: int
) -> None:
    await look.execute(
        "INSERT INTO run_history (job, scheduled_at, token, finished_at, serial, revision, attempt, status)"
        " VALUES ($1, $2, 1, $2, $3, 1, 1, 2)", task, AGO, ON_DEMAND + 70,
    )  # fmt: skip
    await factories.add_live_run(look, task, AGO, lane=ON_DEMAND + 50, serial=ON_DEMAND + 50, owner=NODE)
    assert await verbs.reruns.latest_dead([task]) == [RunKey(task, AGO, ON_DEMAND + 70)]


# --- what is about ticks ---


async def test_a_task_shows_its_last_run_and_its_ledger_expects_none(verbs: Store, look: Any, task: int) -> None:
    job_id = await look.fetchval("SELECT id FROM jobs WHERE job = $1", task)
    assert (await verbs.jobs.get(job_id)).last_run_at is None
    await look.execute(
        "INSERT INTO run_history (job, scheduled_at, token, finished_at, serial, revision, attempt, status)"
        " VALUES ($1, now(), 1, now(), $2, 1, 1, 1)", task, ON_DEMAND + 70,
    )  # fmt: skip
    job = await verbs.jobs.get(job_id)
    assert job.last_run_at is not None and job.last_status == "succeeded"
    rows = await look.fetch(statements.ledger.READ.text, [task], AGO - timedelta(days=1), LATER)
    assert rows == []


# --- explain ---


async def test_an_on_demand_run_is_explained_wherever_it_is(verbs: Store, look: Any, task: int) -> None:
    await look.execute("UPDATE cursors SET key_limit = 1 WHERE job = $1", task)
    explainer = JobOperations(verbs).explainer

    async def last_sentence(key: RunKey) -> str:
        run = await verbs.runs.get(key)
        assert run is not None
        return (await explainer.run(run, key))[-1]

    assert await last_sentence(RunKey(task, AGO, ON_DEMAND)) == "It waits for a worker that serves the queue 'default'."
    assert "It may start at" in await last_sentence(RunKey(task, LATER, ON_DEMAND + 4))
    holder = RunKey(task, AGO, ON_DEMAND + 50)
    await factories.add_live_run(look, task, AGO, lane=holder.serial, serial=holder.serial, owner=NODE, key="c")
    await look.execute(
        "INSERT INTO key_places (scope, key, place, job, lane, scheduled_at) VALUES ($1, 'c', 0, $1, $2, $3)",
        task, holder.serial, AGO,
    )  # fmt: skip
    assert str(run_id(holder)) in await last_sentence(RunKey(task, AGO, ON_DEMAND + 6))
    assert await last_sentence(holder) == "A worker has claimed it and has not started it yet."
    await look.execute("UPDATE jobs SET status = 'paused' WHERE job = $1", task)
    assert "the task is paused" in await last_sentence(RunKey(task, AGO, ON_DEMAND))
    await look.execute("DELETE FROM backlog WHERE serial = $1", ON_DEMAND)
    await look.execute(
        "INSERT INTO run_history (job, scheduled_at, token, finished_at, serial, revision, attempt, status, reason)"
        " VALUES ($1, $2, 1, $2, $3, 1, 1, 3, 'cancelled')", task, AGO, ON_DEMAND,
    )  # fmt: skip
    assert "was cancelled at" in await last_sentence(RunKey(task, AGO, ON_DEMAND))
