"""Retries, dead letters and re-drives over HTTP."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from detent.domain.identity import RunKey, decode_run_id, run_id
from detent.domain.states import CODES, RunStatus
from tests.api.api_client import ApiClient
from tests.support.ends import ended_run
from tests.support.factories import add_live_run, add_node

NODE = 7
AGES = itertools.count(3000, -1)


async def finish(api: ApiClient, sql: Any, status: RunStatus = RunStatus.DEAD) -> None:
    """End whatever waits."""
    if not await sql.fetchval("SELECT count(*) FROM nodes"):
        await add_node(sql, NODE)
    queues = await sql.fetchval("SELECT array_agg(queue) FROM queues")
    claims = await api.store.live_runs.claim(NODE, 1, queues, 100)
    now = await sql.fetchval("SELECT now()")
    done = [ended_run(claim, now, now, CODES[status], outcome="failed", error="status 500") for claim in claims]
    assert await api.store.live_runs.settle(NODE, done) == []


async def dead_run(api: ApiClient, sql: Any, job: str) -> Any:
    run = await api.good("POST", f"/api/v1/jobs/{job}/trigger", 202)
    await finish(api, sql)
    return run


async def dead_tick(api: ApiClient, sql: Any, job: str) -> Any:
    """As `dead_run`, of a tick instead of a trigger."""
    number, queue = await sql.fetchrow("SELECT job, queue FROM jobs JOIN cursors USING (job) WHERE name = $1", job)
    at = (await sql.fetchval("SELECT now()")).replace(microsecond=0) - timedelta(seconds=next(AGES))
    await add_live_run(sql, number, at, queue=queue)
    await finish(api, sql)
    return await api.good("GET", f"/api/v1/runs/{run_id(RunKey(number, at))}")


async def test_a_dead_run_is_run_again_as_a_new_run_of_its_tick(api: ApiClient, sql: Any) -> None:
    await api.create(name="a")
    run = await dead_tick(api, sql, "a")
    answer = await api.ask("POST", f"/api/v1/runs/{run['id']}/retry")
    again = answer.document
    assert (answer.status, answer.headers["Location"]) == (202, f"/api/v1/runs/{again['id']}")
    assert (again["status"], again["scheduled_at"], again["job"]) == ("pending", run["scheduled_at"], "a")
    assert again["id"] != run["id"]
    assert again["idempotency_key"] == f"{run['idempotency_key']}:1"
    assert (await api.good("GET", f"/api/v1/runs/{run['id']}"))["status"] == "dead"
    problem = await api.problem("POST", f"/api/v1/runs/{again['id']}/retry", 409)
    assert "still pending" in problem["detail"]
    problem = await api.problem("POST", f"/api/v1/runs/{run['id']}/retry", 409)
    assert "maximum of unfinished runs" in problem["detail"]


async def test_a_triggered_run_is_run_again_as_a_new_one_that_waits_its_turn(api: ApiClient, sql: Any) -> None:
    await api.create(name="a")
    run = await dead_run(api, sql, "a")
    first, second = [await api.good("POST", f"/api/v1/runs/{run['id']}/retry", 202) for _ in range(2)]
    assert (first["status"], second["status"]) == ("pending", "pending")
    assert len({run["id"], first["id"], second["id"]}) == 3
    assert first["idempotency_key"] == f"{first['job_id']}:{first['id']}"
    assert (await api.good("GET", f"/api/v1/runs/{run['id']}"))["status"] == "dead"


async def test_a_job_runs_its_latest_finished_run_again(api: ApiClient, sql: Any) -> None:
    await api.create(name="a")
    problem = await api.problem("POST", "/api/v1/jobs/a/retry", 409)
    assert "trigger it instead" in problem["detail"]
    run = await dead_tick(api, sql, "a")
    again = await api.good("POST", "/api/v1/jobs/a/retry", 202)
    assert (again["scheduled_at"], again["status"]) == (run["scheduled_at"], "pending")
    await finish(api, sql, RunStatus.SUCCEEDED)
    third = await api.good("POST", "/api/v1/jobs/a/retry", 202)
    assert third["idempotency_key"].endswith(":2")
    await api.problem("POST", "/api/v1/jobs/nobody/retry", 404)
    await api.problem("POST", f"/api/v1/jobs/{uuid4()}/retry", 404)
    await api.problem("POST", f"/api/v1/runs/{uuid4()}/retry", 404)


async def test_dead_letters_are_listed_and_paged(api: ApiClient, sql: Any) -> None:
    for name in ("a", "b"):
        await api.create(name=name)
    runs = [await dead_run(api, sql, name) for name in ("a", "b", "a")]
    first = await api.good("GET", "/api/v1/dead-letters?limit=2")
    second = await api.good("GET", f"/api/v1/dead-letters?limit=2&cursor={first['next_cursor']}")
    assert [run["id"] for run in first["items"] + second["items"]] == [run["id"] for run in runs[::-1]]
    assert second["next_cursor"] is None
    assert {run["status"] for run in first["items"]} == {"dead"}
    assert first["items"][0]["error"] == "status 500"
    only = await api.good("GET", "/api/v1/dead-letters?job=b")
    assert [run["id"] for run in only["items"]] == [runs[1]["id"]]
    await api.problem("GET", "/api/v1/dead-letters?job=nobody", 404)
    problem = await api.problem("GET", f"/api/v1/dead-letters?job=a&cursor={first['next_cursor']}", 422)
    assert problem["pointer"] == "/cursor"


async def test_a_redriven_run_goes_on_as_itself(api: ApiClient, sql: Any) -> None:
    await api.create(name="a")
    run = await dead_run(api, sql, "a")
    answer = await api.good("POST", "/api/v1/dead-letters/redrive", json={"runs": [run["id"]]})
    assert answer == {"redriven": [run["id"]], "left": [], "remaining": 0}
    assert (await api.good("GET", "/api/v1/dead-letters"))["items"] == []
    again = await api.good("GET", f"/api/v1/runs/{run['id']}")
    assert (again["status"], again["idempotency_key"]) == ("pending", run["idempotency_key"])
    assert [attempt["outcome"] for attempt in again["attempts"]] == ["failed"]
    second = await api.good("POST", "/api/v1/dead-letters/redrive", json={"runs": [run["id"]]})
    assert second == {"redriven": [], "left": [{"id": run["id"], "reason": "not dead"}], "remaining": 0}


async def test_all_dead_letters_of_a_job_are_redriven_as_far_as_it_has_room(api: ApiClient, sql: Any) -> None:
    await api.create(name="one")
    await api.create(name="many", concurrent_policy="ALLOW", max_concurrent=5)
    runs = {name: [await dead_tick(api, sql, name) for _ in range(2)] for name in ("one", "many")}
    answer = await api.good("POST", "/api/v1/dead-letters/redrive", json={"all": True, "job": "many"})
    assert sorted(answer["redriven"]) == sorted(run["id"] for run in runs["many"])
    answer = await api.good("POST", "/api/v1/dead-letters/redrive", json={"all": True})
    assert answer["redriven"] == [runs["one"][0]["id"]]
    assert (answer["left"], answer["remaining"]) == ([], 1)
    named = await api.good("POST", "/api/v1/dead-letters/redrive", json={"runs": [runs["one"][1]["id"]] * 2})
    assert named["left"] == [{"id": runs["one"][1]["id"], "reason": "overlap"}]


async def test_what_cannot_be_redriven_is_reported(api: ApiClient, sql: Any) -> None:
    await api.create(name="a")
    run = await dead_run(api, sql, "a")
    key = decode_run_id(UUID(run["id"]))
    assert key is not None
    unknown = [str(uuid4()), str(run_id(key._replace(serial=5))), str(run_id(key._replace(job=10**9)))]
    answer = await api.good("POST", "/api/v1/dead-letters/redrive", json={"runs": unknown})
    assert answer["left"] == [{"id": found, "reason": "not dead"} for found in unknown]
    await api.good("DELETE", "/api/v1/jobs/a", 204)
    answer = await api.good("POST", "/api/v1/dead-letters/redrive", json={"runs": [run["id"]]})
    assert answer["redriven"] == []
    assert (await api.good("POST", "/api/v1/dead-letters/redrive", json={"all": True}))["redriven"] == []


async def test_a_redrive_says_what_it_wants(api: ApiClient) -> None:
    bodies: list[tuple[Any, str]] = [
        ({}, "/runs"),
        ({"all": False}, "/runs"),
        ({"all": True, "runs": [str(uuid4())]}, "/runs"),
        ({"runs": [str(uuid4())], "job": "a"}, "/job"),
        ({"runs": [str(uuid4())], "group": "0" * 12}, "/group"),
        ({"runs": [str(uuid4())], "before": "2026-01-01T00:00:00Z"}, "/before"),
        ({"all": True, "group": "x"}, "/group"),
        ({"all": True, "limit": 0}, "/limit"),
        ({"runs": []}, "/runs"),
        ({"runs": ["x"]}, "/runs/0"),
        ({"runs": [str(uuid4())] * 1001}, "/runs"),
        ({"everything": True}, "/everything"),
    ]
    for body, pointer in bodies:
        for verb in ("redrive", "discard"):
            problem = await api.problem("POST", f"/api/v1/dead-letters/{verb}", 422, json=body)
            assert problem["pointer"] == pointer
    await api.problem("POST", "/api/v1/dead-letters/redrive", 404, json={"all": True, "job": "nobody"})


async def test_dead_letters_are_reported_by_group_and_discarded(api: ApiClient, sql: Any) -> None:
    await api.create(name="a", concurrent_policy="ALLOW")
    runs = [await dead_run(api, sql, "a") for _ in range(3)]
    told = await api.good("GET", "/api/v1/dead-letters/groups?job=a")
    (group,) = told["items"]
    assert (told["runs"], told["more"], group["error"], group["runs"]) == (3, False, "status 500", 3)
    assert group["sample"] == runs[2]["id"]
    page = await api.good("GET", f"/api/v1/dead-letters?group={group['group']}")
    assert len(page["items"]) == 3
    assert (await api.good("GET", "/api/v1/dead-letters?group=000000000000"))["items"] == []
    named = await api.good("POST", "/api/v1/dead-letters/discard", json={"runs": [runs[0]["id"], str(uuid4())]})
    assert (named["discarded"], len(named["left"])) == (1, 1)
    body = {"all": True, "group": group["group"], "before": told["at"], "limit": 1}
    assert await api.good("POST", "/api/v1/dead-letters/discard", json=body) == {
        "discarded": 1,
        "left": [],
        "remaining": 1,
    }
    redriven = await api.good("POST", "/api/v1/dead-letters/redrive", json=body)
    assert redriven == {"redriven": [runs[2]["id"]], "left": [], "remaining": 0}
