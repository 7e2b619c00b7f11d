"""Enqueue runs of tasks and jobs over HTTP, and list tasks."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from detent.runtime.envelope import generate_master_key
from tests.api.api_client import HTTP, ApiClient
from tests.api.api_server import Readiness, serving
from tests.support.factories import add_live_run, add_node

RUNS = "/api/v1/tasks/mail/runs"


async def task(api: ApiClient, name: str = "mail", **fields: Any) -> Any:
    return await api.good("POST", "/api/v1/jobs", 201, json={"name": name, "target": HTTP, **fields})


async def enqueue(api: ApiClient, body: Any = None, path: str = RUNS, **options: Any) -> list[Any]:
    if body is not None:
        options["json"] = body
    items: list[Any] = (await api.good("POST", path, 201, **options))["items"]
    return items


def at(**offset: float) -> str:
    return (datetime.now(UTC) + timedelta(**offset)).isoformat()


# --- what is enqueued ---


async def test_one_run_is_enqueued_with_what_it_was_given(api: ApiClient, sql: Any) -> None:
    await task(api)
    due = at(minutes=10)
    body = {"payload": {"to": "ada"}, "at": due, "priority": -100, "queue": "slow", "concurrency_key": "ada"}
    (run,) = await enqueue(api, body)
    assert (run["created"], run["status"]) == (True, "pending")
    assert run["scheduled_at"][:19] == due[:19]
    row = await sql.fetchrow("SELECT b.*, q.name FROM backlog b JOIN queues q USING (queue)")
    assert (row["priority"], row["name"], row["key"]) == (-100, "slow", "ada")
    assert json.loads(row["payload"]) == {"to": "ada"}
    shown = await api.good("GET", f"/api/v1/runs/{run['id']}")
    assert (shown["job"], shown["status"], shown["scheduled_at"]) == ("mail", "pending", run["scheduled_at"])


async def test_a_request_without_a_body_enqueues_a_run_as_its_task_says(api: ApiClient, sql: Any) -> None:
    job = await task(api, payload={"to": "ada"}, priority=7)
    (run,) = await enqueue(api)
    (other,) = await enqueue(api, {}, f"/api/v1/tasks/{job['id']}/runs")
    assert run["id"] != other["id"]
    rows = await sql.fetch("SELECT payload, priority FROM backlog")
    assert [tuple(row) for row in rows] == [(None, 7), (None, 7)]


async def test_a_payload_of_null_is_not_the_payload_of_the_task(api: ApiClient, sql: Any) -> None:
    await task(api, payload={"to": "ada"})
    await enqueue(api, {"runs": [{"payload": None}, {}]})
    rows = await sql.fetch("SELECT payload::text FROM backlog ORDER BY serial")
    assert [row["payload"] for row in rows] == ["null", None]


async def test_ten_thousand_runs_are_enqueued_in_one_request_and_answered_in_order(api: ApiClient, sql: Any) -> None:
    await task(api)
    runs = [{"payload": {"n": n}, **({"priority": 9} if n % 2 else {})} for n in range(10_000)]
    items = await enqueue(api, {"runs": runs})
    assert len({item["id"] for item in items}) == 10_000
    rows = await sql.fetch("SELECT run_id(job, scheduled_at, serial) AS id, (payload->>'n')::integer AS n FROM backlog")
    numbers = {str(row["id"]): row["n"] for row in rows}
    assert [numbers[item["id"]] for item in items] == list(range(10_000))
    problem = await api.problem("POST", RUNS, 422, json={"runs": [{}] * 10_001})
    assert problem["pointer"] == "/runs" and "10001 items" in problem["detail"]


async def test_ten_thousand_runs_of_five_kilobytes_fit_into_a_request(api: ApiClient, sql: Any) -> None:
    await task(api)
    body = json.dumps({"runs": [{"payload": "x" * 5000}] * 10_000})
    assert len(await enqueue(api, data=body, headers={"Content-Type": "application/json"})) == 10_000


async def test_a_job_with_a_schedule_is_enqueued_too(api: ApiClient, sql: Any) -> None:
    await api.create(name="report")
    first, second = await enqueue(api, {"runs": [{}, {"delay_seconds": 60}]}, "/api/v1/tasks/report/runs")
    assert first["status"] == second["status"] == "pending"
    assert await sql.fetchval("SELECT count(*) FROM backlog") == 2


async def test_a_unique_key_that_is_taken_answers_with_its_run(api: ApiClient, sql: Any) -> None:
    await task(api)
    (first,) = await enqueue(api, {"unique_key": "a", "payload": 1})
    again, other, twin = await enqueue(api, {"runs": [{"unique_key": "a"}, {"unique_key": "b"}, {"unique_key": "b"}]})
    assert again == {**first, "created": False}
    assert (other["created"], twin) == (True, {**other, "created": False})
    await api.good("POST", f"/api/v1/runs/{first['id']}/cancel")
    (free,) = await enqueue(api, {"unique_key": "a"})
    assert free["created"] and free["id"] != first["id"]
    period = {"unique_key": "c", "unique_for_seconds": 3600}
    (held,) = await enqueue(api, period)
    await api.good("POST", f"/api/v1/runs/{held['id']}/cancel")
    (still,) = await enqueue(api, period)
    assert still == {**held, "created": False, "status": "cancelled"}
    await sql.execute("DELETE FROM run_history")
    (unknown,) = await enqueue(api, period)
    assert unknown == {**held, "created": False, "status": None}


async def test_a_repeated_request_with_the_same_idempotency_key_enqueues_once(api: ApiClient, sql: Any) -> None:
    await task(api)
    headers = {"Idempotency-Key": "once"}
    first = await enqueue(api, {"runs": [{}, {}]}, headers=headers)
    assert await enqueue(api, {"runs": [{}, {}]}, headers=headers) == first
    assert await sql.fetchval("SELECT count(*) FROM backlog") == 2
    await api.problem("POST", RUNS, 422, json={"runs": [{}]}, headers=headers)


async def test_an_enqueue_leaves_no_event_in_the_audit_log(api: ApiClient, sql: Any) -> None:
    await task(api)
    before = await sql.fetchval("SELECT count(*) FROM audit_events")
    await enqueue(api, {"runs": [{}, {}]})
    assert await sql.fetchval("SELECT count(*) FROM audit_events") == before


# --- what is refused, as a whole ---

REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"priority": 101}, "/priority", "priority is 101: give a whole number from -100 to 100"),
    ({"priority": "high"}, "/priority", "give a whole number"),
    ({"delay_seconds": -1}, "/delay_seconds", "delay_seconds is -1"),
    ({"delay_seconds": 367 * 86_400}, "/delay_seconds", "from 0 to"),
    ({"at": "tomorrow"}, "/at", "give a time such as"),
    ({"at": "2026-12-24T18:00:00"}, "/at", "give a time such as"),
    ({"at": "9999-01-01T00:00:00Z"}, "/at", "give an instant of the years"),
    ({"at": at(days=367)}, "/at", "more than 366 days ahead"),
    ({"at": at(days=-2)}, "/at", "more than a day in the past"),
    ({"at": at(days=1), "delay_seconds": 5}, "/delay_seconds", "both given"),
    ({"queue": ""}, "/queue", "text of 1 to 200 characters"),
    ({"queue": "a\u200bb"}, "/queue", "cannot be seen"),
    ({"unique_key": "k" * 201}, "/unique_key", "text of 1 to 200 characters"),
    ({"unique_key": "a\0b"}, "/unique_key", "NUL"),
    ({"concurrency_key": "k" * 201}, "/concurrency_key", "text of 1 to 200 characters"),
    ({"concurrency_key": "a\0b"}, "/concurrency_key", "NUL"),
    ({"unique_for_seconds": 60}, "/unique_for_seconds", "without unique_key"),
    ({"unique_key": "a", "unique_for_seconds": 0}, "/unique_for_seconds", "unique_for_seconds is 0"),
    ({"payload": {"deep": ["a\0b"]}}, "/payload/deep/0", "NUL"),
    ({"payload": "x" * 2_000}, "/payload", "2002 bytes of JSON and 1000 are allowed"),
    ({"prioritty": 5}, "/prioritty", "did you mean priority?"),
    ({"payload": {"secret": "nowhere"}}, "/payload/secret", "There is no secret 'nowhere'"),
]


@pytest.mark.parametrize(("run", "pointer", "words"), REFUSED, ids=range(len(REFUSED)))
async def test_a_wrong_run_is_refused_with_a_pointer_and_nothing_is_enqueued(
    api: ApiClient, sql: Any, run: dict[str, Any], pointer: str, words: str
) -> None:
    await task(api)
    await api.good("PATCH", "/api/v1/tenants/default", json={"max_payload_bytes": 1000})
    problem = await api.problem("POST", RUNS, 422, json=run)
    assert problem["pointer"] == pointer and words in problem["detail"]
    problem = await api.problem("POST", RUNS, 422, json={"runs": [{}, {}, {}, run, {}]})
    assert problem["pointer"] == f"/runs/3{pointer}" and words in problem["detail"]
    assert await sql.fetchval("SELECT count(*) FROM backlog") == 0
    assert await sql.fetchval("SELECT count(*) FROM queues WHERE name NOT IN ('default')") == 0


async def test_every_wrong_run_is_named_up_to_a_hundred(api: ApiClient) -> None:
    await task(api)
    wrong = [{"priority": 101} if n % 2 else {"unique_for_seconds": 5} for n in range(4)]
    problem = await api.problem("POST", RUNS, 422, json={"runs": wrong})
    assert [fault["pointer"] for fault in problem["errors"]] == [
        "/runs/0/unique_for_seconds", "/runs/1/priority", "/runs/2/unique_for_seconds", "/runs/3/priority",
    ]  # fmt: skip
    problem = await api.problem("POST", RUNS, 422, json={"runs": [{"priority": 101}] * 500})
    assert len(problem["errors"]) == 100


@pytest.mark.parametrize(
    ("body", "status", "pointer"),
    [
        ('{"runs": 3}', 422, "/runs"),
        ('{"runs": []}', 422, "/runs"),
        ('{"runs": [3]}', 422, "/runs/0"),
        ('{"runs": [{}], "payload": 1}', 422, "/payload"),
        ("[{}]", 422, ""),
        ("null", 422, ""),
        ('{"runs": [{}]', 400, None),
        ('{"payload": 1e999}', 422, "/payload"),
    ],
)
async def test_a_body_that_is_neither_a_run_nor_runs_is_refused(
    api: ApiClient, body: str, status: int, pointer: str | None
) -> None:
    await task(api)
    problem = await api.problem("POST", RUNS, status, data=body, headers={"Content-Type": "application/json"})
    assert problem.get("pointer") == pointer


async def test_a_task_that_does_not_exist_is_not_found(api: ApiClient) -> None:
    problem = await api.problem("POST", RUNS, 404, json={})
    assert "There is no task or job 'mail'" in problem["detail"]
    await task(api)
    await api.good("DELETE", "/api/v1/jobs/mail", 204)
    await api.problem("POST", RUNS, 404, json={"runs": [{}]})
    await api.problem("POST", "/api/v1/tasks/00000000-0000-7000-8000-000000000000/runs", 404, json={})


async def test_nothing_is_enqueued_while_a_node_of_an_older_version_is_in_the_cluster(api: ApiClient, sql: Any) -> None:
    await task(api)
    await add_node(sql, 7)
    await sql.execute("UPDATE nodes SET knows = 20, version = '0.9'")
    problem = await api.problem("POST", RUNS, 409, json={})
    assert "(version 0.9) is in the cluster: upgrade all nodes first" in problem["detail"]
    await sql.execute("UPDATE nodes SET knows = 21")
    await enqueue(api)


# --- who may enqueue what ---


@pytest.fixture
async def guarded(database_url: str, readiness: Readiness) -> AsyncIterator[ApiClient]:
    """A server that requires keys, and a client with one of an administrator."""
    async with serving(database_url, readiness, require_keys=True, secret_key=generate_master_key()) as client:
        key = await client.store.keys.add("admin", tenant=1)
        client.session.headers["Authorization"] = f"Bearer {key.key}"
        yield client


async def key_of(api: ApiClient, scope: str, **binding: str) -> dict[str, str]:
    key = await api.good("POST", "/api/v1/keys", 201, json={"scope": scope})
    if binding:
        body = {"subject_kind": "key", "subject": key["id"], **binding}
        await api.good("POST", "/api/v1/role-bindings", 201, json=body)
    return {"Authorization": f"Bearer {key['key']}"}


async def test_a_payload_refers_to_secrets_only_with_the_scope_write(guarded: ApiClient, sql: Any) -> None:
    api = guarded
    await task(api)
    await api.good("PUT", "/api/v1/secrets/token", json={"value": "zq7-planted"})
    run = {"payload": {"auth": {"secret": "token"}}}
    await api.problem("POST", RUNS, 403, json=run, headers=await key_of(api, "operate"))
    await enqueue(api, {"runs": [run, {"payload": {"secret": "not a reference", "and": 1}}]})
    assert await sql.fetchval("SELECT count(*) FROM backlog") == 2


async def test_a_role_for_a_queue_enqueues_its_jobs_into_its_queue(guarded: ApiClient, sql: Any) -> None:
    api = guarded
    await task(api, queue="mail")
    await task(api, "other", queue="slow")
    headers = await key_of(api, "bound", role="operator", queue="mail")
    await enqueue(api, {"queue": "mail"}, headers=headers)
    problem = await api.problem("POST", RUNS, 403, json={"runs": [{}, {"queue": "slow"}]}, headers=headers)
    assert "The run would wait in the queue 'slow'" in problem["detail"]
    await api.problem("POST", "/api/v1/tasks/other/runs", 404, json={}, headers=headers)
    assert [each["name"] for each in (await api.good("GET", "/api/v1/tasks", headers=headers))["items"]] == ["mail"]
    assert await sql.fetchval("SELECT count(*) FROM backlog") == 1
    await api.problem("POST", RUNS, 403, json={}, headers=await key_of(api, "read"))


# --- the list of tasks ---


async def test_tasks_are_listed_with_their_unfinished_runs(api: ApiClient, sql: Any) -> None:
    await api.create(name="scheduled")
    job = await task(api, concurrency_limit=1)
    await task(api, "idle", queue="slow")
    await enqueue(api, {"runs": [{}, {"priority": 9}, {"delay_seconds": 3600}, {"queue": "elsewhere"}]})
    await sql.execute("UPDATE backlog SET parked = true WHERE priority = 9")
    node = await add_node(sql, 7)
    for lane, owner in ((40_000, None), (40_001, node), (40_002, node)):
        await add_live_run(sql, await sql.fetchval("SELECT job FROM jobs WHERE name = 'mail'"), lane=lane, owner=owner)
    mail, idle = (await api.good("GET", "/api/v1/tasks"))["items"]
    numbers = {name: mail[name] for name in ("pending", "ready", "delayed", "waiting_for_key", "running", "more")}
    assert (mail["id"], mail["name"], mail["queue"], mail["status"]) == (job["id"], "mail", "default", "active")
    assert numbers == {"pending": 5, "ready": 3, "delayed": 1, "waiting_for_key": 1, "running": 2, "more": False}
    assert mail["oldest_ready_at"] == "2020-01-01T00:00:00Z"  # of the one that a release has placed
    assert (idle["name"], idle["pending"], idle["oldest_ready_at"]) == ("idle", 0, None)


async def test_more_runs_than_are_counted_are_reported_as_more(api: ApiClient, sql: Any) -> None:
    await task(api)
    await sql.execute("SELECT enqueue_many('mail', (SELECT jsonb_agg('{}'::jsonb) FROM generate_series(1, 10000)))")
    (mail,) = (await api.good("GET", "/api/v1/tasks?limit=20"))["items"]
    assert (mail["pending"], mail["more"]) == (10_000, True)
    await sql.execute("DELETE FROM backlog WHERE serial = (SELECT min(serial) FROM backlog)")
    (mail,) = (await api.good("GET", "/api/v1/tasks?limit=20"))["items"]
    assert (mail["pending"], mail["more"]) == (9_999, False)


async def test_tasks_are_listed_page_by_page(api: ApiClient) -> None:
    for number in range(5):
        await task(api, f"t{number}", queue=f"q{number % 2}")
    await api.good("DELETE", "/api/v1/jobs/t2", 204)
    first = await api.good("GET", "/api/v1/tasks?limit=3")
    rest = await api.good("GET", f"/api/v1/tasks?limit=3&cursor={first['next_cursor']}")
    assert [each["name"] for each in first["items"] + rest["items"]] == ["t0", "t1", "t3", "t4"]
    assert rest["next_cursor"] is None
