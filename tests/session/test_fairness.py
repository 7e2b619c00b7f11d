"""Tenants beside each other on one worker, and limits that hold on all of them. Orders and counts, no times."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from detent.domain.job import JobSpec
from detent.domain.run import Call, Outcome, Succeeded
from detent.jobs import JobOperations
from detent.store import Store
from detent.store.queues import RunLimits
from tests.support.factories import LONG_AGO
from tests.support.tenants import HTTP, add_job, add_ready, add_tenant
from tests.support.waiting import until

Runner = Callable[[Call], Awaitable[Outcome]]


class Recorder:
    """Which jobs were called, in which order, and how many at once."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.under_way: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def __call__(self, call: Call) -> Outcome:
        self.order.append(call.job)
        self.under_way[call.job] += 1
        self.most[call.job] = max(self.most[call.job], self.under_way[call.job])
        await asyncio.sleep(0)
        await self.go_on.wait()
        self.under_way[call.job] -= 1
        return Succeeded()


@pytest.mark.parametrize("priority", [5, 9])
async def test_a_flood_of_one_tenant_leaves_room_for_another(
    look: Any, store: Store, start: Any, priority: int
) -> None:
    """Also where the flood has the higher priority: that is for a tenant's own runs."""
    noisy, quiet = await add_tenant(store, "noisy"), await add_tenant(store, "quiet")
    await add_ready(look, *await add_job(store, look, noisy, "flood"), 400, priority=priority)
    await add_ready(look, *await add_job(store, look, quiet, "drop"), 20, LONG_AGO + timedelta(days=1))
    calls = Recorder()
    await start(calls, concurrency=10)
    await until(lambda: len(calls.order) == 420)
    assert calls.order[:60].count("drop") == 20


async def test_shares_are_by_weight(look: Any, store: Store, start: Any) -> None:
    for name, weight in (("light", 1), ("heavy", 3)):
        tenant = await add_tenant(store, name, weight=weight)
        await add_ready(look, *await add_job(store, look, tenant, name), 400)
    calls = Recorder()
    await start(calls, concurrency=10)
    await until(lambda: len(calls.order) == 800)
    assert 210 <= calls.order[:320].count("heavy") <= 260


async def test_ticks_of_one_tenant_do_not_wait_for_all_ticks_of_another(look: Any, store: Store, start: Any) -> None:
    noisy, quiet = await add_tenant(store, "noisy"), await add_tenant(store, "quiet")
    documents = [{"schedule": "every 1h", "target": HTTP, "name": f"flood-{n}"} for n in range(2500)]
    await JobOperations(store).registration.add(
        [msgspec.convert(document, JobSpec) for document in documents], tenant=noisy
    )
    await add_job(store, look, quiet, "drop")
    due = await look.fetchval("SELECT date_trunc('milliseconds', now() + interval '1 second')")
    await look.execute("UPDATE cursors SET next_tick = $1, fire_at = $1", due)
    calls = Recorder()
    await start(calls, concurrency=10)
    await until(lambda: len(calls.order) == 2501, timeout=60)
    assert calls.order.index("drop") < 1000


async def test_no_more_runs_of_a_queue_are_under_way_than_its_limit_on_all_nodes_together(
    look: Any, store: Store, start: Any
) -> None:
    job, queue = await add_job(store, look, 1, "narrow", "narrow")
    free = await add_job(store, look, 1, "free")
    await store.queues.limit("narrow", RunLimits(3, None), tenant=1)
    await add_ready(look, job, queue, 60)
    await add_ready(look, *free, 60)
    calls = Recorder()
    for _ in range(2):
        await start(calls, concurrency=20, queues=("default", "narrow"))
    await until(lambda: Counter(calls.order) == {"narrow": 60, "free": 60}, timeout=30)
    assert calls.most["narrow"] <= 3
    assert calls.most["free"] > 3


async def test_a_tenants_limit_is_for_all_its_queues(look: Any, store: Store, start: Any) -> None:
    tenant = await add_tenant(store, "acme", max_concurrent=4)
    for name in ("one", "two"):
        await add_ready(look, *await add_job(store, look, tenant, name, name), 30)
    calls = Recorder()
    together: list[int] = []

    async def runner(call: Call) -> Outcome:
        together.append(sum(calls.under_way.values()) + 1)
        return await calls(call)

    await start(runner, concurrency=20, queues=("one", "two"))
    await until(lambda: len(calls.order) == 60, timeout=30)
    assert max(together) <= 4


