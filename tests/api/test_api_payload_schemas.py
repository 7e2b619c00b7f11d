"""Payload schemas over HTTP: checked at registration, trigger, enqueue and retry, and before a run is handed out."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from detent.domain.states import RunStatus
from tests.api.api_client import HTTP, ApiClient
from tests.api.test_api_reruns import finish
from tests.support.factories import add_node
from tests.support.threads import threads_that_check

SCHEMA = {
    "type": "object",
    "required": ["to"],
    "properties": {"to": {"type": "string", "pattern": "@"}, "copies": {"type": "integer", "minimum": 1}},
    "additionalProperties": False,
}
RUNS = "/api/v1/tasks/mail/runs"


async def register(api: ApiClient, **fields: Any) -> Any:
    return await api.good(
        "POST", "/api/v1/jobs", 201, json={"name": "mail", "target": HTTP, "payload_schema": SCHEMA, **fields}
    )


@pytest.fixture
def checking_threads(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    return threads_that_check(monkeypatch)


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"payload_schema": {"typ": "object"}}, "/payload_schema/typ"),
        ({"payload_schema": {"properties": {"to": {"$ref": "http://x/y"}}}}, "/payload_schema/properties/to/$ref"),
        ({"payload_schema": "text"}, "/payload_schema"),
        ({"payload": {"to": 5}}, "/payload/to"),
        ({"schedule": "@daily"}, "/payload"),
        ({"schedule": "@daily", "payload": {"to": "a@b", "copies": 0}}, "/payload/copies"),
    ],
)
async def test_a_job_whose_schema_or_payload_is_wrong_is_refused(
    api: ApiClient, sql: Any, fields: dict[str, Any], pointer: str
) -> None:
    body = {"name": "mail", "target": HTTP, "payload_schema": SCHEMA, **fields}
    problem = await api.problem("POST", "/api/v1/jobs", 422, json=body)
    assert problem["pointer"] == pointer
    batch = await api.problem("POST", "/api/v1/jobs/batch", 422, json={"jobs": [body]})
    assert batch["errors"][0]["pointer"] == f"/0{pointer}"
    assert await sql.fetchval("SELECT count(*) FROM jobs") == 0


async def test_a_schema_is_kept_shown_and_removed_and_jobs_without_one_do_not_mention_it(
    api: ApiClient, sql: Any
) -> None:
    assert (await register(api))["payload_schema"] == SCHEMA
    assert (await api.good("GET", "/api/v1/jobs/mail"))["payload_schema"] == SCHEMA
    changed = await api.good("PATCH", "/api/v1/jobs/mail", json={"payload_schema": None})
    assert changed["payload_schema"] is None
    stored = json.loads(await sql.fetchval("SELECT definition FROM jobs"))
    assert not {"payload_schema", "release", "tzdata_policy"} & stored.keys()


async def test_an_enqueue_is_refused_at_the_place_that_does_not_match(api: ApiClient, sql: Any) -> None:
    await register(api)
    problem = await api.problem("POST", RUNS, 422, json={"payload": {"to": "ada"}})
    assert (problem["pointer"], problem["type"].rsplit("/", 1)[-1]) == ("/payload/to", "bad-payload")
    assert (await api.problem("POST", RUNS, 422))["pointer"] == "/payload"  # it has no payload at all
    many = {"runs": [{"payload": {"to": "a@b"}}, {"payload": {"to": "a@b", "copies": 0}}, {"payload": {}}]}
    problem = await api.problem("POST", RUNS, 422, json=many)
    assert [each["pointer"] for each in problem["errors"]] == ["/runs/1/payload/copies", "/runs/2/payload"]
    assert await sql.fetchval("SELECT count(*) FROM backlog") == 0
    (run,) = (await api.good("POST", RUNS, 201, json={"payload": {"to": "a@b"}}))["items"]
    assert run["created"]


async def test_a_default_payload_that_matches_is_enough_for_an_enqueue_without_one(api: ApiClient) -> None:
    await register(api, payload={"to": "a@b"})
    await api.good("POST", RUNS, 201)
    await api.good("POST", "/api/v1/jobs/mail/trigger", 202)


async def test_a_trigger_is_refused_at_the_place_that_does_not_match(api: ApiClient, sql: Any) -> None:
    await register(api, schedule="@daily", payload={"to": "a@b"})
    trigger = "/api/v1/jobs/mail/trigger"
    problem = await api.problem("POST", trigger, 422, json={"payload": {"to": "a@b", "cc": 1}})
    assert problem["pointer"] == "/payload/cc"
    assert await sql.fetchval("SELECT count(*) FROM live_runs") == 0
    await api.good("POST", trigger, 202, json={"payload": {"to": "b@c"}})


async def test_a_run_is_not_run_again_with_a_payload_that_a_newer_schema_refuses(api: ApiClient, sql: Any) -> None:
    await register(api)
    await add_node(sql, 7)
    (run,) = (await api.good("POST", RUNS, 201, json={"payload": {"to": "a@b"}}))["items"]
    heads = await api.store.tasks.heads(None)
    await api.store.tasks.release(heads)
    await finish(api, sql, RunStatus.DEAD)
    stricter = {**SCHEMA, "required": ["to", "copies"]}
    await api.good("PATCH", "/api/v1/jobs/mail", json={"payload_schema": stricter})
    problem = await api.problem("POST", f"/api/v1/runs/{run['id']}/retry", 409)
    assert "another payload_schema now" in problem["detail"] and '"copies"' in problem["detail"]
    await api.good("PATCH", "/api/v1/jobs/mail", json={"payload_schema": SCHEMA})
    await api.good("POST", f"/api/v1/runs/{run['id']}/retry", 202)


async def test_a_run_that_sql_enqueued_is_refused_when_a_pull_worker_claims_it(
    api: ApiClient, sql: Any, checking_threads: set[str]
) -> None:
    await register(api)
    await sql.fetch("SELECT enqueue('mail', '{\"to\": 5}')")
    await sql.fetch("SELECT enqueue('mail', '{\"to\": \"a@b\"}')")
    body = {"worker": "js-1", "targets": ["http"], "limit": 10}
    runs = (await api.good("POST", "/api/v1/queues/default/claim", json=body))["runs"]
    assert [run["payload"] for run in runs] == [{"to": "a@b"}]
    dead = await sql.fetchrow("SELECT h.status, h.reason, a.error FROM run_history h JOIN attempts a USING (serial)")
    assert (dead["status"], dead["reason"]) == (2, "not retryable")
    assert dead["error"].startswith("/to of the payload is 5")
    assert checking_threads and threading.current_thread().name not in checking_threads
