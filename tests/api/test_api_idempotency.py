"""Requests that are sent again under one key happen once, whatever was lost on the way."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from detent.errors import RequestInProgress
from detent.jobs.register import JobRegistration
from detent.runtime import failpoints
from detent.store.db import PoolName
from tests.api.api_client import HTTP, ApiClient

JOB = {"schedule": "every 1h", "target": HTTP}


def keyed(key: str) -> dict[str, str]:
    return {"Idempotency-Key": key}


async def test_the_same_request_under_the_same_key_is_answered_again(api: ApiClient, sql: Any) -> None:
    first = await api.ask("POST", "/api/v1/jobs", json=JOB, headers=keyed("k-1"))
    again = await api.ask("POST", "/api/v1/jobs", json=JOB, headers=keyed("k-1"))
    assert (again.status, again.document) == (201, first.document)
    assert "Idempotent-Replayed" not in first.headers
    assert again.headers["Idempotent-Replayed"] == "true"
    for header in ("Location", "ETag", "Content-Type", "Cache-Control"):
        assert again.headers[header] == first.headers[header]
    assert await sql.fetchval("SELECT count(*) FROM jobs") == 1
    other = await api.ask("POST", "/api/v1/jobs", json=JOB, headers=keyed("k-2"))
    assert other.document["id"] != first.document["id"]


async def test_every_request_that_makes_something_takes_a_key(api: ApiClient, sql: Any) -> None:
    await api.create(name="a", concurrent_policy="ALLOW")
    run = await api.good("POST", "/api/v1/jobs/a/trigger", 202)
    await api.good("POST", f"/api/v1/runs/{run['id']}/cancel")
    requests: list[tuple[str, dict[str, Any]]] = [
        ("/api/v1/jobs/batch", {"json": [JOB, JOB]}),
        ("/api/v1/jobs/a/trigger", {}),
        ("/api/v1/jobs/a/retry", {}),
        (f"/api/v1/runs/{run['id']}/retry", {}),
        ("/api/v1/dead-letters/redrive", {"json": {"runs": [run["id"]]}}),
        ("/api/v1/dead-letters/discard", {"json": {"runs": [run["id"]]}}),
        ("/api/v1/tasks/a/runs", {"json": {"runs": [{}, {"payload": 1}]}}),
        ("/api/v1/jobs/a/backfill", {"json": {"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T03:00:00Z"}}),
    ]
    described = (await api.good("GET", "/openapi.json"))["paths"]
    for number, (path, options) in enumerate(requests):
        first, again = [await api.ask("POST", path, headers=keyed(f"k{number}"), **options) for _ in range(2)]
        assert (again.status, again.document) == (first.status, first.document)
        assert again.headers["Idempotent-Replayed"] == "true"
    marked = {
        path
        for path, methods in described.items()
        if any(each["name"] == "Idempotency-Key" for each in methods.get("post", {}).get("parameters", []))
    }
    assert len(marked) == len(requests) + 1
    assert await sql.fetchval("SELECT count(*) FROM jobs") == 3
    waiting = "SELECT (SELECT count(*) FROM live_runs) + (SELECT count(*) FROM backlog)"
    assert await sql.fetchval(waiting) == 5  # of the trigger, two retries and two that were enqueued


async def test_another_request_under_the_same_key_is_refused(api: ApiClient, sql: Any) -> None:
    await api.good("POST", "/api/v1/jobs", 201, json=JOB, headers=keyed("k"))
    others: list[tuple[str, dict[str, Any]]] = [
        ("/api/v1/jobs", {"json": {**JOB, "priority": 1}}),
        ("/api/v1/jobs/batch", {"json": JOB}),
        ("/api/v1/jobs/batch?mode=upsert", {"json": JOB}),
        ("/api/v1/jobs/x/trigger", {}),
    ]
    for path, options in others:
        problem = await api.problem("POST", path, 422, headers=keyed("k"), **options)
        assert problem["type"] == "/problems/idempotency-key-reused"
    assert await sql.fetchval("SELECT count(*) FROM jobs") == 1


async def test_a_request_that_was_refused_may_be_put_right_under_its_key(api: ApiClient) -> None:
    await api.problem("POST", "/api/v1/jobs", 422, json={**JOB, "priority": 101}, headers=keyed("k"))
    await api.problem("POST", "/api/v1/jobs/none/trigger", 404, headers=keyed("k"))
    await api.good("POST", "/api/v1/jobs", 201, json=JOB, headers=keyed("k"))


async def test_a_batch_that_was_a_conflict_may_be_put_right_under_its_key(api: ApiClient, sql: Any) -> None:
    await api.create(name="n7")
    jobs = [{**JOB, "name": f"n{number}"} for number in range(80)]
    problem = await api.problem("POST", "/api/v1/jobs/batch", 409, json=jobs, headers=keyed("k"))
    assert [error["pointer"] for error in problem["errors"]] == ["/7/name"]
    jobs[7]["name"] = "other"
    for replayed in (False, True):
        answer = await api.ask("POST", "/api/v1/jobs/batch", json=jobs, headers=keyed("k"))
        assert (answer.status, "Idempotent-Replayed" in answer.headers) == (200, replayed)
    assert await sql.fetchval("SELECT count(*) FROM jobs") == 81


async def test_when_all_connections_are_in_use_nothing_is_said_to_be_unknown(
    api: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    from contextlib import AsyncExitStack

    monkeypatch.setattr("detent.store.db.CONNECTION_SECONDS", 0.1)
    async with AsyncExitStack() as stack:
        for _ in range(5):
            await stack.enter_async_context(api.store.database.connection(PoolName.REQUEST))
        problem = await api.problem("POST", "/api/v1/jobs", 503, json=JOB)
        assert problem["type"] == "/problems/unavailable"
    await api.good("POST", "/api/v1/jobs", 201, json=JOB)


async def test_a_request_under_way_is_reported_to_wait(api: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    add = JobRegistration.add
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slowly(self: JobRegistration, *specs: Any, **options: Any) -> Any:
        begun.set()
        await go_on.wait()
        return await add(self, *specs, **options)

    monkeypatch.setattr(JobRegistration, "add", slowly)
    first = asyncio.create_task(api.ask("POST", "/api/v1/jobs", json=JOB, headers=keyed("k")))
    await begun.wait()
    second = await api.ask("POST", "/api/v1/jobs", json=JOB, headers=keyed("k"))
    assert (second.status, second.document["type"]) == (409, "/problems/request-under-way")
    assert int(second.headers["Retry-After"]) >= 1
    go_on.set()
    assert (await first).status == 201
    again = await api.ask("POST", "/api/v1/jobs", json=JOB, headers=keyed("k"))
    assert again.headers["Idempotent-Replayed"] == "true"
    assert issubclass(RequestInProgress, Exception)


@pytest.mark.parametrize("step", ["A1", "A2"])
async def test_a_crash_before_or_after_the_commit_is_healed_by_sending_again(
    api: ApiClient, sql: Any, step: str
) -> None:
    failpoints.arm(f"{step}=error")
    try:
        await api.problem("POST", "/api/v1/jobs", 500, json=JOB, headers=keyed("k"))
    finally:
        failpoints.arm("")
    assert await sql.fetchval("SELECT count(*) FROM jobs") == (0 if step == "A1" else 1)
    answer = await api.ask("POST", "/api/v1/jobs", json=JOB, headers=keyed("k"))
    assert answer.status == 201
    assert ("Idempotent-Replayed" in answer.headers) == (step == "A2")
    assert await sql.fetchval("SELECT count(*) FROM jobs") == 1


@pytest.mark.parametrize("key", ["", " ", "a b", "x" * 256, "ü"])
async def test_a_key_that_cannot_be_one_is_refused(api: ApiClient, sql: Any, key: str) -> None:
    problem = await api.problem("POST", "/api/v1/jobs", 400, json=JOB, headers=keyed(key))
    assert "1 to 255" in problem["detail"]
    assert await sql.fetchval("SELECT count(*) FROM jobs") == 0


async def test_many_concurrent_requests_under_one_key_make_one_job(api: ApiClient, sql: Any) -> None:
    answers = await asyncio.gather(
        *(api.ask("POST", "/api/v1/jobs", json={**JOB, "name": "a"}, headers=keyed("k")) for _ in range(10))
    )
    assert {answer.status for answer in answers} <= {201, 409}
    assert len({answer.document["id"] for answer in answers if answer.status == 201}) == 1
    assert await sql.fetchval("SELECT count(*) FROM jobs") == 1
