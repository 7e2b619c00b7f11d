"""Pauses, skips, revisions, ticks, explanations and audits over a real socket."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.api.api_client import ApiClient
from tests.api.api_server import Readiness, serving

HOUR = timedelta(hours=1)


def text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def in_hours(hours: float) -> datetime:
    return datetime.now(UTC).replace(minute=0, second=0, microsecond=0) + hours * HOUR


async def make_older(sql: Any, name: str, hours: int) -> list[datetime]:
    """As if the job had been made so many hours ago and had run at each full hour since; those hours."""
    start = in_hours(-hours) - HOUR / 2
    await sql.execute("UPDATE jobs SET created_at = $2 WHERE name = $1", name, start)
    ticks = [in_hours(n) for n in range(-hours, 1)]
    for tick in ticks:
        await sql.execute(
            "INSERT INTO run_history (job, scheduled_at, token, node, started_at, finished_at, serial, revision,"
            " attempt, status) SELECT job, $2, 4194305, 7, $3, $4, 0, 1, 1, 1 FROM jobs WHERE name = $1",
            name,
            tick,
            tick + timedelta(milliseconds=5),
            tick + timedelta(seconds=1),
        )
    await sql.execute("UPDATE cursors SET last_tick = $1 WHERE next_tick > $1", ticks[-1])
    return ticks


async def test_a_pause_says_until_when_why_and_what_comes_after(api: ApiClient) -> None:
    await api.create(name="report")
    until = text(in_hours(5))
    body = {"reason": "moving house", "until": until, "on_resume": "once"}
    paused = await api.good("POST", "/api/v1/jobs/report/pause", json=body)
    assert {key: paused[key] for key in ("paused_reason", "paused_until", "on_resume", "paused_by")} == {
        "paused_reason": "moving house",
        "paused_until": until,
        "on_resume": "once",
        "paused_by": "local, no key",
    }
    resumed = await api.good("POST", "/api/v1/jobs/report/resume", json={"on_resume": "skip"})
    assert (resumed["status"], resumed["paused_until"]) == ("active", None)
    problem = await api.problem("POST", "/api/v1/jobs/report/pause", 422, json={"until": "2020-01-01T00:00:00Z"})
    assert problem["pointer"] == "/until"
    await api.problem("POST", "/api/v1/jobs/report/pause", 422, json={"on_resume": "twice"})


async def test_a_trigger_brings_its_own_payload_and_one_of_a_busy_job_waits_or_is_refused(
    api: ApiClient, sql: Any
) -> None:
    await api.create(name="report", payload=1)
    run = await api.good("POST", "/api/v1/jobs/report/trigger", 202, json={"payload": {"n": 2}})
    assert run["status"] == "pending"
    assert await sql.fetchval("SELECT payload->>'n' FROM live_runs") == "2"
    claim = {"worker": "w", "targets": ["http"]}
    (claimed,) = (await api.good("POST", "/api/v1/queues/default/claim", json=claim))["runs"]
    assert claimed["payload"] == {"n": 2}
    again = await api.good("POST", "/api/v1/jobs/report/trigger", 202)
    assert (again["status"], again["reason"]) == ("pending", None)
    refuse = {"if_busy": "refuse"}
    problem = await api.problem("POST", "/api/v1/jobs/report/trigger", 409, json=refuse)
    assert "already has its maximum of unfinished runs" in problem["detail"]
    assert await sql.fetchval("SELECT count(*) FROM backlog") == 1
    await api.good("POST", f"/api/v1/runs/{again['id']}/cancel")
    await api.problem("POST", "/api/v1/jobs/report/trigger", 409, json=refuse)
    problem = await api.problem("POST", "/api/v1/jobs/report/trigger", 422, json={"if_busy": "skip"})
    assert problem["pointer"] == "/if_busy"


async def test_a_tick_is_skipped_shown_and_taken_back(api: ApiClient) -> None:
    await api.create(name="report", schedule="0 * * * *")
    at = text(in_hours(3))
    skip = await api.good("POST", "/api/v1/jobs/report/skip", json={"at": at, "reason": "holiday"})
    assert (skip["at"], skip["reason"], skip["created_by"]) == (at, "holiday", "local, no key")
    assert [each["at"] for each in await api.good("GET", "/api/v1/jobs/report/skips")] == [at]
    page = await api.good("GET", f"/api/v1/jobs/report/ticks?to={at}")
    assert [tick["status"] for tick in page["items"]] == ["scheduled", "scheduled", "to be skipped"]
    await api.good("DELETE", f"/api/v1/jobs/report/skip?at={at}", 204)
    await api.problem("DELETE", f"/api/v1/jobs/report/skip?at={at}", 404)
    wrong = await api.problem("POST", "/api/v1/jobs/report/skip", 422, json={"at": text(in_hours(3.5))})
    assert "the nearest are" in wrong["detail"]
    assert wrong["pointer"] == "/at"


async def test_the_open_runs_of_a_job_are_cancelled(api: ApiClient) -> None:
    await api.create(name="report")
    run = await api.good("POST", "/api/v1/jobs/report/trigger", 202)
    done = await api.good("POST", "/api/v1/jobs/report/cancel")
    assert done == {"cancelled": [run["id"]], "stopping": [], "more": False}


async def test_revisions_show_who_changed_what_and_a_job_can_be_rolled_back(api: ApiClient) -> None:
    headers = {"X-Token": "secret"}
    await api.create(name="report", target={"type": "http", "url": "http://127.0.0.1:9/", "headers": headers})
    await api.good("PATCH", "/api/v1/jobs/report", json={"priority": 9})
    changed = {"type": "http", "url": "http://127.0.0.1:9/", "headers": {"X-Token": "other"}}
    await api.good("PATCH", "/api/v1/jobs/report", json={"target": changed})
    page = await api.good("GET", "/api/v1/jobs/report/revisions")
    assert [(each["revision"], each["changed_by"], each["changes"]) for each in page["items"]] == [
        (3, "local, no key", [{"path": "target.headers.X-Token", "before": "(hidden)", "after": "(hidden)"}]),
        (2, "local, no key", [{"path": "priority", "before": 5, "after": 9}]),
        (1, "local, no key", []),
    ]
    first = await api.good("GET", "/api/v1/jobs/report/revisions?limit=1")
    rest = await api.good("GET", f"/api/v1/jobs/report/revisions?limit=1&cursor={first['next_cursor']}")
    assert [each["revision"] for each in (*first["items"], *rest["items"])] == [3, 2]
    old = await api.good("GET", "/api/v1/jobs/report/revisions/1")
    assert (old["definition"]["priority"], old["replaced_at"] is not None) == (5, True)
    back = await api.good("POST", "/api/v1/jobs/report/rollback", json={"revision": 1})
    assert (back["revision"], back["priority"], back["target"]["headers"]) == (4, 5, headers)
    await api.problem("POST", "/api/v1/jobs/report/rollback", 404, json={"revision": 77})
    await api.problem("GET", "/api/v1/jobs/report/revisions/first", 422)


async def test_who_changed_a_job_is_the_name_of_the_key(database_url: str, readiness: Readiness) -> None:
    async with serving(database_url, readiness, require_keys=True) as api:
        named = await api.store.keys.add("write", tenant=1, name="deploys")
        nameless = await api.store.keys.add("write", tenant=1)
        for key in (named, nameless):
            headers = {"Authorization": f"Bearer {key.key}"}
            body = {"schedule": "@daily", "target": {"type": "http", "url": "https://example.org/"}, "payload": key.id}
            await api.ask("PUT", "/api/v1/jobs/by-name/report", json=body, headers=headers)
        page = await api.good("GET", "/api/v1/jobs/report/revisions", headers=headers)
        assert [each["changed_by"] for each in page["items"]] == [f"key:{nameless.id}", "deploys"]


async def test_ticks_are_paged_from_the_past_to_those_to_come(api: ApiClient, sql: Any) -> None:
    await api.create(name="report", schedule="15 * * * *", timezone="Asia/Kolkata")
    ticks = await make_older(sql, "report", 3)
    path = f"/api/v1/jobs/report/ticks?from={text(ticks[0])}&to={text(in_hours(2))}"
    whole = (await api.good("GET", path))["items"]
    found: list[Any] = []
    cursor = ""
    while True:
        page = await api.good("GET", f"{path}&limit=2{cursor}")
        found += page["items"]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert found == whole
    assert all(tick["local"].endswith(":15:00+05:30") for tick in found)
    assert {tick["status"] for tick in found} >= {"missing", "scheduled"}
    await api.problem("GET", f"/api/v1/jobs/report/ticks?from={text(in_hours(2))}&to={text(in_hours(1))}", 422)
    await api.problem("GET", "/api/v1/jobs/report/ticks?cursor=nonsense", 422)


async def test_a_replaced_run_is_explained_with_the_tick_that_replaced_it(api: ApiClient, sql: Any) -> None:
    await api.create(name="report", schedule="0 * * * *", concurrent_policy="REPLACE")
    ticks = await make_older(sql, "report", 3)
    await sql.execute("UPDATE run_history SET status = 3, reason = 'replaced' WHERE scheduled_at = $1", ticks[1])
    told = await api.good("GET", f"/api/v1/jobs/report/explain?at={text(ticks[1])}")
    sentences = " ".join(told["sentences"])
    assert "because a later tick replaced it (concurrent_policy REPLACE)." in sentences
    assert f"The tick that replaced it is {ticks[2]:%Y-%m-%d %H:%M:%S} UTC." in sentences
    assert (await api.good("GET", f"/api/v1/runs/{told['run_id']}"))["reason"] == "replaced"


async def test_a_staggered_tick_is_explained_with_its_delay(api: ApiClient) -> None:
    job = await api.create(name="report", schedule="0 0 1 1 *", release="staggered", priority=0)
    told = await api.good("GET", f"/api/v1/jobs/report/explain?at={job['next_run_at']}")
    assert re.search(
        r"It fires in .*, [345]\.\d s after the tick because of its staggered release\.", told["sentences"][-1]
    )


async def test_a_tick_is_explained_in_sentences(api: ApiClient, sql: Any) -> None:
    job = await api.create(name="report", schedule="0 * * * *")
    ticks = await make_older(sql, "report", 3)
    told = await api.good("GET", f"/api/v1/jobs/report/explain?at={text(ticks[1])}")
    assert (told["job_id"], told["tick"], told["status"]) == (job["id"], True, "succeeded")
    assert (told["before"], told["after"]) == (text(ticks[0]), text(ticks[2]))
    assert told["sentences"][0].startswith(f"{ticks[1]:%Y-%m-%d %H:%M:%S} UTC is a tick of 'report'.")
    assert (
        told["sentences"][-1]
        == "Attempt 1 started 5 ms after the tick on node 0000000000000007 and succeeded after 995 ms."
    )
    none = await api.good("GET", f"/api/v1/jobs/{job['id']}/explain?at={text(ticks[1] + HOUR / 4)}")
    assert (none["tick"], none["status"], none["run_id"]) == (False, None, None)
    await api.problem("GET", "/api/v1/jobs/report/explain?at=yesterday", 422)
    await api.problem("GET", "/api/v1/jobs/report/explain", 422)
    await api.problem("GET", "/api/v1/jobs/nobody/explain?at=2026-01-01T00:00:00Z", 404)


async def test_an_audit_names_exactly_the_tick_whose_row_is_gone(api: ApiClient, sql: Any) -> None:
    for name in ("a", "b", "c"):
        await api.create(name=name, schedule="0 * * * *")
        ticks = await make_older(sql, name, 5)
    page = await api.good("GET", "/api/v1/audit")
    assert (page["jobs"], page["audited"], page["next_cursor"]) == (3, 3, None)
    assert [(each["job"], each["expected"], each["accounted_for"], each["missing"]) for each in page["items"]] == [
        (name, 6, {"succeeded": 6}, 0) for name in ("a", "b", "c")
    ]
    assert page["items"][0]["lateness_ms"] == {"5": 6}
    await sql.execute(
        "DELETE FROM run_history h USING jobs j WHERE j.job = h.job AND j.name = 'b' AND scheduled_at = $1", ticks[2]
    )
    wrong = [each for each in (await api.good("GET", "/api/v1/audit"))["items"] if each["missing"]]
    assert [(each["job"], each["missing_ticks"]) for each in wrong] == [("b", [text(ticks[2])])]
    first = await api.good("GET", "/api/v1/audit?limit=2")
    rest = await api.good(
        "GET", f"/api/v1/audit?limit=2&since={first['since']}&until={first['until']}&cursor={first['next_cursor']}"
    )
    assert [each["job"] for each in (*first["items"], *rest["items"])] == ["a", "b", "c"]
    some = await api.good("GET", f"/api/v1/audit?job=a&job=c&since={text(ticks[3])}&late_ms=2")
    assert [(each["job"], each["expected"], each["late"]) for each in some["items"]] == [("a", 2, 2), ("c", 2, 2)]
    await api.problem("GET", "/api/v1/audit?job=nobody", 404)


@pytest.mark.parametrize("query", ["since=yesterday", "since=0001-01-01T00:00:00Z", "late_ms=-1", "cursor=x", "jobs=a"])
async def test_an_audit_that_cannot_be_read_is_refused(api: ApiClient, query: str) -> None:
    await api.problem("GET", f"/api/v1/audit?{query}", 422)


async def test_history_that_was_dropped_is_not_missed(api: ApiClient, sql: Any) -> None:
    await api.create(name="report", schedule="0 * * * *")
    ticks = await make_older(sql, "report", 5)
    await sql.execute("DELETE FROM run_history WHERE scheduled_at < $1", ticks[3])
    assert (await api.good("GET", "/api/v1/audit"))["items"][0]["missing"] == 3
    await sql.execute(
        "INSERT INTO history_parts (parent, name, since, until, dropped_at)"
        " VALUES ('run_history', 'gone', '-infinity', $1, now())",
        ticks[3],
    )
    page = await api.good("GET", "/api/v1/audit")
    assert (page["items"][0]["missing"], page["items"][0]["expected"]) == (0, 3)
