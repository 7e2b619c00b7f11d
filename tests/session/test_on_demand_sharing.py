"""On-demand runs beside those of other tenants, under limits, and beside ticks. Orders and counts, no times."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from typing import Any

import pytest

from detent.domain.run import Call, Outcome, Succeeded
from detent.store import Store
from detent.store.queues import RunLimits
from detent.store.upkeep import RUNS_CHANNEL
from detent.worker import backlog, claiming, heads
from detent.worker.worker import Worker
from tests.session.test_fairness import Recorder
from tests.support import factories
from tests.support.tenants import add_job, add_ready, add_tenant
from tests.support.waiting import until


async def enqueue(look: Any, task: str, count: int, tenant: str = "default", **fields: Any) -> None:
    for start in range(0, count, 10_000):
        runs = json.dumps([fields] * min(10_000, count - start))
        await look.fetch("SELECT count(*) FROM enqueue_many($1, $2, $3)", task, runs, tenant)


@pytest.mark.parametrize("priority", [5, 100])
async def test_a_flood_of_one_tenant_leaves_capacity_for_the_runs_of_another(
    look: Any, store: Store, start: Any, priority: int
) -> None:
    noisy, quiet = await add_tenant(store, "noisy"), await add_tenant(store, "quiet")
    for n in range(3):
        await factories.add_task(look, name=f"flood-{n}", tenant=noisy)
        await enqueue(look, f"flood-{n}", 10_000, "noisy", priority=priority)
    await factories.add_task(look, name="drop", tenant=quiet)
    await enqueue(look, "drop", 20, "quiet")
    await add_ready(look, *await add_job(store, look, quiet, "tick"), 20)
    calls = Recorder()
    session = await start(calls, concurrency=10)
    await until(lambda: Counter(calls.order)["drop"] == Counter(calls.order)["tick"] == 20)
    first = max(n for n, name in enumerate(calls.order) if name in ("drop", "tick"))
    assert first < 400
    assert await look.fetchval("SELECT count(*) FROM live_runs") < 5000, "what waits is in the backlog"
    await session.close(0)


async def test_a_tenant_with_many_tasks_does_not_keep_another_from_its_turn(
    look: Any, store: Store, start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heads, "MAX_HEADS", 5)
    noisy, quiet = await add_tenant(store, "noisy"), await add_tenant(store, "quiet")
    for n in range(30):
        await factories.add_task(look, name=f"flood-{n}", tenant=noisy)
        await enqueue(look, f"flood-{n}", 200, "noisy", priority=9)
    await factories.add_task(look, name="drop", tenant=quiet)
    await enqueue(look, "drop", 5, "quiet")
    calls = Recorder()
    session = await start(calls, concurrency=10)
    await until(lambda: Counter(calls.order)["drop"] == 5)
    assert len(calls.order) < 3000
    await session.close(0)


async def test_the_limit_of_a_queue_holds_on_all_nodes_and_no_node_spins(look: Any, store: Store, start: Any) -> None:
    await factories.add_task(look, name="narrow", queue="narrow")
    await factories.add_task(look, name="free")
    await store.queues.limit("narrow", RunLimits(3, None), tenant=1)
    calls = Recorder()
    calls.go_on.clear()
    sessions = [await start(calls, concurrency=20, queues=("default", "narrow")) for _ in range(2)]
    await enqueue(look, "narrow", 200)
    await until(lambda: calls.under_way["narrow"] == 3)
    for session in sessions:
        await until(partial(pauses, session.worker))
    calls.go_on.set()
    await enqueue(look, "free", 200)
    await until(lambda: Counter(calls.order) == {"narrow": 200, "free": 200}, timeout=30)
    assert calls.most["narrow"] <= 3


async def pauses(worker: Worker) -> bool:
    """Whether the worker sees no reason to look again soon, although runs wait."""
    return await worker.tick() > 0.3


async def test_a_rate_holds_for_on_demand_runs(look: Any, store: Store, start: Any) -> None:
    await factories.add_task(look, name="narrow", queue="narrow")
    await store.queues.limit("narrow", RunLimits(None, 20), tenant=1)
    await enqueue(look, "narrow", 40)
    calls = Recorder()
    await start(calls, concurrency=50, queues=("narrow",))
    await until(lambda: len(calls.order) == 40)
    span = await look.fetchval("SELECT max(started_at) - min(started_at) FROM run_history")
    assert span.total_seconds() > 0.8  # the bucket holds what a second brings


async def test_ticks_and_on_demand_runs_start_by_priority(
    look: Any, store: Store, start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the claims that ignore priorities: one of them may take a tenth of all these runs."""
    monkeypatch.setattr(claiming, "EVENLY_EVERY", 1_000_000)
    job, queue = await add_job(store, look, 1, "tick")
    await add_ready(look, job, queue, 300)
    await factories.add_task(look, name="urgent")
    await factories.add_task(look, name="idle")
    await enqueue(look, "urgent", 50, priority=9)
    await enqueue(look, "idle", 50, priority=-50)
    calls = Recorder()
    await start(calls, concurrency=5)
    await until(lambda: len(calls.order) == 400, timeout=30)
    order = {name: [n for n, each in enumerate(calls.order) if each == name] for name in ("tick", "urgent", "idle")}
    middle = {name: places[len(places) // 2] for name, places in order.items()}
    assert middle["urgent"] < middle["tick"] < middle["idle"]


async def test_neither_ticks_nor_on_demand_runs_of_one_priority_starve_the_others(
    look: Any, store: Store, start: Any
) -> None:
    job, queue = await add_job(store, look, 1, "tick")
    await factories.add_task(look, name="mail")
    await enqueue(look, "mail", 300)
    await add_ready(look, job, queue, 300, await look.fetchval("SELECT now()"))
    calls = Recorder()
    await start(calls, concurrency=5)
    await until(lambda: len(calls.order) == 600, timeout=30)
    for name in ("tick", "mail"):
        assert calls.order[:300].count(name) > 20


@pytest.mark.parametrize("keyed_first", [True, False])
async def test_runs_with_and_without_keys_start_by_priority(
    look: Any, store: Store, start: Any, keyed_first: bool
) -> None:
    await factories.add_task(look, name="keyed", key_text="{{payload}}", key_limit=1000)
    await factories.add_task(look, name="plain")
    await enqueue(look, "keyed", 200, priority=9 if keyed_first else 1)
    await enqueue(look, "plain", 200, priority=1 if keyed_first else 9)
    calls = Recorder()
    await start(calls, concurrency=5)
    await until(lambda: len(calls.order) == 400, timeout=30)
    assert calls.order[:150].count("keyed" if keyed_first else "plain") > 100


async def test_a_backlog_is_worked_off_without_hints_and_by_a_node_that_joins_later(
    look: Any, store: Store, start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heads, "READ_EVERY", 0.5)
    await look.execute("ALTER TABLE backlog DISABLE TRIGGER notify_enqueued")
    await factories.add_task(look, name="mail")
    calls = Recorder()
    calls.go_on.clear()
    await start(calls, concurrency=2)
    await enqueue(look, "mail", 50)
    await until(lambda: len(calls.order) >= 2)
    await start(calls, concurrency=40)
    await until(lambda: calls.most["mail"] > 20)
    calls.go_on.set()
    await until(lambda: len(calls.order) == 50)
    await until(lambda: look.fetchval("SELECT count(*) = 50 FROM run_history"))


async def test_delayed_runs_start_at_their_time_also_of_jobs_with_a_schedule(
    look: Any, store: Store, start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heads, "READ_EVERY", 600.0)
    monkeypatch.setattr(backlog, "SWEEP_EVERY", 600.0)
    monkeypatch.setattr("detent.worker.worker.POLL_EVERY", 600.0)
    await factories.add_task(look, name="mail")
    await factories.add_job(look, None, name="report")
    calls = Recorder()
    await start(calls)
    for name in ("mail", "report"):
        await enqueue(look, name, 1, delay_seconds=1)
    await until(lambda: sorted(calls.order) == ["mail", "report"])
    await until(lambda: look.fetchval("SELECT count(*) = 2 FROM run_history"))
    assert await look.fetchval("SELECT bool_and(started_at >= scheduled_at) FROM run_history")


async def test_many_tasks_share_the_capacity_whatever_one_of_them_has_waiting(
    look: Any, store: Store, start: Any
) -> None:
    await factories.add_task(look, name="million")
    await enqueue(look, "million", 20_000)
    for n in range(20):
        await factories.add_task(look, name=f"task-{n}")
        await enqueue(look, f"task-{n}", 2)
    calls = Recorder()
    session = await start(calls, concurrency=10)
    await until(lambda: sum(name != "million" for name in calls.order) == 40, timeout=30)
    assert calls.order.count("million") < 10_000
    await session.close(0)


async def test_a_hint_names_the_job_whose_heads_are_read(
    look: Any, store: Store, start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heads, "READ_EVERY", 600.0)
    await look.execute("ALTER TABLE backlog DISABLE TRIGGER notify_enqueued")
    job = await factories.add_task(look, name="mail")
    calls = Recorder()
    session = await start(calls)
    await until(lambda: session.worker.on_demand.backlog.heads._next_read > 0)
    await enqueue(look, "mail", 1)
    await store.upkeep.wake(RUNS_CHANNEL, f"task:{job}")
    await until(lambda: calls.order == ["mail"])


async def quick(_call: Call) -> Outcome:
    return Succeeded()


async def test_no_run_of_a_concurrency_key_is_forgotten_while_nodes_come_and_go(
    look: Any, store: Store, start: Any
) -> None:
    await factories.add_task(look, name="sync", key_text="{{payload}}", key_limit=2)
    for n in range(20):
        await enqueue(look, "sync", 30, payload=n)
    first = await start(quick, concurrency=8)
    await until(lambda: look.fetchval("SELECT count(*) > 50 FROM run_history"))
    await start(quick, concurrency=8)
    await first.close(1)
    await until(lambda: look.fetchval("SELECT count(*) = 600 FROM run_history"), timeout=40)
    assert await look.fetchval("SELECT count(*) FROM backlog") == 0
