"""The worker in JavaScript against a real server: a thousand runs, retries, a cancel, a late word, an orderly stop."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from detent.client import Client, JsonClient
from detent.domain.job import JobSpec, PythonTarget
from detent.errors import DetentError
from detent.jobs import JobOperations
from detent.store import Store
from tests.support.waiting import until

WORKER = Path(__file__).parents[2] / "examples" / "javascript" / "worker.mjs"
RUNS = 1000

StartWorker = Callable[..., subprocess.Popen[bytes]]


def node() -> str:
    found = shutil.which("node")
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail("node is not installed, and CI must run the worker in JavaScript")
        pytest.skip("node is not installed: the worker in JavaScript was not run")
    return found


@pytest.fixture
def start_worker(server_url: str, tmp_path: Path) -> Iterator[StartWorker]:
    workers: list[subprocess.Popen[bytes]] = []

    def start(**variables: str) -> subprocess.Popen[bytes]:
        environ = {"PATH": os.environ["PATH"], "DETENT_API_URL": server_url, "LEASE_SECONDS": "3", **variables}
        with (tmp_path / "worker.log").open("ab") as log:
            workers.append(subprocess.Popen([node(), str(WORKER)], env=environ, stdout=log, stderr=log))
        return workers[-1]

    yield start
    for worker in workers:
        worker.kill()
        worker.wait()


def job(function: str, name: str, **fields: Any) -> JobSpec:
    fields = {"schedule": "every 1d", "queue": "javascript", "max_retries": 0, **fields}
    return JobSpec(name=name, target=PythonTarget(function=function), **fields)


async def ended(client: JsonClient, run_id: str) -> Any:
    async def over() -> Any:
        run = client.get_run(run_id)
        return run if run["finished_at"] is not None else None

    return await until(over, 60, "the run's end")


async def test_it_completes_a_thousand_runs_each_once_and_each_with_its_own_result(
    store: Store, look: Any, start_worker: StartWorker
) -> None:
    at = await look.fetchval("SELECT date_trunc('second', now() + interval '2 s')")
    once = {"at": at.isoformat()}
    specs = [job("add", f"add-{n}", schedule=once, payload={"a": n, "b": 1}) for n in range(RUNS)]
    await JobOperations(store).registration.add(specs)
    start_worker()
    count = "SELECT count(*) FROM run_history WHERE status = 1"
    await until(lambda: is_equal(look, count, RUNS), 90, "a thousand runs")
    rows = await look.fetch(
        "SELECT j.definition->'payload'->>'a' AS a, h.result, h.attempt, h.node, h.scheduled_at"
        " FROM run_history h JOIN jobs j USING (job)"
    )
    assert sorted((int(row["a"]), int(row["result"])) for row in rows) == [(n, n + 1) for n in range(RUNS)]
    assert {(row["attempt"], row["scheduled_at"]) for row in rows} == {(1, at)}
    assert all(row["node"] < 0 for row in rows)
    assert await look.fetchval("SELECT count(*) FROM attempts") == 0
    assert await look.fetchval("SELECT (SELECT count(*) FROM live_runs) + (SELECT count(*) FROM pull_leases)") == 0


async def is_equal(look: Any, query: str, expected: int) -> bool:
    return bool(await look.fetchval(query) == expected)


async def test_a_late_completion_under_an_old_token_is_refused_and_kept_as_stale(
    store: Store, server_url: str, start_worker: StartWorker
) -> None:
    await JobOperations(store).registration.add([job("add", "late", payload={"a": 1, "b": 2})])
    with JsonClient(server_url) as client, Client(server_url) as typed:
        run = client.trigger_job("late")
        (slow,) = typed.claim_runs("javascript", "too-slow", lease_seconds=1)
        start_worker()
        done = await ended(client, run["id"])
        assert (done["status"], done["result"]) == ("succeeded", 3)
        assert done["token"] > slow.token
        with pytest.raises(DetentError, match="no longer held under this token"):
            typed.complete_run(slow, "late")
        after = client.get_run(run["id"])
    assert (after["status"], after["result"], after["token"]) == ("succeeded", 3, done["token"])
    stale = [attempt for attempt in after["attempts"] if attempt["outcome"] == "stale"]
    assert [(attempt["token"], attempt["node"]) for attempt in stale] == [(slow.token, "pull:too-slow")]


async def test_what_it_throws_is_tried_again_as_the_job_says(
    store: Store, server_url: str, start_worker: StartWorker
) -> None:
    await JobOperations(store).registration.add([job("fail", "failing", max_retries=2, retry_base_seconds=0)])
    start_worker()
    with JsonClient(server_url) as client:
        done = await ended(client, client.trigger_job("failing")["id"])
    assert (done["status"], done["attempt"]) == ("dead", 3)
    errors = [attempt["error"] for attempt in done["attempts"]]
    assert errors == [f"Error: attempt {number} fails on purpose" for number in (1, 2, 3)]


async def test_a_long_run_is_kept_by_heartbeats_and_stops_when_it_is_cancelled(
    store: Store, look: Any, server_url: str, start_worker: StartWorker
) -> None:
    await JobOperations(store).registration.add([job("sleep", "long", payload={"milliseconds": 600_000})])
    start_worker()
    with JsonClient(server_url) as client:
        run = client.trigger_job("long")
        await until(lambda: look.fetchval("SELECT count(*) > 0 FROM pull_leases"), 30)
        beaten = "SELECT lease_until > claimed_at + $1::interval FROM pull_leases"
        await until(lambda: look.fetchval(beaten, timedelta(seconds=6)), 30, "heartbeats")
        assert client.cancel_run(run["id"])["reason"] == "cancelling"
        done = await ended(client, run["id"])
    assert (done["status"], done["attempts"][0]["error"]) == ("cancelled", "Error: stopped")


async def test_when_stopped_it_finishes_what_it_has_and_claims_nothing_more(
    store: Store, look: Any, server_url: str, start_worker: StartWorker
) -> None:
    await JobOperations(store).registration.add(
        [job("sleep", "first", payload={"milliseconds": 1500}), job("add", "second", payload={"a": 1, "b": 1})]
    )
    worker = start_worker()
    with JsonClient(server_url) as client:
        run = client.trigger_job("first")
        await until(lambda: look.fetchval("SELECT count(*) > 0 FROM pull_leases"), 30)
        worker.send_signal(signal.SIGTERM)
        await until(lambda: worker.poll() is not None, 30, "the worker to end")
        assert worker.returncode == 0
        assert client.get_run(run["id"])["status"] == "succeeded"
        waiting = client.trigger_job("second")
        assert client.get_run(waiting["id"])["status"] == "pending"
    assert msgspec.json.decode(await look.fetchval("SELECT result FROM run_history")) == "slept"