async def test_ticks_of_a_limited_queue_are_not_handed_off(look: Any, store: Store, start: Any) -> None:
    job, _ = await add_job(store, look, 1, "narrow", "narrow")
    await store.queues.limit("narrow", RunLimits(1, None), tenant=1)
    calls = Recorder()
    calls.go_on.clear()
    session = await start(calls, queues=("default", "narrow"))
    await until(lambda: session.worker._claiming.limited)
    await look.execute("UPDATE cursors SET next_tick = now(), fire_at = now(), generation = generation + 1")
    await store.upkeep.wake("detent_jobs", str(job))
    await until(lambda: calls.order)
    # Handed off, it would have the first token; and it would not count.
    row = await look.fetchrow("SELECT token, limited FROM live_runs")
    assert (row["token"], row["limited"]) == ((1 << 22 | 1) + 1, True)
    calls.go_on.set()


async def test_a_limit_that_is_set_while_runs_are_under_way_counts_them(look: Any, store: Store, start: Any) -> None:
    job, queue = await add_job(store, look, 1, "narrow")
    await add_ready(look, job, queue, 3)
    calls = Recorder()
    calls.go_on.clear()
    session = await start(calls, concurrency=10)
    await until(lambda: len(calls.order) == 3)
    await store.queues.limit("default", RunLimits(3, None), tenant=1)
    await until(lambda: session.worker._claiming.limited)
    await look.execute(
        "INSERT INTO live_runs (job, scheduled_at, token, not_before, queue, revision, lane, priority)"
        " SELECT $1, $2::timestamptz + n * interval '1 minute', 1 << 22 | 1, $2, $3, 1, 100 + n, 5"
        " FROM generate_series(1, 9) AS n",
        job, LONG_AGO, queue,
    )  # fmt: skip
    for _ in range(5):
        assert await session.worker.tick() > 0
    assert len(calls.order) == 3
    calls.go_on.set()
    await until(lambda: len(calls.order) == 12)
    assert calls.most["narrow"] == 3


async def test_a_rate_lets_a_second_bring_no_more_than_it_says(look: Any, store: Store, start: Any) -> None:
    job, queue = await add_job(store, look, 1, "steady", "steady")
    await store.queues.limit("steady", RunLimits(None, 25), tenant=1)
    await add_ready(look, job, queue, 80)
    calls = Recorder()
    for _ in range(2):
        await start(calls, concurrency=50, queues=("steady",))
    await until(lambda: len(calls.order) == 80, timeout=30)
    # A bucket holds what a second brings: in any span of time no more are claimed than it had and got meanwhile.
    took = await look.fetchval("SELECT max(finished_at) - min(started_at) FROM run_history")
    assert took >= timedelta(seconds=(80 - 25) / 25 - 0.5)


class Slow(Recorder):
    """Runs take longer than a claim, and do not end together, so that there is always something in hand."""

    async def __call__(self, call: Call) -> Outcome:
        await asyncio.sleep(random.uniform(0.1, 0.3))
        return await super().__call__(call)


async def test_a_limited_queue_has_its_turns_beside_an_endless_backlog(look: Any, store: Store, start: Any) -> None:
    noisy, quiet = await add_tenant(store, "noisy"), await add_tenant(store, "quiet", max_concurrent=5)
    await add_ready(look, *await add_job(store, look, noisy, "flood"), 3000)
    drop = await add_job(store, look, quiet, "drop")
    calls = Slow()
    await start(calls, concurrency=40)
    await until(lambda: len(calls.order) >= 100)
    await add_ready(look, *drop, 20, LONG_AGO + timedelta(days=1))
    await until(lambda: calls.order.count("drop") == 20, timeout=60)
    assert len(calls.order) < 1000


async def test_limited_tenants_share_what_can_start(look: Any, store: Store, start: Any) -> None:
    for name in ("one", "two", "three"):
        tenant = await add_tenant(store, name, max_concurrent=50)
        await add_ready(look, *await add_job(store, look, tenant, name), 200)
    calls = Slow()
    await start(calls, concurrency=6)
    await until(lambda: len(calls.order) >= 150, timeout=60)
    counts = Counter(calls.order[:150])
    assert min(counts[name] for name in ("one", "two", "three")) >= 25


async def test_tenants_that_may_run_nothing_take_no_share_of_those_that_may(
    look: Any, store: Store, start: Any
) -> None:
    for number in range(12):
        tenant = await add_tenant(store, f"held-{number}", max_concurrent=0)
        await add_ready(look, *await add_job(store, look, tenant, f"held-{number}"), 2)
    await add_ready(look, *await add_job(store, look, 1, "free"), 60)
    await add_ready(
        look, *await add_job(store, look, await add_tenant(store, "bounded", max_concurrent=3), "bounded"), 30
    )
    calls = Slow()
    await start(calls, concurrency=4)
    await until(lambda: Counter(calls.order) == {"free": 60, "bounded": 30}, timeout=60)
