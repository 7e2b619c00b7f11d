"""Tasks over HTTP: jobs without a schedule."""

from __future__ import annotations

from typing import Any

from tests.api.api_client import HTTP, ApiClient

TASK = {"name": "mail", "target": HTTP}


async def test_a_job_without_a_schedule_is_a_task(api: ApiClient) -> None:
    for document in (TASK, {**TASK, "name": "other", "schedule": None}):
        job = await api.good("POST", "/api/v1/jobs", 201, json=document)
        assert (job["schedule"], job["next_run_at"], job["description"]) == (None, None, "On demand")
        assert await api.good("GET", f"/api/v1/jobs/{job['id']}") == job
    assert len((await api.good("GET", "/api/v1/jobs"))["items"]) == 2


async def test_a_task_gets_a_schedule_and_loses_it_again(api: ApiClient) -> None:
    await api.good("PUT", "/api/v1/jobs/by-name/mail", 201, json=TASK)
    unchanged = await api.ask("PUT", "/api/v1/jobs/by-name/mail", json=TASK)
    assert unchanged.headers["Detent-Change"] == "unchanged"
    assert (await api.good("PATCH", "/api/v1/jobs/mail", json={"schedule": "@daily"}))["next_run_at"] is not None
    assert (await api.good("PATCH", "/api/v1/jobs/mail", json={"schedule": None}))["next_run_at"] is None
    assert (await api.good("POST", "/api/v1/jobs/mail/rollback", json={"revision": 2}))["schedule"] == "@daily"
    assert (await api.good("POST", "/api/v1/jobs/mail/rollback", json={"revision": 1}))["schedule"] is None


async def test_limits_of_keys_are_shown_and_refused_where_they_are_wrong(api: ApiClient) -> None:
    limits: dict[str, Any] = {
        "concurrency_key": "customer-{{payload.customer}}",
        "concurrency_limit": 2,
        "concurrency_rate": 0.5,
        "concurrency_scope": "tenant",
    }
    job = await api.good("POST", "/api/v1/jobs", 201, json={**TASK, **limits, "priority": -100})
    assert {name: job[name] for name in limits} == limits
    assert job["priority"] == -100
    wrong = {**TASK, **limits, "concurrency_key": "{{customer}}"}
    problem = await api.problem("POST", "/api/v1/jobs", 422, json=wrong)
    assert problem["pointer"] == "/concurrency_key" and "{{payload.customer}}" in problem["detail"]
    problem = await api.problem("POST", "/api/v1/jobs/batch", 422, json={"jobs": [wrong]})
    assert problem["errors"][0]["pointer"].endswith("/0/concurrency_key")


async def test_what_is_asked_about_the_ticks_of_a_task_is_answered(api: ApiClient) -> None:
    await api.good("POST", "/api/v1/jobs", 201, json=TASK)
    at = "2030-01-01T00:00:00Z"
    problem = await api.problem("POST", "/api/v1/jobs/mail/skip", 409, json={"at": at})
    assert "has no schedule: its runs are enqueued" in problem["detail"]
    problem = await api.problem("POST", "/api/v1/jobs/mail/backfill", 409, json={"from": "2024-01-01T00:00:00Z"})
    assert "has no schedule: its runs are enqueued" in problem["detail"]
    assert (await api.good("GET", "/api/v1/jobs/mail/ticks"))["items"] == []
    preview = await api.good("POST", "/api/v1/schedules/preview", json={"schedule": None})
    assert (preview["description"], preview["ticks"]) == ("On demand", [])
    assert preview["warnings"] == ["A task has no schedule: its runs are enqueued."]


async def test_a_task_is_paused_resumed_and_deleted(api: ApiClient) -> None:
    await api.good("POST", "/api/v1/jobs", 201, json=TASK)
    assert (await api.good("POST", "/api/v1/jobs/mail/pause"))["status"] == "paused"
    assert (await api.good("POST", "/api/v1/jobs/mail/resume"))["status"] == "active"
    assert (await api.ask("DELETE", "/api/v1/jobs/mail")).status == 204


async def test_what_older_nodes_cannot_read_is_a_conflict(api: ApiClient, sql: Any) -> None:
    await sql.execute(
        "INSERT INTO nodes (node, ttl, expires_at, host, pid, roles, version, tzdata, knows)"
        " VALUES (77, '1 hour', now() + interval '1 hour', 'old', 1, '{worker}', '0.1.0', 'x', 20)"
    )
    problem = await api.problem("POST", "/api/v1/jobs", 409, json=TASK)
    assert problem["detail"].endswith("(version 0.1.0) cannot read it: upgrade all nodes of the cluster first.")
