"""POST /bulk: counted first, then made in chunks, by the same rules as for a single job."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.api_client import ApiClient
from tests.api.api_server import Readiness, serving

JOBS = 25


async def add_jobs(api: ApiClient, count: int = JOBS, **fields: Any) -> list[str]:
    made = [await api.create(name=f"{fields.get('tags', ['x'])[0]}-{number:03}", **fields) for number in range(count)]
    return [job["id"] for job in made]


async def bulk(api: ApiClient, action: str, found: str, **fields: Any) -> Any:
    return await api.good("POST", "/api/v1/bulk", json={"action": action, "filter": found, **fields})


async def whole(api: ApiClient, action: str, found: str, **fields: Any) -> tuple[int, int]:
    """Chunk by chunk to the end; how many matched, and how many were changed."""
    matched = changed = 0
    cursor = None
    while True:
        answer = await bulk(api, action, found, cursor=cursor, **fields)
        matched, changed, cursor = matched + answer["matched"], changed + answer["changed"], answer["next_cursor"]
        if cursor is None:
            return matched, changed


async def statuses(api: ApiClient, tag: str) -> list[str]:
    page = await api.good("GET", f"/api/v1/jobs?tag={tag}&limit=500")
    return [job["status"] for job in page["items"]]


async def test_a_dry_run_counts_shows_some_and_changes_nothing(api: ApiClient) -> None:
    await add_jobs(api, tags=["x"])
    await api.create(name="other", tags=["y"])
    answer = await bulk(api, "pause", "tag:x", dry_run=True)
    assert (answer["matched"], answer["changed"], answer["dry_run"], answer["next_cursor"]) == (JOBS, 0, True, None)
    assert [job["name"] for job in answer["sample"]] == [f"x-{number:03}" for number in range(10)]
    assert set(await statuses(api, "x")) == {"active"}


async def test_a_change_is_made_in_chunks_to_what_the_filter_finds_and_to_nothing_else(api: ApiClient) -> None:
    await add_jobs(api, tags=["x"])
    other = await api.create(name="other", tags=["y"])
    first = await bulk(api, "pause", "tag:x", limit=10, reason="the sky is falling")
    assert (first["matched"], first["changed"]) == (10, 10)
    assert (await statuses(api, "x")).count("paused") == 10
    assert first["next_cursor"] is not None
    assert await whole(api, "pause", "tag:x", limit=10) == (15, 15)
    assert set(await statuses(api, "x")) == {"paused"}
    job = await api.good("GET", "/api/v1/jobs/x-003")
    assert job["paused_reason"] == "the sky is falling"
    assert (await api.good("GET", f"/api/v1/jobs/{other['id']}"))["status"] == "active"


async def test_a_change_that_was_interrupted_is_made_again_from_the_beginning_without_harm(api: ApiClient) -> None:
    await add_jobs(api, tags=["x"])
    await bulk(api, "pause", "tag:x", limit=7)
    assert await whole(api, "pause", "tag:x", limit=7) == (JOBS - 7, JOBS - 7)
    assert await whole(api, "pause", "tag:x") == (0, 0)
    revisions = {job["revision"] for job in (await api.good("GET", "/api/v1/jobs?tag=x&limit=500"))["items"]}
    assert revisions == {1}
    assert await whole(api, "resume", "tag:x", limit=4) == (JOBS, JOBS)
    assert set(await statuses(api, "x")) == {"active"}


async def test_deleted_jobs_are_gone_and_their_quota_is_free(api: ApiClient) -> None:
    await add_jobs(api, tags=["x"])
    before = (await api.good("GET", "/api/v1/tenants/default"))["jobs"]
    assert await whole(api, "delete", "tag:x name:x-0*", limit=9) == (JOBS, JOBS)
    assert await statuses(api, "x") == []
    assert (await api.good("GET", "/api/v1/tenants/default"))["jobs"] == before - JOBS


async def test_a_pause_of_many_jobs_may_have_an_end_and_a_policy_for_its_ticks(api: ApiClient, sql: Any) -> None:
    await add_jobs(api, 3, tags=["x"])
    said = {"until": "2099-01-01T00:00:00Z", "on_resume": "once"}
    assert await whole(api, "pause", "tag:x", **said) == (3, 3)
    job = await api.good("GET", "/api/v1/jobs/x-001")
    assert (job["paused_until"], job["on_resume"]) == (said["until"], "once")
    await sql.execute("UPDATE jobs SET since = now() - interval '3 h', created_at = now() - interval '4 h'")
    assert await whole(api, "resume", "tag:x", on_resume="all") == (3, 3)
    assert {row["kind"] for row in await sql.fetch("SELECT kind FROM catchups")} == {"missed"}
    past = {"action": "pause", "filter": "tag:x", "until": "2020-01-01T00:00:00Z"}
    assert (await api.problem("POST", "/api/v1/bulk", 422, json=past))["detail"].startswith("until is 2020-01-01")


async def end_as_dead(sql: Any, count: int) -> None:
    """Let the live runs of the first so many jobs die."""
    rows = await sql.fetch("SELECT * FROM live_runs ORDER BY job LIMIT $1", count)
    for row in rows:
        await sql.execute("DELETE FROM live_runs WHERE job = $1", row["job"])
        await sql.execute(
            "INSERT INTO run_history (job, scheduled_at, token, node, started_at, finished_at, serial, revision,"
            " attempt, status, reason) VALUES ($1, $2, $3, 1, now(), now(), $4, 1, 1, 2, 'retries exhausted')",
            row["job"], row["scheduled_at"], row["token"], row["serial"],
        )  # fmt: skip


async def test_dead_runs_of_the_jobs_that_are_found_go_on_once(api: ApiClient, sql: Any) -> None:
    for job in await add_jobs(api, 6, tags=["x"]):
        await api.good("POST", f"/api/v1/jobs/{job}/trigger", 202)
    await end_as_dead(sql, 4)
    assert (await bulk(api, "retry", "tag:x", dry_run=True))["matched"] == 4
    assert await whole(api, "retry", "tag:x", limit=2) == (4, 4)
    assert await whole(api, "retry", "tag:x") == (0, 0)
    unfinished = "SELECT (SELECT count(*) FROM live_runs) + (SELECT count(*) FROM backlog)"
    assert await sql.fetchval(unfinished) == 6
    assert await sql.fetchval("SELECT count(*) FROM run_history") == 0


@pytest.mark.parametrize("status", [4, 5], ids=["skipped", "missed"])
async def test_a_dead_run_is_the_newest_though_a_tick_after_it_did_not_run(
    api: ApiClient, sql: Any, status: int
) -> None:
    (job,) = await add_jobs(api, 1, tags=["x"])
    await api.good("POST", f"/api/v1/jobs/{job}/trigger", 202)
    await end_as_dead(sql, 1)
    await sql.execute(
        "INSERT INTO run_history (job, scheduled_at, finished_at, serial, revision, status, reason)"
        " SELECT job, scheduled_at + interval '1 second', now(), 0, 1, $1, 'of old' FROM run_history",
        status,
    )
    assert (await bulk(api, "retry", "tag:x", dry_run=True))["matched"] == 1
    assert await whole(api, "retry", "tag:x") == (1, 1)


async def test_a_run_that_died_before_a_newer_one_succeeded_is_left_alone(api: ApiClient, sql: Any) -> None:
    (job,) = await add_jobs(api, 1, tags=["x"])
    await api.good("POST", f"/api/v1/jobs/{job}/trigger", 202)
    await end_as_dead(sql, 1)
    await sql.execute(
        "INSERT INTO run_history (job, scheduled_at, token, finished_at, serial, revision, attempt, status)"
        " SELECT job, scheduled_at + interval '1 second', token, now(), serial, 1, 1, 1 FROM run_history"
    )
    assert (await bulk(api, "retry", "tag:x", dry_run=True))["matched"] == 0
    assert await whole(api, "retry", "tag:x") == (0, 0)


async def test_runs_of_the_jobs_that_are_found_are_cancelled(api: ApiClient, sql: Any) -> None:
    jobs = await add_jobs(api, 5, tags=["x"])
    for job in jobs[:3]:
        await api.good("POST", f"/api/v1/jobs/{job}/trigger", 202)
    await sql.execute("UPDATE live_runs SET owner = 7 WHERE job = (SELECT max(job) FROM live_runs)")
    dry = await bulk(api, "cancel", "tag:x", dry_run=True)
    assert (dry["matched"], len(dry["sample"])) == (3, 3)
    assert await whole(api, "cancel", "tag:x", limit=2) == (3, 3)
    assert await sql.fetchval("SELECT count(*) FROM run_history WHERE status = 3") == 2
    assert await sql.fetchval("SELECT cancel FROM live_runs") is True


async def test_a_filter_is_the_search_of_the_list_and_refused_like_it(api: ApiClient) -> None:
    problem = await api.problem("POST", "/api/v1/bulk", 422, json={"action": "pause", "filter": "tagg:x"})
    assert problem["pointer"] == "/filter" and "did you mean tag?" in problem["detail"]
    for body in (
        {"action": "pause", "filter": ""},
        {"action": "pause"},
        {"action": "explode", "filter": "tag:x"},
        {"action": "delete", "filter": "tag:x", "reason": "no"},
        {"action": "resume", "filter": "tag:x", "until": "2099-01-01T00:00:00Z"},
        {"action": "retry", "filter": "tag:x", "on_resume": "all"},
        {"action": "pause", "filter": "tag:x", "cursor": "abc"},
        {"action": "pause", "filter": "tag:x", "limit": 100_000},
    ):
        await api.problem("POST", "/api/v1/bulk", 422, json=body)


async def test_a_cursor_goes_on_with_the_change_it_belongs_to_and_no_other(api: ApiClient) -> None:
    await add_jobs(api, 5, tags=["x"])
    cursor = (await bulk(api, "pause", "tag:x", limit=2))["next_cursor"]
    body = {"action": "delete", "filter": "tag:x", "cursor": cursor}
    await api.problem("POST", "/api/v1/bulk", 422, json=body)
    await api.problem("POST", "/api/v1/bulk", 422, json=body | {"action": "pause", "filter": "tag:y"})


@pytest.mark.parametrize(("scope", "action", "status"), [
    ("read", "pause", 403), ("work", "cancel", 403), ("operate", "pause", 200), ("operate", "retry", 200),
    ("operate", "delete", 403), ("write", "delete", 200),
])  # fmt: skip
async def test_scopes_are_those_of_the_single_actions(
    database_url: str, readiness: Readiness, scope: Any, action: str, status: int
) -> None:
    async with serving(database_url, readiness, require_keys=True) as api:
        key = await api.store.keys.add(scope, tenant=1)
        headers = {"Authorization": f"Bearer {key.key}"}
        answer = await api.ask("POST", "/api/v1/bulk", json={"action": action, "filter": "name:*"}, headers=headers)
        assert answer.status == status, answer.document


async def test_only_the_callers_own_jobs_are_changed(database_url: str, readiness: Readiness) -> None:
    async with serving(database_url, readiness) as api:
        await add_jobs(api, 3, tags=["x"])
        await api.store.tenants.add("acme")
        acme = await api.store.tenants.number("acme")
        assert acme is not None
        headers = {"Authorization": f"Bearer {(await api.store.keys.add('write', tenant=acme)).key}"}
        for action in ("pause", "delete", "cancel", "retry"):
            body = {"action": action, "filter": "name:*"}
            answer = await api.good("POST", "/api/v1/bulk", json=body, headers=headers)
            assert (answer["matched"], answer["changed"]) == (0, 0)
        assert [job.status for job in (await api.store.jobs.list())[0]] == ["active"] * 3
