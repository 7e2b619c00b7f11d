"""The server as machines, browsers and attackers meet it."""

from __future__ import annotations

from typing import Any

import pytest

from detent.errors import Unavailable
from detent.store.db import LockTimeout, OutcomeUnknown
from detent.version import __version__
from tests.api.api_client import HTTP, ApiClient
from tests.api.api_server import Readiness, serving

JOB = {"schedule": "@daily", "target": HTTP}


async def test_the_health_routes_answer_without_a_key(api: ApiClient, readiness: Readiness) -> None:
    assert await api.good("GET", "/livez") == {"status": "ok"}
    assert await api.good("GET", "/readyz") == {"status": "ready"}
    assert (await api.good("GET", "/version"))["version"] == __version__
    readiness.checks["lease"] = False
    assert await api.good("GET", "/readyz", 503) == {"status": "not ready"}
    verbose = await api.good("GET", "/readyz?verbose", 503)
    assert {name: check["ok"] for name, check in verbose["checks"].items()} == {"database": True, "lease": False}


async def test_every_method_of_a_path_is_named_where_another_is_used(api: ApiClient) -> None:
    answer = await api.ask("PATCH", "/api/v1/jobs")
    assert answer.status == 405
    assert set(answer.headers["Allow"].split(", ")) == {"GET", "HEAD", "POST"}
    await api.problem("PATCH", "/api/v1/jobs", 405)
    await api.problem("OPTIONS", "/api/v1/runs", 405)
    await api.problem("GET", "/api/v1/jobs/x/pause", 405)


async def test_head_answers_like_get_without_a_body(api: ApiClient) -> None:
    answer = await api.ask("HEAD", "/api/v1/jobs")
    assert (answer.status, answer.document) == (200, None)


async def test_a_trace_goes_on_in_the_problem(api: ApiClient) -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    headers = {"traceparent": f"00-{trace}-00f067aa0ba902b7-01"}
    assert (await api.problem("GET", "/nothing", 404, headers=headers))["trace_id"] == trace


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "10.0.0.1", "[::2]"])
async def test_a_rebound_name_is_refused_while_there_are_no_keys(api: ApiClient, host: str) -> None:
    problem = await api.problem("GET", "/api/v1/jobs", 421, headers={"Host": host})
    assert problem["type"] == "/problems/wrong-host"


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:99", "127.0.0.1", "127.8.9.1:1", "[::1]:80", "a.localhost"])
async def test_every_name_of_loopback_is_answered(api: ApiClient, host: str) -> None:
    await api.good("GET", "/api/v1/jobs", headers={"Host": host})


async def test_any_host_name_is_answered_where_keys_are_required(database_url: str, readiness: Readiness) -> None:
    async with serving(database_url, readiness, require_keys=True) as api:
        await api.good("GET", "/livez", headers={"Host": "detent.example"})


async def test_a_web_page_of_another_origin_cannot_change_anything(api: ApiClient, sql: Any) -> None:
    job = await api.create(name="x")
    for origin in ("https://evil.example", "null", "http://127.0.0.1:1"):
        problem = await api.problem("POST", "/api/v1/jobs/x/trigger", 403, headers={"Origin": origin})
        assert problem["type"] == "/problems/cross-origin"
        await api.problem("DELETE", f"/api/v1/jobs/{job['id']}", 403, headers={"Origin": origin})
    assert await sql.fetchval("SELECT count(*) FROM live_runs") == 0
    await api.good("POST", "/api/v1/jobs/x/pause", headers={"Origin": api.url})


async def test_a_body_may_be_as_large_as_the_settings_allow(database_url: str, readiness: Readiness) -> None:
    async with serving(database_url, readiness, max_payload_bytes=2000) as api:
        await api.create(payload="x" * 1998)
        problem = await api.problem("POST", "/api/v1/jobs", 422, json={**JOB, "payload": "x" * 1999})
        assert problem["pointer"] == "/payload"
        await api.problem("POST", "/api/v1/jobs", 413, json={**JOB, "payload": "x" * 70_000})


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (Unavailable("The database at 10.1.2.3 is gone."), 503, "unavailable"),
        (LockTimeout("canceling statement: relation jobs"), 503, "unavailable"),
        (OutcomeUnknown("connection lost to 10.1.2.3"), 503, "outcome-unknown"),
        (ZeroDivisionError("SELECT secret"), 500, "internal"),
    ],
)
async def test_an_internal_error_reveals_no_internals(
    api: ApiClient, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int, kind: str
) -> None:
    async def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(api.store.jobs, "list", fail)
    answer = await api.ask("GET", "/api/v1/jobs")
    assert (answer.status, answer.document["type"]) == (status, f"/problems/{kind}")
    for word in ("10.1.2.3", "SELECT", "relation"):
        assert word not in str(answer.document)
    assert ("Retry-After" in answer.headers) == (status == 503)


async def test_a_database_that_is_gone_is_a_problem_to_try_again_later(api: ApiClient) -> None:
    await api.store.database.close()
    problem = await api.problem("GET", "/api/v1/jobs", 503)
    assert problem["type"] == "/problems/unavailable"
    await api.good("GET", "/livez")


async def test_the_openapi_document_describes_every_route_and_resolves(api: ApiClient) -> None:
    document = await api.good("GET", "/openapi.json")
    assert document["openapi"].startswith("3.1")
    schemas = document["components"]["schemas"]
    for reference in references(document):
        assert reference.removeprefix("#/components/schemas/") in schemas
    operations = [operation for methods in document["paths"].values() for operation in methods.values()]
    names = [operation["operationId"] for operation in operations]
    assert len(names) == len(set(names))
    limit = next(p for p in document["paths"]["/api/v1/jobs"]["get"]["parameters"] if p["name"] == "limit")
    bounds = {"type": "integer", "minimum": 1, "maximum": 500}
    assert limit["schema"] == {"anyOf": [bounds, {"const": ""}], "default": 50}
    assert schemas["JobSpec"]["additionalProperties"] is False
    assert schemas["Run"]["properties"]["scheduled_at"]["format"] == "date-time"


def references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [found for entry in value.values() for found in references(entry)]
    if isinstance(value, list):
        return [found for entry in value for found in references(entry)]
    return []
