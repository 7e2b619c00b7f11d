"""`search` on the lists, over HTTP."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from tests.api.api_client import ApiClient


async def found(api: ApiClient, path: str, search: str, **query: str) -> list[str]:
    """The names of all pages."""
    names: list[str] = []
    cursor: str | None = ""
    more = "".join(f"&{name}={quote(value)}" for name, value in query.items())
    while cursor is not None:
        page = await api.good("GET", f"/api/v1/{path}?search={quote(search)}&cursor={cursor}{more}")
        names += [item["job" if "job_id" in item else "name"] for item in page["items"]]
        cursor = page["next_cursor"]
    return names


async def test_jobs_are_found_by_words_and_fields(api: ApiClient) -> None:
    await api.create(name="mail daily", tags=["a"], schedule="every 30m")
    await api.create(name="mail weekly", tags=["a", "b"], queue="bulk", schedule="every 7d")
    await api.create(name="report")
    await api.good("POST", "/api/v1/jobs/report/pause")
    assert await found(api, "jobs", "mail") == ["mail daily", "mail weekly"]
    assert await found(api, "jobs", 'name:"mail w"') == ["mail weekly"]
    assert await found(api, "jobs", "tag:a next:<1h") == ["mail daily"]
    assert await found(api, "jobs", "next:>1d") == ["mail weekly"]
    assert await found(api, "jobs", "queue:bulk target:http") == ["mail weekly"]
    assert await found(api, "jobs", "status:paused") == ["report"]
    assert await found(api, "jobs", "status:paused,active", limit="1") == ["mail daily", "mail weekly", "report"]
    assert await found(api, "jobs", "mail", tag="b", status="active", prefix="mail") == ["mail weekly"]
    assert await found(api, "jobs", "status:paused", status="active") == []


async def test_an_unknown_field_is_refused_with_the_list(api: ApiClient) -> None:
    problem = await api.problem("GET", "/api/v1/jobs?search=colour:red", 422)
    assert problem["pointer"] == "/search"
    assert "name, tag, status, target, queue, next" in problem["detail"]
    problem = await api.problem("GET", "/api/v1/runs?search=colour:red", 422)
    assert "job, status, since, until" in problem["detail"]
    await api.problem("GET", "/api/v1/jobs?search=%00", 422)
    await api.problem("GET", f"/api/v1/jobs?search={'x' * 501}", 422)


async def test_a_value_is_never_part_of_a_statement(api: ApiClient) -> None:
    await api.create(name="a")
    for text in ("'; DROP TABLE jobs; --", "%", "_", "\\", "a' OR '1'='1", "$1", "{}"):
        quoted = text.replace("\\", "\\\\")
        assert await found(api, "jobs", f'"{quoted}"') == []
        assert await found(api, "jobs", f'tag:"{quoted}"') == []
        assert await found(api, "jobs", f'queue:"{quoted}"') == []
    assert await found(api, "jobs", "a") == ["a"]


async def test_a_cursor_belongs_to_its_search(api: ApiClient) -> None:
    for name in ("a1", "a2", "b1"):
        await api.create(name=name)
    page = await api.good("GET", "/api/v1/jobs?search=a&limit=1")
    problem = await api.problem("GET", f"/api/v1/jobs?search=b&limit=1&cursor={page['next_cursor']}", 422)
    assert problem["type"] == "/problems/bad-cursor"


async def test_runs_are_found_by_job_status_and_time(api: ApiClient, sql: Any) -> None:
    for name in ("a", "b c"):
        await api.create(name=name)
        await api.good("POST", f"/api/v1/jobs/{quote(name)}/trigger", 202)
        await api.good("POST", f"/api/v1/jobs/{quote(name)}/trigger", 202)  # it waits for the first one
    await sql.execute(
        "INSERT INTO run_history (job, scheduled_at, serial, revision, status, finished_at)"
        " SELECT job, now() - interval '2 h', 0, 1, 5, now() FROM jobs WHERE name = 'a'"
    )
    assert await found(api, "runs", "job:a") == ["a", "a", "a"]
    assert await found(api, "runs", 'job:"b c" status:pending') == ["b c", "b c"]
    assert await found(api, "runs", "since:1h", limit="1") == ["b c", "b c", "a", "a"]
    assert await found(api, "runs", "until:1h") == ["a"]
    assert await found(api, "runs", "since:3h until:1h status:missed,skipped") == ["a"]
    assert await found(api, "runs", "since:1h status:missed") == []
    assert await found(api, "runs", "status:skipped", status="pending") == []
    assert await found(api, "jobs/a/runs", "since:1h status:pending") == ["a", "a"]
    await api.problem("GET", "/api/v1/jobs/a/runs?search=job:a", 422)
    await api.problem("GET", "/api/v1/runs?search=job:nobody", 404)
