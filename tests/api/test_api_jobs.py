"""Jobs over HTTP: the everyday operations."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from detent.runtime import failpoints
from tests.api.api_client import HTTP, ApiClient

CONTRACT = (
    "id name schedule timezone target payload queue priority status next_run_at last_run_at last_status revision"
    " created_at updated_at missed_window misfire_grace_seconds concurrent_policy max_concurrent max_retries"
    " retry_backoff retry_base_seconds retry_max_seconds timeout_seconds delivery jitter_seconds"
)
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


async def test_a_created_job_has_the_shape_of_the_contract(api: ApiClient) -> None:
    document = {"schedule": "0 9 * * MON", "timezone": "America/New_York", "target": HTTP, "payload": {"a": [1, None]}}
    answer = await api.ask("POST", "/api/v1/jobs", json=document)
    job = answer.document
    assert answer.status == 201
    assert answer.headers["Location"] == f"/api/v1/jobs/{job['id']}"
    assert set(CONTRACT.split()) <= set(job)
    assert job["target"] == {"type": "http", "url": "http://127.0.0.1:9/", "method": "POST", "headers": {}}
    assert (job["payload"], job["schedule"], job["timezone"]) == ({"a": [1, None]}, "0 9 * * MON", "America/New_York")
    assert (job["queue"], job["priority"], job["status"], job["revision"]) == ("default", 5, "active", 1)
    assert (job["misfire_grace_seconds"], job["max_retries"], job["timeout_seconds"]) == ("auto", 3, 300)
    for field in ("next_run_at", "created_at", "updated_at"):
        assert TIME.fullmatch(job[field])
    assert job["warnings"] == []
    assert await api.good("GET", answer.headers["Location"]) == job


async def test_a_job_is_found_by_its_id_and_by_its_name(api: ApiClient) -> None:
    job = await api.create(name="münchen/nightly 100%")
    encoded = "m%C3%BCnchen%2Fnightly%20100%25"
    assert await api.good("GET", f"/api/v1/jobs/{job['id']}") == job
    assert await api.good("GET", f"/api/v1/jobs/{job['id'].upper()}") == job
    assert await api.good("GET", f"/api/v1/jobs/{encoded}") == job
    paused = await api.good("POST", f"/api/v1/jobs/{encoded}/pause", json={"reason": "why not"})
    assert (paused["status"], paused["paused_reason"], paused["next_run_at"]) == ("paused", "why not", None)


async def test_a_warning_about_the_key_template_comes_with_the_answer(api: ApiClient) -> None:
    job = await api.create(idempotency_key_template="{{job}}")
    assert "every tick has the same key" in job["warnings"][0]


async def test_a_duplicate_name_is_a_conflict_until_the_job_is_deleted(api: ApiClient) -> None:
    job = await api.create(name="one")
    document = {"name": "one", "schedule": "@daily", "target": HTTP}
    problem = await api.problem("POST", "/api/v1/jobs", 409, json=document)
    assert problem["type"] == "/problems/conflict"
    assert "'one'" in problem["detail"]
    deleted = await api.ask("DELETE", "/api/v1/jobs/one")
    assert (deleted.status, deleted.document) == (204, None)
    await api.problem("GET", f"/api/v1/jobs/{job['id']}", 404)
    await api.problem("DELETE", f"/api/v1/jobs/{job['id']}", 404)
    assert (await api.create(name="one"))["id"] != job["id"]
    assert await api.good("GET", f"/api/v1/jobs/{job['id']}/runs") == {"items": [], "next_cursor": None}


async def test_put_creates_then_leaves_alone_then_changes(api: ApiClient) -> None:
    document = {"schedule": "every 5m", "target": HTTP}
    path = "/api/v1/jobs/by-name/a%2Fb"
    created = await api.ask("PUT", path, json=document)
    same = await api.ask("PUT", path, json={**document, "name": "a/b"})
    changed = await api.ask("PUT", path, json={**document, "priority": 9})
    assert [answer.status for answer in (created, same, changed)] == [201, 200, 200]
    assert [answer.headers["Detent-Change"] for answer in (created, same, changed)] == [
        "created",
        "unchanged",
        "updated",
    ]
    assert [answer.document["revision"] for answer in (created, same, changed)] == [1, 1, 2]
    assert changed.document["next_run_at"] == created.document["next_run_at"]
    problem = await api.problem("PUT", path, 422, json={**document, "name": "other"})
    assert problem["pointer"] == "/name"


async def test_pause_and_resume_are_as_people_expect(api: ApiClient) -> None:
    job = await api.create(name="p")
    assert (await api.good("POST", "/api/v1/jobs/p/pause"))["status"] == "paused"
    assert (await api.good("POST", "/api/v1/jobs/p/pause", json={}))["status"] == "paused"
    resumed = await api.good("POST", "/api/v1/jobs/p/resume")
    assert (resumed["status"], resumed["next_run_at"]) == ("active", job["next_run_at"])
    assert (await api.good("POST", "/api/v1/jobs/p/resume"))["status"] == "active"


async def test_a_trigger_answers_with_its_run(api: ApiClient) -> None:
    job = await api.create(name="t")
    answer = await api.ask("POST", "/api/v1/jobs/t/trigger")
    run = answer.document
    assert answer.status == 202
    assert answer.headers["Location"] == f"/api/v1/runs/{run['id']}"
    assert (run["job_id"], run["job"], run["status"]) == (job["id"], "t", "pending")
    assert run["idempotency_key"] == f"{job['id']}:{run['id']}"
    waiting = await api.good("POST", "/api/v1/jobs/t/trigger", 202)
    assert (waiting["status"], waiting["reason"]) == ("pending", None)
    after = await api.good("GET", "/api/v1/jobs/t")
    assert after["next_run_at"] == job["next_run_at"]
    assert after["last_status"] == "pending"


async def test_lists_are_filtered_and_paged(api: ApiClient) -> None:
    for number in range(5):
        await api.create(name=f"n{number}", tags=["even"] if number % 2 == 0 else [])
    await api.good("POST", "/api/v1/jobs/n4/pause")

    async def names(query: str) -> list[str]:
        return [job["name"] for job in (await api.good("GET", f"/api/v1/jobs?{query}"))["items"]]

    assert await names("") == ["n0", "n1", "n2", "n3", "n4"]
    assert await names("tag=even&status=active") == ["n0", "n2"]
    assert await names("prefix=n3") == ["n3"]
    assert await names("target=python") == []
    assert await names("status=") == await names("cursor=")
    first = await api.good("GET", "/api/v1/jobs?limit=2")
    second = await api.good("GET", f"/api/v1/jobs?limit=3&cursor={first['next_cursor']}")
    assert [job["name"] for job in first["items"] + second["items"]] == ["n0", "n1", "n2", "n3", "n4"]
    assert second["next_cursor"] is None


async def test_a_one_off_in_the_past_needs_allow_past(api: ApiClient) -> None:
    at = (datetime.now(UTC) - timedelta(days=30)).isoformat(timespec="seconds")
    document = {"schedule": at, "target": HTTP}
    problem = await api.problem("POST", "/api/v1/jobs", 422, json=document)
    assert (problem["pointer"], "allow_past" in problem["detail"]) == ("/schedule", True)
    job = await api.create(schedule=at, allow_past=True)
    assert datetime.fromisoformat(job["next_run_at"]) == datetime.fromisoformat(at)


@pytest.mark.parametrize("step", ["A1", "A2"])
async def test_the_failpoints_of_a_request_are_before_and_after_its_commit(api: ApiClient, sql: Any, step: str) -> None:
    failpoints.arm(f"{step}=error")
    try:
        problem = await api.problem(
            "POST", "/api/v1/jobs", 500, json={"schedule": "@daily", "target": HTTP, "payload": "secret"}
        )
    finally:
        failpoints.arm("")
    assert problem["type"] == "/problems/internal"
    assert "secret" not in str(problem)
    assert "failpoint" not in str(problem)
    assert await sql.fetchval("SELECT count(*) FROM jobs") == (0 if step == "A1" else 1)


async def test_a_job_that_is_deleted_and_created_again_keeps_the_times_of_h(api: ApiClient) -> None:
    times = set()
    for _ in range(3):
        job = await api.create(name="nightly", schedule="H H * * *")
        times.add(job["description"])
        assert (await api.good("GET", "/api/v1/jobs/nightly"))["description"] == job["description"]
        await api.ask("DELETE", "/api/v1/jobs/nightly")
    assert len(times) == 1
    shown = await api.good("POST", "/api/v1/schedules/preview", json={"schedule": "H H * * *", "name": "nightly"})
    assert {shown["description"]} == times


async def test_a_job_that_is_renamed_gets_the_times_of_its_new_name(api: ApiClient) -> None:
    job = await api.create(name="nightly", schedule="H H * * *")
    expected = await api.create(name="report", schedule="H H * * *")
    await api.ask("DELETE", "/api/v1/jobs/report")
    renamed = await api.good("PATCH", f"/api/v1/jobs/{job['id']}", json={"name": "report"})
    assert renamed["description"] == expected["description"] != job["description"]
    assert renamed["next_run_at"] == expected["next_run_at"]


async def test_jobs_of_two_tenants_with_one_name_have_different_times_for_h(api: ApiClient) -> None:
    await api.store.tenants.add("acme")
    number = await api.store.tenants.number("acme")
    assert number is not None
    ours = await api.create(name="nightly", schedule="H H * * *")
    key = await api.store.keys.add("admin", tenant=number)
    headers = {"Authorization": f"Bearer {key.key}"}
    document = {"name": "nightly", "schedule": "H H * * *", "target": HTTP}
    theirs = await api.good("POST", "/api/v1/jobs", 201, json=document, headers=headers)
    assert theirs["description"] != ours["description"]


@pytest.mark.parametrize(
    ("schedule", "dialect", "words"),
    [
        ("0 14 ? * 2#1", "quartz", "At 14:00 on the first Monday of the month"),
        ("cron(0 10 ? * 2-6 2030-2031)", "aws", "At 10:00 Monday to Friday, in 2030 and 2031"),
        ("rate(5 minutes)", "aws", "Every 5 minutes"),
        ("at(2031-01-01T10:00:00)", "aws", "Once, at 2031-01-01T10:00:00Z"),
    ],
)
async def test_a_job_in_another_dialect_shows_what_it_means(
    api: ApiClient, schedule: str, dialect: str, words: str
) -> None:
    job = await api.create(name="other", schedule=schedule, dialect=dialect)
    assert (job["schedule"], job["dialect"], job["description"]) == (schedule, dialect, words)
    assert (await api.good("GET", "/api/v1/jobs/other")) == job


async def test_the_first_monday_of_the_articles_is_refused_with_both_readings(api: ApiClient) -> None:
    document = {"schedule": "0 14 ? * 2#1", "target": HTTP}
    problem = await api.problem("POST", "/api/v1/jobs", 422, json=document)
    assert (problem["type"], problem["pointer"]) == ("/problems/bad-schedule", "/schedule")
    assert "first Monday" in problem["detail"] and "first Tuesday" in problem["detail"]
