"""Concurrency keys of jobs with a schedule: their ticks wait for a place of the key, on all nodes together."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import datetime
from functools import partial
from typing import Any

import msgspec
import pytest

from detent.domain.job import JobSpec
from detent.domain.run import Call, Failed, Outcome, Succeeded
from detent.jobs import JobOperations
from detent.store import Store
from detent.worker import backlog
from tests.session.test_on_demand import ended, enqueue
from tests.support import factories
from tests.support.tenants import HTTP
from tests.support.waiting import until


class Target:
    """Records the calls, and how many run at once."""

    def __init__(self, *, fail: bool = False) -> None:
        self.calls: list[str] = []
        self.running: Counter[str] = Counter()
        self.most = 0
        self.fail = fail
        self.gate = asyncio.Event()

    async def __call__(self, call: Call) -> Outcome:
        self.calls.append(call.job)
        self.running[call.job] += 1
        self.most = max(self.most, self.running.total())
        await self.gate.wait()
        self.running[call.job] -= 1
        return Failed("no", retryable=False) if self.fail else Succeeded()

    async def calls_are(self, count: int) -> None:
        await until(lambda: len(self.calls) >= count)
        assert len(self.calls) == count


async def add(store: Store, name: str, **fields: Any) -> Any:
    """A job that is due in a year, and its number."""
    document = {"schedule": "every 365d", "target": HTTP, "name": name, "concurrency_limit": 1, **fields}
    (added,) = await JobOperations(store).registration.add([msgspec.convert(document, JobSpec)], tenant=1)
    return added


async def fire(look: Any, store: Store, *names: str) -> datetime:
    """Make these jobs due now."""
    due: datetime = await look.fetchval("SELECT date_trunc('milliseconds', now())")
    jobs = await look.fetch(
        "UPDATE cursors c SET next_tick = $1, fire_at = $1, generation = generation + 1 FROM jobs j"
        " WHERE j.job = c.job AND j.name = ANY ($2) RETURNING c.job",
        due, list(names),
    )  # fmt: skip
    await store.upkeep.wake("detent_jobs", ",".join(str(row["job"]) for row in jobs))
    return due


async def test_ticks_of_jobs_that_share_a_key_run_one_after_another(look: Any, store: Store, start: Any) -> None:
    names = [f"sync-{n}" for n in range(4)]
    for name in names:
        await add(store, name, concurrency_key="bank", concurrency_scope="tenant")
    await add(store, "other", concurrency_key="post", concurrency_scope="tenant")
    target = Target()
    sessions = [await start(target) for _ in range(2)]
    await fire(look, store, *names, "other")
    await until(lambda: len(set(target.calls)) == 2 and "other" in target.calls)
    await until(lambda: look.fetchval("SELECT count(*) = 3 FROM live_runs WHERE not_before = 'infinity'"))
    reasons = await look.fetch("SELECT reason FROM runs WHERE status = 'pending'")
    assert {row["reason"] for row in reasons} == {"waiting for its concurrency key"}
    target.gate.set()
    rows = await ended(look, 5)
    assert [row["status"] for row in rows] == [1] * 5
    assert target.most == 2, "one of each key"
    assert Counter(target.calls) == dict.fromkeys([*names, "other"], 1)
    assert all(not session.closed for session in sessions)


async def test_a_tick_and_on_demand_runs_share_the_key_of_their_payload(look: Any, store: Store, start: Any) -> None:
    key = {"concurrency_key": "c-{{payload.customer}}", "concurrency_scope": "tenant", "payload": {"customer": 7}}
    await add(store, "nightly", **key)
    await factories.add_task(look, name="sync", key_text="c-{{payload.customer}}", key_limit=1, key_shared=True)
    target = Target()
    await start(target)
    await enqueue(look, "sync", [{"payload": {"customer": 7}}])
    await target.calls_are(1)
    await fire(look, store, "nightly")
    await until(lambda: look.fetchval("SELECT count(*) FROM live_runs WHERE not_before = 'infinity'"))
    await enqueue(look, "nightly", [{}])  # waits for the lane of its job, and then for the key
    assert set(target.calls) == {"sync"}
    target.gate.set()
    await ended(look, 3)
    assert (target.most, sorted(target.calls)) == (1, ["nightly", "nightly", "sync"])


@pytest.mark.parametrize("policy", ["QUEUE", "ALLOW"])
async def test_the_overlap_policy_holds_beside_the_key(look: Any, store: Store, start: Any, policy: str) -> None:
    fields = {"max_concurrent": 3} if policy == "ALLOW" else {}
    await add(store, "report", concurrent_policy=policy, **fields)
    target = Target()
    await start(target)
    for count in (1, 2):
        await fire(look, store, "report")
        await until(partial(_live, look, count))
    target.gate.set()
    await ended(look, 2)
    assert (target.most, target.calls) == (1, ["report"] * 2)


async def _live(look: Any, count: int) -> bool:
    return bool(await look.fetchval("SELECT count(*) = $1 FROM live_runs", count))


async def test_a_dead_tick_that_is_driven_again_finds_its_own_place(look: Any, store: Store, start: Any) -> None:
    await add(store, "report")
    target = Target(fail=True)
    target.gate.set()
    await start(target)
    await fire(look, store, "report")
    (row,) = await ended(look, 1)
    assert (row["status"], row["key"]) == (2, "")
    target.fail = False
    key = (await store.reruns.latest_dead([row["job"]]))[0]
    assert (await store.reruns.redrive([key])).runs == [key]
    await until(lambda: look.fetchval("SELECT status = 1 FROM run_history"))
    assert target.calls == ["report"] * 2


async def test_the_rate_of_a_key_spreads_ticks(look: Any, store: Store, start: Any) -> None:
    names = [f"call-{n}" for n in range(4)]
    for name in names:
        await add(
            store, name, concurrency_limit=None, concurrency_rate=5, concurrency_key="api", concurrency_scope="tenant"
        )
    target = Target()
    target.gate.set()
    await start(target)
    await fire(look, store, *names)
    await ended(look, 4)
    starts = [row["started_at"] for row in await look.fetch("SELECT started_at FROM run_history ORDER BY started_at")]
    assert (starts[-1] - starts[0]).total_seconds() >= 0.5


async def test_the_sweep_admits_a_tick_whose_predecessor_ended_without_a_word(
    look: Any, store: Store, start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog, "SWEEP_EVERY", 0.3)
    job = await factories.add_job(look, None, name="gone", key_limit=1, key_shared=True, key_text="bank")
    await look.execute(
        "INSERT INTO key_places (scope, key, place, job, lane, scheduled_at) VALUES (-1, 'bank', 0, $1, 0, $2)",
        job, factories.LONG_AGO,
    )  # fmt: skip
    await factories.add_live_run(look, job, owner=99, key="bank")
    await add(store, "next", concurrency_key="bank", concurrency_scope="tenant")
    target = Target()
    target.gate.set()
    await start(target)
    await fire(look, store, "next")
    await until(lambda: look.fetchval("SELECT count(*) FROM live_runs WHERE not_before = 'infinity'"))
    await look.execute("DELETE FROM live_runs WHERE job = $1", job)
    await ended(look, 1)
    assert target.calls == ["next"]
