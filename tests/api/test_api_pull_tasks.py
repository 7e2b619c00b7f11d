"""On-demand runs and pull workers, over a socket: the same protocol as for ticks."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from uuid import UUID

from detent.domain import identity
from detent.store.queues import RunLimits
from detent.telemetry.metrics import Metrics
from detent.worker.pull import sweep
from tests.api.api_client import ApiClient
from tests.support import factories
from tests.support.tenants import add_tenant
from tests.support.waiting import until

SECONDS = 20


async def enqueue(sql: Any, task: str, runs: list[dict[str, Any]]) -> list[str]:
    rows = await sql.fetch("SELECT * FROM enqueue_many($1, $2)", task, json.dumps(runs))
    return [str(row["run"]) for row in rows]


async def claim(api: ApiClient, **fields: Any) -> list[Any]:
    body = {"worker": "js-1", "targets": ["http"], **fields}
    runs: list[Any] = (await api.good("POST", "/api/v1/queues/default/claim", json=body))["runs"]
    return runs


async def say(api: ApiClient, run: Any, verb: str, status: int = 200, **body: Any) -> Any:
    ask = api.good if status == 200 else api.problem
    return await ask("POST", f"/api/v1/runs/{run['run_id']}/{verb}", status, json={"token": run["token"], **body})


async def test_a_claim_brings_an_on_demand_run_with_its_payload(api: ApiClient, sql: Any) -> None:
    await factories.add_task(sql, name="mail", definition={"payload": {"n": 0}})
    runs = await enqueue(sql, "mail", [{"payload": {"n": n}} for n in (1, 2)] + [{}])
    claimed = await claim(api, limit=10)
    assert {run["run_id"]: run["payload"] for run in claimed} == dict(
        zip(runs, [{"n": 1}, {"n": 2}, {"n": 0}], strict=True)
    )
    for run in claimed:
        assert (await say(api, run, "complete", result=run["payload"]))["status"] == "succeeded"
    rows = await sql.fetch("SELECT status, payload FROM run_history ORDER BY serial")
    assert [(row["status"], row["payload"]) for row in rows] == [(1, '{"n": 1}'), (1, '{"n": 2}'), (1, None)]
    assert await sql.fetchval("SELECT count(*) FROM backlog") == 0
    assert await claim(api) == []


async def test_a_waiting_claim_gets_a_run_that_is_enqueued_while_it_waits(api: ApiClient, sql: Any) -> None:
    await factories.add_task(sql, name="mail")
    waiting = asyncio.create_task(claim(api, wait_seconds=SECONDS))
    await until(lambda: sql.fetchval("SELECT count(*) FROM pg_stat_activity WHERE query ~* '^listen'"))
    (run,) = await enqueue(sql, "mail", [{"payload": 7}])
    assert [(each["run_id"], each["payload"]) for each in await waiting] == [(run, 7)]


async def test_a_delayed_run_is_claimed_at_its_time(api: ApiClient, sql: Any) -> None:
    await factories.add_task(sql, name="mail")
    (run,) = await enqueue(sql, "mail", [{"delay_seconds": 0.8}])
    assert await claim(api) == []
    (claimed,) = await claim(api, wait_seconds=SECONDS)
    assert claimed["run_id"] == run
    assert await sql.fetchval("SELECT claimed_at >= scheduled_at FROM pull_leases")


async def test_a_failed_attempt_is_retried_from_the_backlog(api: ApiClient, sql: Any) -> None:
    await factories.add_task(sql, name="mail", definition={"max_retries": 1, "retry_base_seconds": 0})
    await enqueue(sql, "mail", [{"payload": "x"}])
    (first,) = await claim(api)
    assert (await say(api, first, "fail", error="no"))["status"] == "retrying"
    assert await sql.fetchval("SELECT attempt FROM backlog") == 2
    (second,) = await claim(api, wait_seconds=SECONDS)
    assert (second["attempt"], second["payload"]) == (2, "x")
    assert second["token"] > first["token"]
    assert second["idempotency_key"] == first["idempotency_key"]
    await say(api, first, "complete", 409)
    assert (await say(api, second, "fail", error="no"))["status"] == "dead"
    assert await sql.fetchval("SELECT payload FROM run_history") == '"x"'


async def test_a_run_whose_lease_expires_is_claimed_again_by_another_worker(api: ApiClient, sql: Any) -> None:
    await factories.add_task(sql, name="mail")
    await enqueue(sql, "mail", [{"payload": 1}])
    (first,) = await claim(api)
    assert (await say(api, first, "heartbeat", lease_seconds=60))["cancel"] is False
    await sql.execute("UPDATE pull_leases SET lease_until = now() - interval '1 second'")
    assert await sweep(api.store, None, Metrics()) == 1  # type: ignore[arg-type]
    (second,) = await claim(api, worker="js-2")
    assert (second["run_id"], second["payload"]) == (first["run_id"], 1)
    await say(api, first, "complete", 409)
    await say(api, second, "complete")
    assert await sql.fetchval("SELECT count(*) FROM run_history") == 1


async def test_a_limit_of_the_queue_holds_for_on_demand_runs(api: ApiClient, sql: Any) -> None:
    await factories.add_task(sql, name="mail")
    await api.store.queues.limit("default", RunLimits(2, None), tenant=1)
    await enqueue(sql, "mail", [{} for _ in range(5)])
    first = await claim(api, limit=10)
    assert len(first) == 2
    assert await claim(api, limit=10) == []
    await say(api, first[0], "complete")
    assert len(await claim(api, limit=10)) == 1


async def test_a_concurrency_key_holds_and_its_next_run_follows(api: ApiClient, sql: Any) -> None:
    await factories.add_task(sql, name="sync", key_text="{{payload.customer}}", key_limit=1)
    runs = await enqueue(sql, "sync", [{"payload": {"customer": c}} for c in "aab"])
    claimed = {run["run_id"]: run for run in await claim(api, limit=10)}
    assert set(claimed) == {runs[0], runs[2]}
    waiting = asyncio.create_task(claim(api, limit=10, wait_seconds=SECONDS))
    await until(lambda: sql.fetchval("SELECT parked FROM backlog"))
    await say(api, claimed[runs[0]], "complete")
    assert [run["run_id"] for run in await waiting] == [runs[1]]


async def test_a_trigger_of_a_job_that_a_pull_worker_runs_waits_for_its_lane(api: ApiClient, sql: Any) -> None:
    job = await api.create(schedule="every 1h", target={"type": "http", "url": "http://127.0.0.1:9/"})
    for n in (1, 2):
        await api.good("POST", f"/api/v1/jobs/{job['id']}/trigger", 202, json={"payload": n})
    (first,) = await claim(api, limit=10)
    assert first["payload"] == 1
    waiting = asyncio.create_task(claim(api, wait_seconds=SECONDS))
    await say(api, first, "complete")
    assert [run["payload"] for run in await waiting] == [2]


async def test_runs_of_other_tenants_queues_and_functions_are_left_where_they_are(api: ApiClient, sql: Any) -> None:
    other = await add_tenant(api.store, "other")
    await factories.add_task(sql, name="theirs", tenant=other)
    await factories.add_task(sql, name="elsewhere", queue="elsewhere")
    await sql.fetch("SELECT * FROM enqueue('theirs', tenant => 'other')")
    await enqueue(sql, "elsewhere", [{}])
    assert await claim(api) == []
    assert await claim(api, targets=["python"]) == []
    assert await sql.fetchval("SELECT count(*) FROM backlog") == 2


async def test_a_cancelled_run_is_never_claimed(api: ApiClient, sql: Any) -> None:
    await factories.add_task(sql, name="mail")
    waiting, running = await enqueue(sql, "mail", [{"delay_seconds": 60}, {}])
    (run,) = await claim(api)
    assert run["run_id"] == running
    keys = [identity.decode_run_id(UUID(each)) for each in (waiting, running)]
    owners = await api.store.live_runs.cancel([key for key in keys if key is not None])
    assert set(owners) == set(keys)
    assert (await say(api, run, "heartbeat", lease_seconds=60))["cancel"] is True
    assert (await say(api, run, "fail", error="stopped"))["status"] == "cancelled"
    rows = await sql.fetch("SELECT status FROM run_history")
    assert [row["status"] for row in rows] == [3, 3]
    assert await claim(api) == []
