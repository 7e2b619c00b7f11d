"""Requests as articles about schedulers write them: answered with the request to send here, which is then accepted."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from detent.domain import foreign_job
from detent.domain.job import JobSpec
from detent.domain.registration import PreparedJob, prepare
from tests.api.api_client import HTTP, ApiClient

REGISTER = {
    "schedule": "0 9 * * 1",
    "handler_endpoint": "https://billing.example.com/run",
    "max_retries": 3,
    "timeout_seconds": 120,
}
FIRST_MONDAY = {
    "cron_expression": "0 14 ? * 2#1",
    "timezone": "UTC",
    "handler_url": "https://billing.example.com/run",
    "payload": {"kind": "invoice"},
    "misfire_grace": "1 hour",
    "concurrent_policy": "SKIP",
}
ROW_OF_SCHEDULED_JOBS = {
    "tenant_id": "0b4bca8a-0000-4000-8000-000000000000",
    "name": "rotate-logs",
    "cron_expression": "0 14 1-7 * 1",
    "handler_url": "https://ops.example.com/rotate",
    "status": "SCHEDULED",
    "partition_key": 7,
    "misfire_grace": "1 hour",
    "retry_count": 0,
    "lock_token": None,
    "concurrent_policy": "ALLOW",
}
ROW_OF_JOBS = {
    "schedule_expr": "RRULE:FREQ=DAILY;BYHOUR=9",
    "timezone": "America/New_York",
    "handler_type": "send_email",
    "payload": {"to": "a@example.com"},
    "status": "PENDING",
    "attempts": 0,
}
WEEKLY_REPORT = {
    "name": "send-weekly-report",
    "schedule": "0 9 * * 1",
    "timezone": "America/New_York",
    "payload": {"report_type": "weekly"},
    "idempotency_key_template": "report-{{week}}",
    "max_retries": 3,
    "retry_backoff": "exponential",
    "missed_window": "RUN_ONCE",
    "timeout_seconds": 120,
}
JITTERED = {"scheduled_time": "2031-01-01T00:00:00Z", "jitter_window_seconds": 120, "handler_type": "http"}
PAYMENTS = {"url": "payments.example.com/run", "method": "PUT", "cron": "cron(0 10 ? * 2-6 *)", "timeout": "PT2M"}


def http(url: str, **parts: Any) -> dict[str, Any]:
    return {"type": "http", "url": url, **parts}


BODIES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "register": (
        REGISTER,
        {
            "schedule": "0 9 * * 1",
            "target": http("https://billing.example.com/run"),
            "max_retries": 3,
            "timeout_seconds": 120,
        },
    ),
    "the first Monday": (
        FIRST_MONDAY,
        {
            "schedule": "0 14 ? * 2#1",
            "dialect": "quartz",
            "timezone": "UTC",
            "target": http("https://billing.example.com/run"),
            "payload": {"kind": "invoice"},
            "misfire_grace_seconds": 3600,
            "concurrent_policy": "SKIP",
        },
    ),
    "a row of scheduled_jobs": (
        ROW_OF_SCHEDULED_JOBS,
        {
            "name": "rotate-logs",
            "schedule": "0 14 1-7 * 1",
            "day_match": "or",
            "target": http("https://ops.example.com/rotate"),
            "misfire_grace_seconds": 3600,
            "concurrent_policy": "ALLOW",
        },
    ),
    "a row of jobs": (
        ROW_OF_JOBS,
        {
            "schedule": "RRULE:FREQ=DAILY;BYHOUR=9",
            "timezone": "America/New_York",
            "target": {"type": "python", "function": "handlers:send_email"},
            "payload": {"to": "a@example.com"},
        },
    ),
    "the weekly report": (WEEKLY_REPORT, {**WEEKLY_REPORT, "target": http("https://example.com/your-handler")}),
    "jittered": (
        JITTERED,
        {
            "schedule": "2031-01-01T00:00:00Z",
            "jitter_seconds": 120,
            "target": http("https://example.com/your-handler"),
        },
    ),
    "payments": (
        PAYMENTS,
        {
            "schedule": "cron(0 10 ? * 2-6 *)",
            "dialect": "aws",
            "timeout_seconds": 120,
            "target": http("https://payments.example.com/run", method="PUT"),
        },
    ),
}


async def send(api: ApiClient, translation: dict[str, Any], status: int) -> Any:
    body = {} if translation["body"] is None else {"json": translation["body"]}
    return await api.good(translation["method"], translation["path"], status, **body)


@pytest.mark.parametrize("path", ["/jobs", "/api/jobs", "/v1/jobs", "/api/v1/jobs"])
@pytest.mark.parametrize("name", list(BODIES))
async def test_a_job_of_an_article_is_answered_with_the_body_to_send(api: ApiClient, name: str, path: str) -> None:
    foreign, ours = BODIES[name]
    status = 422 if path == "/api/v1/jobs" else 404
    problem = await api.problem("POST", path, status, json=foreign)
    assert problem["translation"] == {"method": "POST", "path": "/api/v1/jobs", "body": ours}
    assert (await api.good("GET", "/api/v1/jobs"))["items"] == []
    job = await send(api, problem["translation"], 201)
    assert job["target"].items() >= ours["target"].items()
    assert [each["id"] for each in (await api.good("GET", "/api/v1/jobs"))["items"]] == [job["id"]]


async def test_the_sentence_says_what_was_renamed_what_was_left_out_and_when_it_runs(api: ApiClient) -> None:
    problem = await api.problem("POST", "/api/v1/jobs", 422, json=ROW_OF_SCHEDULED_JOBS)
    assert problem["pointer"] == "/cron_expression"
    for part in (
        "cron_expression is schedule",
        "handler_url is target.url",
        "tenant_id (the key decides the tenant)",
        "partition_key",
        "at 14:00 on days 1 to 7 of the month or on Monday",
    ):
        assert part in problem["detail"]
    problem = await api.problem("POST", "/api/v1/jobs", 422, json=WEEKLY_REPORT)
    assert problem["pointer"] == "/target" and problem["detail"].startswith("target is missing")


PATHS_OF_PAGES = ("/jobs/report", "/jobs/")
"""The dashboard has pages there, which are what a request gets that does not ask for JSON."""
ROUTES: list[tuple[str, str, str, dict[str, Any] | None, int]] = [
    ("GET", "/jobs/report", "/api/v1/jobs/report", None, 200),
    ("GET", "/jobs/report/executions?limit=50", "/api/v1/jobs/report/executions?limit=50", None, 200),
    ("GET", "/jobs/report/runs", "/api/v1/jobs/report/runs", None, 200),
    ("GET", "/api/jobs/report/runs?limit=20", "/api/v1/jobs/report/runs?limit=20", None, 200),
    ("GET", "/jobs/", "/api/v1/jobs", None, 200),
    ("POST", "/jobs/report/pause", "/api/v1/jobs/report/pause", {"reason": "audit"}, 200),
    ("POST", "/jobs/report/resume", "/api/v1/jobs/report/resume", None, 200),
    ("POST", "/jobs/report/trigger", "/api/v1/jobs/report/trigger", None, 202),
    ("DELETE", "/jobs/report", "/api/v1/jobs/report", None, 204),
]


async def test_the_routes_of_the_articles_are_answered_with_those_of_this_server(api: ApiClient) -> None:
    await api.create(name="report", target=HTTP)
    for method, path, ours, body, status in ROUTES:
        options = {} if body is None else {"json": body}
        headers = {"Accept": "application/json"} if path in PATHS_OF_PAGES else {}
        problem = await api.problem(method, path, 404, headers=headers, **options)
        assert problem["translation"] == {"method": method, "path": ours, "body": body}
        assert (await api.good("GET", "/api/v1/jobs/report"))["status"] in ("active", "paused")
        await send(api, problem["translation"], status)


async def test_a_retry_of_an_article_is_answered_with_the_retry_of_this_server(api: ApiClient) -> None:
    job = await api.create(name="report", target=HTTP)
    problem = await api.problem("POST", f"/jobs/{job['id']}/retry", 404)
    assert problem["translation"] == {"method": "POST", "path": f"/api/v1/jobs/{job['id']}/retry", "body": None}


async def test_lines_of_a_batch_are_to_be_sent_as_they_are(api: ApiClient) -> None:
    job = b'{"schedule": "@daily", "target": {"type": "http", "url": "https://billing.example.com/run"}}'
    lines: dict[str, Any] = {"data": job + b"\n" + job, "headers": {"Content-Type": "application/x-ndjson"}}
    problem = await api.problem("POST", "/v1/jobs/batch", 404, **lines)
    assert problem["translation"] == {"method": "POST", "path": "/api/v1/jobs/batch", "body": None}
    assert problem["detail"].endswith("send the request in translation, with its body as it is.")
    assert len((await api.good("POST", "/api/v1/jobs/batch", **lines))["items"]) == 2


@pytest.mark.parametrize(
    "body",
    [
        {"schedule": "soon", "handler_url": "https://billing.example.com/run"},
        {"schedule": "0 9 * * *", "targt": HTTP},
        {"schedule": "0 9 * * *", "handler_url": "https://billing.example.com/run", "payload": "x" * 17_000},
        {**REGISTER, "payload_schema": {"title": "anything"}},
        {"schedule": "0 9 * * *", "target": HTTP, "timezone": "Mars"},
        [1],
    ],
)
async def test_what_has_no_translation_is_refused_as_before(api: ApiClient, body: Any) -> None:
    assert "translation" not in await api.problem("POST", "/api/v1/jobs", 422, json=body)


def test_a_target_that_is_refused_is_read_once_and_not_in_every_dialect(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Any] = []

    def recorded(document: JobSpec, *args: Any, **options: Any) -> PreparedJob:
        read.append(document)
        return prepare(document, *args, **options)

    monkeypatch.setattr(foreign_job, "prepare", recorded)
    wrong = {"cron": "0 9 * * *", "url": "https://billing.example.com/{{ nothing }}"}
    found = foreign_job.translate_job(wrong, datetime(2026, 11, 18, tzinfo=UTC))
    assert isinstance(found, foreign_job.UntranslatedJob) and found.fault.pointer == "/url"
    assert len(read) == 1


async def test_a_path_that_no_api_has_is_not_translated(api: ApiClient) -> None:
    for method, path in (("GET", "/job"), ("PUT", "/jobs"), ("GET", "/api/v2/things"), ("GET", "/jobs/a/b/c")):
        answer = await api.ask(method, path, headers={"Accept": "application/json"})
        assert answer.status in (404, 405) and "translation" not in answer.document


async def test_what_curl_sends_without_a_content_type_is_translated_where_no_form_is(api: ApiClient) -> None:
    body = b'{"cron_expression": "0 9 * * 1", "handler_url": "https://billing.example.com/run"}'
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    problem = await api.problem("POST", "/api/jobs", 404, data=body, headers=headers)
    await send(api, problem["translation"], 201)


@pytest.mark.parametrize(
    ("body", "reasons"),
    [
        (b"{", ["is not JSON: send a JSON object"]),
        (b"", ["is not an object: send a JSON object"]),
        (b"[1]", ["is not an object: send a JSON object"]),
        (b'{"nonsense": 1}', ['no field "nonsense"']),
        (b'{"schedule": "0 99 * * *", "target": {"type": "python", "function": "a:b"}}', ["99 is outside 0 to 23"]),
        (b'{"cron_expression": "0 99 * * *"}', ["cron_expression is schedule", "99 is outside 0 to 23"]),
        (b'{"payload": "' + b"x" * 70_000 + b'"}', ["more than 65,536 bytes"]),
    ],
)
async def test_a_body_without_a_translation_is_refused_with_the_reason_and_the_path(
    api: ApiClient, body: bytes, reasons: list[str]
) -> None:
    problem = await api.problem("POST", "/jobs", 404, data=body, headers={"Content-Type": "application/json"})
    assert "translation" not in problem
    for reason in ("send POST /api/v1/jobs", *reasons):
        assert reason in problem["detail"]


async def test_a_bad_schedule_in_other_words_is_refused_with_its_fault_and_the_names_here(api: ApiClient) -> None:
    body = {"cron_expression": "0 99 * * *", "handler_url": "https://billing.example.com/run"}
    problem = await api.problem("POST", "/api/v1/jobs", 422, json=body)
    assert problem["pointer"] == "/cron_expression" and "translation" not in problem
    for part in ("cron_expression is schedule", "handler_url is target.url", "99 is outside 0 to 23"):
        assert part in problem["detail"]


async def test_policies_of_retries_and_missed_runs_have_a_counterpart(api: ApiClient) -> None:
    policy = {"max_attempts": 4, "backoff": "LINEAR", "color": "red"}
    body = {**ROW_OF_JOBS, "retry_policy": policy, "missed_run_policy": "catch_up"}
    problem = await api.problem("POST", "/api/v1/jobs", 422, json=body)
    job = await send(api, problem["translation"], 201)
    assert (job["max_retries"], job["retry_backoff"], job["missed_window"]) == (3, "linear", "RUN_ALL")
    assert "retry_policy.max_attempts is max_retries + 1" in problem["detail"]
    assert "retry_policy.color" in problem["detail"].partition("left out: ")[2]
    alone = {"schedule": "0 9 * * 1", "target": HTTP, "retry_policy": {"max_retries": 1}}
    problem = await api.problem("POST", "/api/v1/jobs", 422, json=alone)
    assert problem["pointer"] == "/retry_policy/max_retries"
    assert problem["translation"]["body"]["max_retries"] == 1


async def test_without_a_key_nothing_is_translated(api: ApiClient) -> None:
    await api.store.keys.add("admin", tenant=1)
    problem = await api.problem("POST", "/jobs", 401, json=REGISTER)
    assert "translation" not in problem
