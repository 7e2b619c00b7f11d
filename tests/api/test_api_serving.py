"""Jobs and runs that no worker serves say so: when they are created, and while they wait."""

from __future__ import annotations

from typing import Any

import pytest

from detent.domain.identity import RunKey, run_id
from tests.api.api_client import ApiClient
from tests.support.factories import LONG_AGO, add_live_run, add_node

PYTHON = {"type": "python", "function": "images:resize"}
SHELL = {"type": "shell", "command": "true"}


async def add_worker(sql: Any, node: int, queues: list[str] | None, capabilities: list[str] | None) -> None:
    await add_node(sql, node)
    change = "UPDATE nodes SET roles = '{worker}', queues = $2, capabilities = $3 WHERE node = $1"
    await sql.execute(change, node, queues, capabilities)


async def warnings(api: ApiClient, name: str = "j", **fields: Any) -> list[str]:
    job = await api.create(name=name, **fields)
    return [text.removeprefix("Its runs will wait. ") for text in job["warnings"]]


async def waiting(api: ApiClient, sql: Any, kind: str = "on demand") -> str:
    """The id of a run of the job `j` that is ready."""
    if kind == "on demand":
        return str((await api.good("POST", "/api/v1/jobs/j/trigger", 202))["id"])
    job = await sql.fetchval("SELECT job FROM jobs WHERE name = 'j'")
    queue = await sql.fetchval("SELECT queue FROM cursors WHERE job = $1", job)
    await add_live_run(sql, job, LONG_AGO, queue=queue)
    return str(run_id(RunKey(job, LONG_AGO)))


async def waits_for(api: ApiClient, run: str) -> Any:
    return (await api.good("GET", f"/api/v1/runs/{run}")).get("waiting_for")


async def test_a_function_that_no_worker_has_is_reported_at_creation_and_while_runs_wait(
    api: ApiClient, sql: Any
) -> None:
    await add_worker(sql, 7, ["default"], ["python:images:rotate", "process:images:rotate"])
    sentence = (
        "No worker has the function 'images:resize' (did you mean 'images:rotate'?): start one with "
        "`detent worker --app images:app`."
    )
    assert await warnings(api, target=PYTHON) == [sentence]
    assert await waits_for(api, await waiting(api, sql)) == sentence


@pytest.mark.parametrize("kind", ["tick", "on demand"])
async def test_what_a_run_waits_for_is_the_same_for_ticks_and_on_demand_runs(
    api: ApiClient, sql: Any, kind: str
) -> None:
    await add_worker(sql, 7, ["default"], [])
    missing = "No worker serves the queue 'slow': start one with `detent worker --queue slow`."
    assert await warnings(api, queue="slow") == [missing]
    run = await waiting(api, sql, kind)
    assert await waits_for(api, run) == missing
    await sql.execute("INSERT INTO limits (tenant, queue, max_concurrent) VALUES (1, 'slow', 0)")
    assert "limit of 0 stops the queue 'slow'" in await waits_for(api, run)
    await sql.execute("UPDATE cluster SET held_at = now(), held_by = 'me', held_reason = 'test'")
    assert "cluster is paused" in await waits_for(api, run)
    await sql.execute("UPDATE cluster SET held_at = NULL, held_by = NULL, held_reason = NULL")
    await sql.execute("DELETE FROM limits")
    await sql.execute("UPDATE nodes SET queues = '{slow}'")
    assert "worker that serves the queue 'slow'" in await waits_for(api, run)


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ("lane = -1", "It waits for the previous run of its job to end."),
        ("not_before = now() + interval '1 hour', attempt = 2", "Its next attempt, number 2, may start in "),
    ],
)
async def test_a_tick_may_wait_for_something_else_than_a_worker(
    api: ApiClient, sql: Any, columns: str, sentence: str
) -> None:
    await api.create(name="j")
    run = await waiting(api, sql, "tick")
    await sql.execute(f"UPDATE live_runs SET {columns}")
    assert (await waits_for(api, run)).startswith(sentence)


async def test_a_run_that_a_worker_serves_waits_for_no_other(api: ApiClient, sql: Any) -> None:
    await add_worker(sql, 7, ["default"], ["python:images:resize"])
    assert await warnings(api, target=PYTHON) == []
    assert "No worker" not in await waits_for(api, await waiting(api, sql))


async def test_an_isolated_function_needs_a_worker_that_has_processes(api: ApiClient, sql: Any) -> None:
    await add_worker(sql, 7, ["default"], ["python:images:resize"])
    (warning,) = await warnings(api, target={**PYTHON, "isolate": "process"})
    assert warning.startswith("No worker has the function 'images:resize'")


async def test_commands_need_a_worker_that_runs_those_of_the_tenant(api: ApiClient, sql: Any) -> None:
    await add_worker(sql, 7, ["default"], ["shell@2"])
    (warning,) = await warnings(api, target=SHELL)
    assert warning == (
        "No worker runs the commands of this tenant: start one with `detent worker --allow-shell default`."
    )
    await add_worker(sql, 8, ["default"], ["shell@1"])
    assert await warnings(api, "other", target=SHELL) == []


@pytest.mark.parametrize("change", ["evicted = true", "draining = true", "expires_at = now() - interval '1 second'"])
async def test_a_worker_that_takes_no_runs_serves_nothing(api: ApiClient, sql: Any, change: str) -> None:
    await add_worker(sql, 7, ["default"], ["python:images:resize"])
    await sql.execute(f"UPDATE nodes SET {change}")
    (warning,) = await warnings(api, target=PYTHON)
    assert warning.startswith("No worker is running, and the function 'images:resize' needs one that has it")


