"""Runs over HTTP."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from detent.domain.identity import decode_run_id
from detent.domain.run import Claim
from detent.domain.states import CODES, RunStatus
from tests.api.api_client import ApiClient
from tests.support.ends import ended_run
from tests.support.factories import add_node

CONTRACT = (
    "id job_id job scheduled_at status reason attempt token started_at finished_at duration_ms lateness_ms node result"
    " error idempotency_key attempts"
)
NODE = 7


async def claim_one(api: ApiClient, sql: Any) -> Claim:
    queues = await sql.fetchval("SELECT array_agg(queue) FROM queues")
    (claim,) = await api.store.live_runs.claim(NODE, 1, queues, 1)
    return claim


async def finish(api: ApiClient, sql: Any, run: Any, result: str | None = None) -> None:
    """What a worker does with a run."""
    if not await sql.fetchval("SELECT count(*) FROM nodes"):
        await add_node(sql, NODE)
    claim = await claim_one(api, sql)
    assert str(claim.run_id) == run["id"]
    now = datetime.now(UTC)
    done = ended_run(claim, now, now, CODES[RunStatus.SUCCEEDED], result=result)
    assert await api.store.live_runs.settle(NODE, [done]) == []


async def test_a_finished_run_has_the_shape_of_the_contract(api: ApiClient, sql: Any) -> None:
    await api.create(name="j")
    run = await api.good("POST", "/api/v1/jobs/j/trigger", 202)
    await finish(api, sql, run, '{"status":200,"body":"ok"}')
    done = await api.good("GET", f"/api/v1/runs/{run['id']}")
    assert set(CONTRACT.split()) <= set(done)
    assert done["status"] == "succeeded"
    assert done["result"] == {"status": 200, "body": "ok"}
    (attempt,) = done["attempts"]
    assert set(attempt) == {"attempt", "token", "node", "started_at", "finished_at", "outcome", "error"}
    assert done["started_at"].endswith("Z")
    assert (await api.good("GET", "/api/v1/jobs/j"))["last_status"] == "succeeded"


async def test_lists_of_runs_are_paged_newest_first(api: ApiClient, sql: Any) -> None:
    jobs = [await api.create(name=f"j{number}") for number in range(2)]
    ids = []
    for _ in range(4):
        for job in jobs:
            run = await api.good("POST", f"/api/v1/jobs/{job['id']}/trigger", 202)
            await finish(api, sql, run)
            ids.append(run["id"])
    collected, cursor = [], ""
    while cursor is not None:
        page = await api.good("GET", f"/api/v1/runs?limit=3&status=succeeded&status=dead&cursor={cursor}")
        collected += [run["id"] for run in page["items"]]
        cursor = page["next_cursor"]
    assert collected == ids[::-1]
    for alias in ("runs", "executions"):
        page = await api.good("GET", f"/api/v1/jobs/j1/{alias}")
        assert [run["id"] for run in page["items"]] == ids[1::2][::-1]
    assert (await api.good("GET", "/api/v1/runs?status=dead"))["items"] == []
    assert (await api.good("GET", "/api/v1/jobs/j0/runs?status=running"))["items"] == []


async def test_a_pending_run_is_cancelled_and_a_finished_one_cannot_be(api: ApiClient, sql: Any) -> None:
    await api.create(name="c")
    run = await api.good("POST", "/api/v1/jobs/c/trigger", 202)
    cancelled = await api.good("POST", f"/api/v1/runs/{run['id']}/cancel")
    assert cancelled["status"] == "cancelled"
    other = await api.good("POST", "/api/v1/jobs/c/trigger", 202)
    await finish(api, sql, other)
    problem = await api.problem("POST", f"/api/v1/runs/{other['id']}/cancel", 409)
    assert "already succeeded" in problem["detail"]


async def test_a_running_run_is_asked_to_stop(api: ApiClient, sql: Any) -> None:
    await add_node(sql, NODE)
    await api.create(name="r")
    run = await api.good("POST", "/api/v1/jobs/r/trigger", 202)
    await claim_one(api, sql)
    answer = await api.good("POST", f"/api/v1/runs/{run['id']}/cancel", 202)
    assert (answer["status"], answer["reason"]) == ("running", "cancelling")


async def test_ids_that_are_no_runs_are_not_found(api: ApiClient) -> None:
    job = await api.create()
    run = await api.good("POST", f"/api/v1/jobs/{job['id']}/trigger", 202)
    key = decode_run_id(UUID(run["id"]))
    assert key is not None
    other = f"{run['id'][:-1]}{'1' if run['id'][-1] == '0' else '0'}"
    for wrong in (job["id"], other, "x", "00000000-0000-0000-0000-000000000000", "%00", "%FF", "a%2Fb"):
        await api.problem("GET", f"/api/v1/runs/{wrong}", 404)
        await api.problem("POST", f"/api/v1/runs/{wrong}/cancel", 404)


async def test_a_missed_range_tells_how_many_ticks_and_until_when(api: ApiClient, sql: Any) -> None:
    job = await api.create()
    number = await api.store.jobs.number(UUID(job["id"]))
    first = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)
    await sql.execute(
        "INSERT INTO run_history (job, scheduled_at, finished_at, serial, revision, status, reason, ticks, until)"
        " VALUES ($1, $2, now(), 0, 1, 5, 'merged', 3, $3)",
        number,
        first,
        first + timedelta(minutes=20),
    )
    (run,) = (await api.good("GET", f"/api/v1/jobs/{job['id']}/runs"))["items"]
    assert (run["status"], run["reason"], run["ticks"]) == ("missed", "merged", 3)
    assert run["until"] == (first + timedelta(minutes=20)).strftime("%Y-%m-%dT%H:%M:%SZ")


async def test_a_run_is_found_by_the_only_beginning_of_its_id(api: ApiClient) -> None:
    job = await api.create(name="j")
    run = await api.good("POST", "/api/v1/jobs/j/trigger", 202)
    for beginning in (run["id"][:13], run["id"][:12].replace("-", ""), run["id"][:20].upper(), run["id"][:-1]):
        assert (await api.good("GET", f"/api/v1/runs/{beginning}"))["id"] == run["id"]
    assert (await api.good("GET", f"/api/v1/jobs/{job['id'][:13]}"))["id"] == job["id"]
    for unknown in (run["id"][:7], "0" * 8, run["id"][:8] + "--", run["id"] + "0"):
        await api.problem("GET", f"/api/v1/runs/{unknown}", 404)
    assert (await api.good("POST", f"/api/v1/runs/{run['id'][:23]}/cancel"))["status"] == "cancelled"


async def test_runs_are_listed_since_and_until_a_time(api: ApiClient) -> None:
    await api.create(name="j")
    run = await api.good("POST", "/api/v1/jobs/j/trigger", 202)
    expected = {"since=1h": 1, "until=1h": 0, "since=2020-01-01T00:00:00Z": 1, "since=2100-01-01T00:00:00Z": 0}
    for query, found in expected.items():
        for path in ("runs", "jobs/j/runs"):
            page = await api.good("GET", f"/api/v1/{path}?{query}")
            assert [each["id"] for each in page["items"]] == [run["id"]] * found
    problem = await api.problem("GET", "/api/v1/runs?since=soon", 422)
    assert problem["detail"].startswith("since is ")
