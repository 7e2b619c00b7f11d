"""Bad input: each gives a 4xx problem with a pointer and a sentence that helps, and changes nothing."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from tests.api.api_client import HTTP, ApiClient
from tests.api.api_server import Readiness, serving

if TYPE_CHECKING:
    from tests.support.postgres import Postgres

TABLES = ("jobs", "cursors", "schedules", "queues", "job_revisions", "run_history", "live_runs")
PAST = (datetime.now(UTC) - timedelta(days=1)).isoformat(timespec="seconds")
LONG = "x" * 100_000


@pytest.fixture(scope="module")
def shared_url(postgres: Postgres) -> Iterator[str]:
    """One database for all of these: that nothing changes in it is what they are about."""
    with postgres.database_apart() as url:
        yield url


@pytest.fixture
async def api(shared_url: str, readiness: Readiness) -> AsyncIterator[ApiClient]:
    async with serving(shared_url, readiness) as client:
        yield client


@pytest.fixture
async def unchanged(shared_url: str) -> AsyncIterator[None]:
    connection = await asyncpg.connect(shared_url, server_settings={"search_path": "detent"})

    async def counts() -> dict[str, int]:
        return {table: await connection.fetchval(f"SELECT count(*) FROM {table}") for table in TABLES}

    before = await counts()
    yield
    assert await counts() == before
    await connection.close()


def job(**fields: Any) -> dict[str, Any]:
    return {"schedule": "every 1h", "target": HTTP, **fields}


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


BAD_JOBS: dict[str, tuple[Any, str, str]] = {
    # what is wrong: (document, pointer, part of the sentence)
    "bad cron": (job(schedule="61 * * * *"), "/schedule", "minute"),
    "bad cron, explicit": (job(schedule={"cron": "* * * *"}), "/schedule/cron", "fields"),
    "cron of a day no year has": (job(schedule="0 0 30 2 *"), "/schedule", "no year has"),
    "empty schedule": (job(schedule=""), "/schedule", "empty"),
    "schedule of no kind": (job(schedule={}), "/schedule", "give one of"),
    "schedule of two kinds": (job(schedule={"cron": "@daily", "every": "5m"}), "/schedule", "2 kinds"),
    "schedule with an unknown key": (job(schedule={"cron": "@daily", "tz": "UTC"}), "/schedule/tz", "'tz'"),
    "interval too short": (job(schedule="every 10ms"), "/schedule", "shortest"),
    "negative interval": (job(schedule={"every": -5}), "/schedule/every", "-5"),
    "schedule of the wrong type": (job(schedule=5), "/schedule", "is 5"),
    "end of a task": ({"target": HTTP, "max_runs": 3}, "/max_runs", "give the job a schedule"),
    "schedule of another type": (job(schedule=5), "/schedule", "one such as"),
    "unknown part of a key": (
        job(concurrency_key="{{customer}}", concurrency_limit=1),
        "/concurrency_key",
        "not known",
    ),
    "key without a limit": (job(concurrency_key="a"), "/concurrency_key", "concurrency_limit"),
    "unknown zone": (job(schedule="@daily", timezone="Mars/Olympus"), "/timezone", "Mars/Olympus"),
    "one-off in the past": (job(schedule=PAST), "/schedule", "allow_past"),
    "one-off that does not exist": (job(schedule="2030-02-30T00:00:00Z"), "/schedule", "2030-02-30"),
    "ends before it starts": (
        job(starts_at="2031-01-01T00:00:00Z", ends_at="2030-01-01T00:00:00Z"),
        "/ends_at",
        "before starts_at",
    ),
    "ended already": (job(ends_at=PAST), "/ends_at", "past"),
    "bound without a zone": (job(starts_at="2031-01-01T00:00:00"), "/starts_at", "without a zone"),
    "bound that is not a time": (job(starts_at="tomorrow"), "/starts_at", "2026-12-24T18:00:00Z"),
    "jitter as long as the gap": (job(schedule="every 10s", jitter_seconds=10), "/jitter_seconds", "below 10"),
    "unknown field": (job(prioritty=3), "/prioritty", "did you mean priority?"),
    "unknown field of a target": (job(target={**HTTP, "methd": "GET"}), "/target/methd", "did you mean method?"),
    "wrong type": (job(priority="high"), "/priority", "whole number from -100 to 100"),
    "fraction for a whole number": (job(max_retries=1.5), "/max_retries", "whole number"),
    "number too large": (job(priority=101), "/priority", "is 101"),
    "negative retries": (job(max_retries=-1), "/max_retries", "from 0"),
    "negative timeout": (job(timeout_seconds=-1), "/timeout_seconds", "above 0"),
    "negative grace": (job(misfire_grace_seconds=-1), "/misfire_grace_seconds", "auto"),
    "no runs at all": (job(max_runs=0), "/max_runs", "from 1"),
    "unknown policy": (job(concurrent_policy="skip"), "/concurrent_policy", '"SKIP"'),
    "unknown target": (job(target={"type": "ftp", "url": "x"}), "/target/type", '"http"'),
    "target without a type": (job(target={"url": "http://x/"}), "/target/type", "missing"),
    "target of the wrong type": (job(target="http://example.org/"), "/target", "one such as"),
    "no target": ({"schedule": "@daily"}, "/target", "missing"),
    "URL without a scheme": (job(target={"type": "http", "url": "example.org/x"}), "/target/url", "scheme"),
    "URL of another scheme": (job(target={"type": "http", "url": "file:///etc/passwd"}), "/target/url", "file"),
    "header with a line break": (job(target={**HTTP, "headers": {"a": "b\r\nc: d"}}), "/target/headers/a", "line"),
    "header that is ours": (job(target={**HTTP, "headers": {"Detent-Token": "1"}}), "/target/headers/Detent-Token", ""),
    "header that is not text": (job(target={**HTTP, "headers": {"ok": "1", "a/b": 5}}), "/target/headers/a~1b", "is 5"),
    "empty command": (job(target={"type": "shell", "command": []}), "/target/command", "1 to 1000"),
    "function that is not a name": (
        job(target={"type": "python", "function": "os; rm"}),
        "/target/function",
        "function",
    ),
    "NUL in the name": (job(name="a\0b"), "/name", "NUL"),
    "NUL deep in the payload": (job(payload={"a": [{"b": "\0"}]}), "/payload/a/0/b", "NUL"),
    "NUL in a key of the payload": (job(payload={"a": {"\0": 1}}), "/payload/a", "NUL"),
    "NUL in the URL": (job(target={"type": "http", "url": "http://x/\0"}), "/target/url", "NUL"),
    "empty name": (job(name=""), "/name", "1 to 200 characters"),
    "long name": (job(name="x" * 201), "/name", "1 to 200 characters"),
    "name like an id": (job(name="01980a3e-7c3f-7000-8000-00000000002a"), "/name", "reads like an id"),
    "name with a line break": (job(name="a\nb"), "/name", "control characters"),
    "queue with a space": (job(queue="a b"), "/queue", "without spaces"),
    "tag twice": (job(tags=["a", "b", "a"]), "/tags/2", "twice"),
    "tag of the wrong type": (job(tags=["a", 5]), "/tags/1", "is 5"),
    "too many tags": (job(tags=[str(n) for n in range(51)]), "/tags", "at most 50"),
    "payload too large": (job(payload="x" * 1_048_577), "/payload", "1048576"),
    "rest too large": (job(target={"type": "shell", "command": [LONG, LONG]}), "", "without its payload"),
    "nested too deep": (job(payload=nested(65)), "/payload", "64 levels"),
    "unknown key template": (
        job(idempotency_key_template="{{secret}}"),
        "/idempotency_key_template",
        "is not known",
    ),
    "not an object": ([job()], "", "give an object"),
    "null": (None, "", "give an object"),
}


@pytest.mark.parametrize("what", BAD_JOBS)
async def test_a_bad_job_is_refused_where_it_is_wrong(api: ApiClient, unchanged: None, what: str) -> None:
    document, pointer, words = BAD_JOBS[what]
    problem = await api.problem("POST", "/api/v1/jobs", 422, data=json.dumps(document), headers=JSON)
    assert problem["pointer"] == pointer
    assert words in problem["detail"]


JSON = {"Content-Type": "application/json"}
GOOD = json.dumps(job()).encode()

BAD_BODIES: dict[str, tuple[bytes, dict[str, str], int, str]] = {
    "malformed": (b'{"schedule": ', JSON, 400, "/problems/malformed-json"),
    "nothing": (b"", JSON, 400, "/problems/malformed-json"),
    "spaces": (b"  \n", JSON, 400, "/problems/malformed-json"),
    "two documents": (GOOD + GOOD, JSON, 400, "/problems/malformed-json"),
    "not UTF-8": (b'{"schedule": "\xff"}', JSON, 400, "/problems/malformed-json"),
    "not UTF-8, and of the wrong type": (b'"\xff"', JSON, 400, "/problems/malformed-json"),
    "half a surrogate pair": (b'{"schedule": "\\ud83d abcdef"}', JSON, 400, "/problems/malformed-json"),
    "NaN": (b'{"payload": NaN}', JSON, 400, "/problems/malformed-json"),
    "too large": (b" " * 1_200_000, JSON, 413, "/problems/body-too-large"),
    "a form": (b"schedule=x", {"Content-Type": "application/x-www-form-urlencoded"}, 415, ""),
    "plain text": (GOOD, {"Content-Type": "text/plain"}, 415, "/problems/unsupported-media-type"),
    "another charset": (GOOD, {"Content-Type": "application/json; charset=latin-1"}, 415, ""),
}


@pytest.mark.parametrize("what", BAD_BODIES)
async def test_a_body_that_is_no_json_document_is_refused(api: ApiClient, unchanged: None, what: str) -> None:
    body, headers, status, kind = BAD_BODIES[what]
    problem = await api.problem("POST", "/api/v1/jobs", status, data=body, headers=headers)
    assert problem["type"].startswith(kind)


async def test_nesting_without_end_is_refused(api: ApiClient, unchanged: None) -> None:
    body = b'{"payload": ' + b"[" * 500_000 + b"]" * 500_000 + b"}"
    problem = await api.problem("POST", "/api/v1/jobs", 422, data=body, headers=JSON)
    assert "64 levels" in problem["detail"]


async def test_numbers_beyond_a_computer_are_refused(api: ApiClient, unchanged: None) -> None:
    body = b'{"schedule": "@daily", "target": {"type": "http", "url": "http://x/"}, "payload": [1e400]}'
    problem = await api.problem("POST", "/api/v1/jobs", 422, data=body, headers=JSON)
    assert (problem["pointer"], "out of range" in problem["detail"]) == ("/payload/0", True)


async def test_a_body_without_end_is_cut_off(api: ApiClient, unchanged: None) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b" " * 65_536

    import aiohttp

    # The server answers and hangs up; the client sees the answer or, when it is still sending, the hang-up.
    try:
        await api.problem("POST", "/api/v1/jobs", 413, data=endless(), headers=JSON)
    except aiohttp.ClientConnectionError:
        pass
    await api.good("GET", "/livez")


BAD_REQUESTS: dict[str, tuple[str, str, int, str | None]] = {
    "unknown query parameter": ("GET", "/api/v1/jobs?statsu=active", 422, "/statsu"),
    "query parameter where there are none": ("GET", "/api/v1/jobs/x?limit=5", 422, "/limit"),
    "limit of nothing": ("GET", "/api/v1/jobs?limit=0", 422, "/limit"),
    "limit too large": ("GET", "/api/v1/jobs?limit=501", 422, "/limit"),
    "limit that is not a number": ("GET", "/api/v1/runs?limit=ten", 422, "/limit"),
    "negative limit": ("GET", "/api/v1/runs?limit=-1", 422, "/limit"),
    "limit in other digits": ("GET", "/api/v1/runs?limit=%D9%A3", 422, "/limit"),
    "limit twice": ("GET", "/api/v1/runs?limit=1&limit=2", 422, "/limit"),
    "unknown status of a job": ("GET", "/api/v1/jobs?status=running", 422, "/status"),
    "unknown status of a run": ("GET", "/api/v1/runs?status=failed", 422, "/status/0"),
    "unknown kind of target": ("GET", "/api/v1/jobs?target=ftp", 422, "/target"),
    "NUL in a filter": ("GET", "/api/v1/jobs?tag=%00", 422, "/tag"),
    "query that is not UTF-8": ("GET", "/api/v1/jobs?tag=%FF", 422, ""),
    "cursor of nonsense": ("GET", "/api/v1/jobs?cursor=nonsense", 422, "/cursor"),
    "cursor with other letters": ("GET", "/api/v1/jobs?cursor=%C3%A4", 422, "/cursor"),
    "cursor of another list": ("GET", "/api/v1/jobs?cursor=WyJydW5zIiwxLDIsM10", 422, "/cursor"),
    "cursor of a far year": ("GET", "/api/v1/runs?cursor=WyJydW5zIiw5MDAwMDAwMDAwMDAwMDAwMDAwLDIsM10", 422, "/cursor"),
    "unknown job": ("GET", "/api/v1/jobs/nobody", 404, None),
    "unknown job by id": ("GET", "/api/v1/jobs/01980a3e-7c3f-7000-8000-00000000002a", 404, None),
    "runs of an unknown job": ("GET", "/api/v1/jobs/nobody/runs", 404, None),
    "runs of an unknown id": ("GET", "/api/v1/jobs/01980a3e-7c3f-7000-8000-00000000002a/runs", 404, None),
    "pause of an unknown job": ("POST", "/api/v1/jobs/nobody/pause", 404, None),
    "resume of an unknown job": ("POST", "/api/v1/jobs/01980a3e-7c3f-7000-8000-00000000002a/resume", 404, None),
    "trigger of an unknown job": ("POST", "/api/v1/jobs/nobody/trigger", 404, None),
    "delete of an unknown job": ("DELETE", "/api/v1/jobs/nobody", 404, None),
    "NUL in a name": ("GET", "/api/v1/jobs/a%00b", 404, None),
    "name that is not UTF-8": ("GET", "/api/v1/jobs/%FF", 404, None),
    "unknown path": ("GET", "/api/v2/jobs", 404, None),
    "slash at the end": ("GET", "/api/v1/jobs/", 404, None),
    "root": ("GET", "/", 404, None),
}


@pytest.mark.parametrize("what", BAD_REQUESTS)
async def test_a_bad_request_is_refused(api: ApiClient, unchanged: None, what: str) -> None:
    method, path, status, pointer = BAD_REQUESTS[what]
    problem = await api.problem(method, path, status)
    assert problem.get("pointer") == pointer


async def test_a_bad_reason_for_a_pause_is_refused(api: ApiClient) -> None:
    for body, pointer in ({"reason": 5}, "/reason"), ({"reason": "\0"}, "/reason"), ({"why": "x"}, "/why"):
        problem = await api.problem("POST", "/api/v1/jobs/x/pause", 422, json=body)
        assert problem["pointer"] == pointer


async def test_a_bad_upsert_changes_nothing(api: ApiClient, unchanged: None) -> None:
    for path, pointer in ("a%00", None), ("%20a", "/name"), ("01980a3e-7c3f-7000-8000-00000000002a", "/name"):
        status = 404 if pointer is None else 422
        problem = await api.problem("PUT", f"/api/v1/jobs/by-name/{path}", status, json=job())
        assert problem.get("pointer") == pointer
    problem = await api.problem("PUT", "/api/v1/jobs/by-name/a", 422, json=job(schedule="x"))
    assert problem["pointer"] == "/schedule"
