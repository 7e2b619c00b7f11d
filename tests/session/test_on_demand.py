"""On-demand runs through a whole session: they wait in the backlog, run once, and leave one row of history."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from detent.domain.run import Call, Failed, Outcome, Succeeded
from detent.node.session import Session
from detent.store import Store
from tests.support import factories
from tests.support.waiting import until

StartSession = Callable[..., Awaitable[Session]]


class Recorder:
    """A target that records its calls, and how many run at once for each value of `customer`."""

    def __init__(self, *, fail: int = 0) -> None:
        self.calls: list[Call] = []
        self.running: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.fail = fail
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, call: Call) -> Outcome:
        customer = str((call.payload or {}).get("customer"))
        self.running[customer] += 1
        self.most[customer] = max(self.most[customer], self.running[customer])
        self.calls.append(call)
        await asyncio.sleep(0)
        await self.gate.wait()
        self.running[customer] -= 1
        if call.attempt <= self.fail:
            return Failed("not yet")
        return Succeeded()


async def enqueue(look: Any, task: str, runs: list[dict[str, Any]]) -> list[Any]:
    rows: list[Any] = await look.fetch("SELECT * FROM enqueue_many($1, $2)", task, json.dumps(runs))
    return rows


async def ended(look: Any, count: int) -> list[Any]:
    async def rows() -> list[Any]:
        found: list[Any] = await look.fetch("SELECT * FROM run_history WHERE status < 4 ORDER BY serial")
        return found if len(found) >= count else []

    return await until(rows)


async def test_enqueued_runs_run_once_each_with_their_payload(store: Store, look: Any, start: StartSession) -> None:
    await factories.add_task(look, name="mail")
    target = Recorder()
    await start(target)
    runs = await enqueue(look, "mail", [{"payload": {"n": n}} for n in range(500)])
    rows = await ended(look, 500)
    assert sorted(call.payload["n"] for call in target.calls) == list(range(500))
    assert {call.run_id for call in target.calls} == {str(run["run"]) for run in runs}
    assert len({call.idempotency_key for call in target.calls}) == 500
    assert [row["status"] for row in rows] == [1] * 500
    assert sorted(json.loads(row["payload"])["n"] for row in rows) == list(range(500))
    assert await look.fetchval("SELECT count(*) FROM live_runs") == 0
    assert await look.fetchval("SELECT count(*) FROM backlog") == 0


async def test_a_failed_attempt_waits_in_the_backlog_and_is_retried(
    store: Store, look: Any, start: StartSession
) -> None:
    await factories.add_task(look, name="mail", definition={"max_retries": 3, "retry_base_seconds": 0})
    target = Recorder(fail=2)
    await start(target)
    await enqueue(look, "mail", [{"payload": {"n": 1}}, {}])
    rows = await ended(look, 2)
    assert [(row["status"], row["attempt"]) for row in rows] == [(1, 3), (1, 3)]
    assert Counter(call.run_id for call in target.calls).most_common()[0][1] == 3
    assert [call.payload for call in target.calls if call.payload] == [{"n": 1}] * 3


async def test_no_more_runs_of_a_concurrency_key_than_its_limit_run_at_once(
    store: Store, look: Any, start: StartSession
) -> None:
    await factories.add_task(look, name="sync", key_text="{{payload.customer}}", key_limit=2)
    target = Recorder()
    await start(target, concurrency=50)
    await enqueue(look, "sync", [{"payload": {"customer": f"c{n % 5}"}} for n in range(100)])
    await ended(look, 100)
    assert len({call.run_id for call in target.calls}) == len(target.calls) == 100
    assert set(target.most) == {f"c{n}" for n in range(5)}
    assert max(target.most.values()) <= 2


async def test_a_trigger_of_a_busy_job_waits_its_turn(store: Store, look: Any, start: StartSession) -> None:
    from detent.jobs import JobOperations

    job = await factories.add_job(look, None, name="report")
    job_id = await look.fetchval("SELECT id FROM jobs WHERE job = $1", job)
    target = Recorder()
    target.gate.clear()
    await start(target)
    operations = JobOperations(store)
    first = await operations.lifecycle.trigger(job_id)
    await until(lambda: _calls(target, 1))
    second = await operations.lifecycle.trigger(job_id, {"customer": "second"})
    assert await look.fetchval("SELECT count(*) FROM backlog") == 1
    target.gate.set()
    rows = await ended(look, 2)
    assert {row["serial"] for row in rows} == {first.serial, second.serial}
    assert [call.payload for call in target.calls] == [None, {"customer": "second"}]
    assert max(target.most.values()) == 1


async def _calls(target: Recorder, count: int) -> bool:
    return len(target.calls) >= count


@pytest.mark.parametrize("priority", [-100, 100])
async def test_a_higher_priority_starts_first(store: Store, look: Any, start: StartSession, priority: int) -> None:
    await factories.add_task(look, name="mail")
    await enqueue(look, "mail", [{"payload": {"n": 0}}, {"payload": {"n": 1}, "priority": priority}])
    target = Recorder()
    await start(target, concurrency=1)
    await ended(look, 2)
    assert [call.payload["n"] for call in target.calls] == ([1, 0] if priority > 0 else [0, 1])


async def test_a_concurrency_key_may_come_from_the_payload_of_the_job(
    store: Store, look: Any, start: StartSession
) -> None:
    definition = {"payload": {"customer": "own"}}
    await factories.add_task(look, name="sync", definition=definition, key_text="{{payload.customer}}", key_limit=1)
    await enqueue(look, "sync", [{}, {"payload": {"customer": "other"}}, {"payload": {}}])
    keys = await look.fetch("SELECT key FROM backlog ORDER BY serial")
    assert [row["key"] for row in keys] == ["own", "other", None]