async def test_workers_of_an_older_release_and_pull_workers_may_serve_anything(api: ApiClient, sql: Any) -> None:
    await add_worker(sql, 7, None, None)
    assert await warnings(api, "older", target=PYTHON) == []
    await sql.execute("DELETE FROM nodes")
    await sql.execute("INSERT INTO pull_workers (tenant, name) VALUES (1, 'rust')")
    assert await warnings(api, "pulled", target=PYTHON) == []
    await sql.execute("UPDATE pull_workers SET seen_at = now() - interval '2 minutes'")
    assert len(await warnings(api, "gone", target=PYTHON)) == 1


async def test_before_the_first_worker_starts_a_plain_job_has_no_warning(api: ApiClient, sql: Any) -> None:
    assert await warnings(api) == []
    sentence = "No worker is running: start one with `detent worker`."
    assert await waits_for(api, await waiting(api, sql)) == sentence


async def test_a_change_and_an_upsert_warn_too(api: ApiClient, sql: Any) -> None:
    await add_worker(sql, 7, ["default"], [])
    job = await api.create(name="j")
    assert job["warnings"] == []
    changed = await api.good("PATCH", "/api/v1/jobs/j", 200, json={"queue": "slow"})
    assert "No worker serves the queue 'slow'" in changed["warnings"][0]
    document = {"schedule": "every 1h", "target": PYTHON}
    put = await api.good("PUT", "/api/v1/jobs/by-name/j", 200, json=document)
    assert "No worker has the function" in put["warnings"][0]
    assert (await api.good("GET", "/api/v1/jobs/j"))["warnings"] == []


async def test_a_batch_warns_about_what_it_creates_and_changes(api: ApiClient, sql: Any) -> None:
    await add_worker(sql, 7, ["default"], [])
    plain = {"schedule": "every 1h", "target": {"type": "http", "url": "http://127.0.0.1:9/"}}
    jobs = [plain | {"name": "a"}, plain | {"name": "b", "queue": "slow"}, plain | {"name": "c", "target": PYTHON}]

    async def warned(mode: str, *changes: dict[str, Any]) -> dict[str, list[str]]:
        body = [one | (changes[place] if place < len(changes) else {}) for place, one in enumerate(jobs)]
        answer = await api.good("POST", f"/api/v1/jobs/batch?mode={mode}", json=body)
        return {item["name"]: item.get("warnings", []) for item in answer["items"]}

    slow = "Its runs will wait. No worker serves the queue 'slow': start one with `detent worker --queue slow`."
    first = await warned("create")
    assert (first["a"], first["b"]) == ([], [slow])
    assert "No worker has the function 'images:resize'" in first["c"][0]
    assert await warned("upsert") == {"a": [], "b": [], "c": []}, "nothing was changed"
    assert await warned("upsert", {"queue": "slow"}) == {"a": [slow], "b": [], "c": []}
    await api.good("POST", "/api/v1/jobs/b/pause", json={})
    assert await warned("upsert", {"queue": "slow"}, {"priority": 7}) == {"a": [], "b": [], "c": []}, "it is paused"
    assert slow in (await warned("upsert", {"queue": "slow", "priority": 7}))["a"]


async def test_a_batch_of_many_unknown_functions_has_hints_for_a_few(api: ApiClient, sql: Any) -> None:
    """To look for similar names takes long, and a request has a time in which its transaction may be idle."""
    await add_worker(sql, 7, ["default"], ["python:images:resize_it"])
    jobs = [
        {"name": f"j{number}", "schedule": "every 1h", "target": {**PYTHON, "function": f"images:resize_{number}"}}
        for number in range(10)
    ]
    answer = await api.good("POST", "/api/v1/jobs/batch", json=jobs)
    warnings = [item["warnings"][0] for item in answer["items"]]
    assert all("No worker has the function 'images:resize_" in warning for warning in warnings)
    assert sum("did you mean 'images:resize_it'?" in warning for warning in warnings) == 3


async def test_a_run_that_was_claimed_waits_for_nothing(api: ApiClient, sql: Any) -> None:
    await api.create(name="j")
    run = await waiting(api, sql, "tick")
    await sql.execute("UPDATE live_runs SET owner = $1", await add_node(sql, 7))
    assert await waits_for(api, run) is None


async def explained(api: ApiClient, run: str) -> list[str]:
    sentences: list[str] = (await api.good("GET", f"/api/v1/runs/{run}/explain"))["sentences"]
    return sentences


@pytest.mark.parametrize("kind", ["tick", "on demand"])
async def test_the_explanation_of_a_run_ends_with_what_it_waits_for(api: ApiClient, sql: Any, kind: str) -> None:
    await add_worker(sql, 7, ["default"], [])
    await api.create(name="j", queue="slow")
    run = await waiting(api, sql, kind)
    sentences = await explained(api, run)
    assert sentences[-1] == "No worker serves the queue 'slow': start one with `detent worker --queue slow`."
    assert len(set(sentences)) == len(sentences)


@pytest.mark.parametrize("kind", ["tick", "on demand"])
async def test_a_run_that_waits_for_the_limit_of_its_host_says_so(api: ApiClient, sql: Any, kind: str) -> None:
    await add_worker(sql, 7, ["default"], [])
    await api.create(name="j", target={"type": "http", "url": "http://127.0.0.1:9/a?b", "host_concurrency": 2})
    run = await waiting(api, sql, kind)
    await sql.execute("UPDATE live_runs SET not_before = now() + interval '1 hour'")
    sentence = "It waits for its host: a worker makes at most 2 calls to 127.0.0.1:9 at the same time"
    assert (await waits_for(api, run)).startswith(sentence)
    assert (await explained(api, run))[-1].startswith(sentence)
    await sql.execute("UPDATE live_runs SET attempt = 2")
    assert "number 2" in await waits_for(api, run)
