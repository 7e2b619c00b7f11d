"""One server, asked over its API, by the command line and from Python."""

from __future__ import annotations

import json
import signal
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from detent.client import JsonClient
from detent.errors import Conflict, NotFound, UsageError
from tests.support.ledger import database_now
from tests.support.processes import Node, Nodes, command_line
from tests.support.sink import Sink, http_target
from tests.support.waiting import until


@pytest.fixture
async def node(cluster: Nodes) -> Node:
    return await cluster.start("serve")


async def detent(node: Node, folder: Path, *arguments: str, code: int = 0) -> str:
    ended, out, err = await command_line(folder, node.url, *arguments)
    assert ended == code, err
    assert "Traceback" not in err
    return out if code == 0 else err


async def ended(client: JsonClient, run: str) -> dict[str, Any]:
    def over() -> Any:
        found = client.get_run(run)
        return found if found["finished_at"] else None

    found: dict[str, Any] = await until(over, 20, "the run to end")
    return found


async def test_a_job_made_over_the_api_lives_a_whole_life(node: Node, sink: Sink) -> None:
    client = node.client
    job = client.create_job(
        {"name": "report", "schedule": {"every": "1h"}, "target": http_target(sink), "payload": {"week": 46}}
    )
    assert client.get_job("report") == client.get_job(job["id"])
    assert [item["name"] for item in client.list_jobs(prefix="rep").page()["items"]] == ["report"]

    run = await ended(client, client.trigger_job("report")["id"])
    assert (run["status"], run["attempt"], run["result"]["body"]) == ("succeeded", 1, "effect 1")
    (call,) = sink.calls
    assert (call.run_id, call.key, call.token, call.attempt) == (
        run["id"],
        run["idempotency_key"],
        run["token"],
        1,
    )
    assert json.loads(call.body) == {"week": 46}
    assert client.list_runs("report").page()["items"][0]["id"] == run["id"]

    assert client.pause_job("report", "holidays")["next_run_at"] is None
    assert client.get_job("report")["paused_reason"] == "holidays"
    assert client.resume_job("report")["next_run_at"] is not None
    client.delete_job("report")
    with pytest.raises(NotFound):
        client.get_job("report")
    assert client.get_run(run["id"])["status"] == "succeeded"


async def test_a_job_made_by_the_command_line_lives_a_whole_life(node: Node, folder: Path, sink: Sink) -> None:
    url = f"{sink.url}/ok"
    made = await detent(node, folder, "job", "create", "nightly", "--cron", "0 3 * * *", "--url", url, "--json")
    assert json.loads(made)["name"] == "nightly"
    run = (await detent(node, folder, "job", "trigger", "nightly", "--quiet")).strip()
    await detent(node, folder, "run", "wait", run, "--timeout", "20s")
    assert json.loads(await detent(node, folder, "run", "get", run, "--json"))["status"] == "succeeded"
    assert run in await detent(node, folder, "run", "list")
    assert run in await detent(node, folder, "job", "history", "nightly")
    assert "nightly" in await detent(node, folder, "job", "list")
    await detent(node, folder, "job", "pause", "nightly")
    assert json.loads(await detent(node, folder, "job", "get", "nightly", "--json"))["status"] == "paused"
    await detent(node, folder, "job", "resume", "nightly")
    await detent(node, folder, "job", "delete", "nightly", "--yes")
    assert "nightly" in await detent(node, folder, "job", "get", "nightly", code=3)
    assert len(sink.calls) == 1


async def test_bad_input_is_refused_by_the_same_sentence_everywhere(node: Node, folder: Path, sink: Sink) -> None:
    document = {"name": "odd", "schedule": "61 * * * *", "target": http_target(sink)}
    with pytest.raises(UsageError) as refused:
        node.client.create_job(document)
    said = await detent(node, folder, "job", "create", "odd", "--cron", "61 * * * *", "--url", f"{sink.url}/ok", code=2)
    assert refused.value.message in said
    assert node.client.list_jobs().page()["items"] == []


async def test_a_one_off_made_on_an_idle_node_starts_at_its_time_and_completes_its_job(
    node: Node, look: Any, sink: Sink
) -> None:
    at = (await database_now(look) + timedelta(seconds=1)).isoformat(timespec="milliseconds")
    node.client.create_job({"name": "soon", "schedule": {"at": at}, "target": http_target(sink)})
    await until(lambda: sink.calls, 20, "the call")
    assert sink.calls[0].scheduled_at == datetime.fromisoformat(at)
    assert sink.calls[0].lateness >= 0
    await until(lambda: node.client.get_job("soon")["status"] == "completed", 20, "the job to be completed")
    (run,) = node.client.list_runs("soon").page()["items"]
    assert (run["status"], run["scheduled_at"]) == ("succeeded", at.replace("+00:00", "000Z"))
    with pytest.raises(Conflict):
        node.client.pause_job("soon")


async def test_a_job_that_fails_twice_succeeds_at_its_third_attempt(node: Node, sink: Sink) -> None:
    target = http_target(sink, "fail/2")
    node.client.create_job(
        {"name": "flaky", "schedule": {"every": "1h"}, "target": target, "max_retries": 3, "retry_base_seconds": 0}
    )
    run = await ended(node.client, node.client.trigger_job("flaky")["id"])
    assert (run["status"], run["attempt"]) == ("succeeded", 3)
    assert [attempt["outcome"] for attempt in run["attempts"]] == ["failed", "failed", "succeeded"]
    assert [call.attempt for call in sink.calls] == [1, 2, 3]
    assert len({call.key for call in sink.calls}) == 1
    assert [call.token for call in sink.calls] == sorted({call.token for call in sink.calls})


async def test_a_run_is_cancelled_while_it_waits_and_while_it_runs(cluster: Nodes, folder: Path, sink: Sink) -> None:
    node = await cluster.start("serve", concurrency="1")
    document = {"schedule": {"every": "1h"}, "target": http_target(sink, "hang"), "concurrent_policy": "ALLOW"}
    node.client.create_job({"name": "long", **document})
    runs = [node.client.trigger_job("long")["id"] for _ in range(4)]
    await until(lambda: sink.calls, what="a run to be called")
    (running,) = [call.run_id for call in sink.calls]
    others = [run for run in runs if run != running]
    await detent(node, folder, "run", "cancel", others[-1], "--yes")
    node.client.cancel_run(running)
    assert (await ended(node.client, running))["status"] == "cancelled"
    assert (await ended(node.client, others[-1]))["status"] == "cancelled"
    sink.release()
    for run in others[:-1]:
        assert (await ended(node.client, run))["status"] == "succeeded"
    assert others[-1] not in sink.by_run()


async def test_a_created_job_is_there_although_the_answer_was_lost(cluster: Nodes, sink: Sink) -> None:
    node = await cluster.start("serve", failpoints="A2=exit")
    document = {"name": "once", "schedule": {"every": "1h"}, "target": http_target(sink)}
    with pytest.raises(Exception, match="No detent server answers"):
        node.client.create_job(document)
    assert await node.ended() == -signal.SIGKILL
    node = await cluster.start("serve")
    assert [job["name"] for job in node.client.list_jobs().page()["items"]] == ["once"]
    node.client.upsert_job(document)
    assert node.client.change == "unchanged"


async def test_the_server_says_how_it_is(node: Node) -> None:
    assert node.client.liveness()["status"] == "ok"
    ready = node.client.readiness()
    assert ready["status"] == "ready"
    assert all(ready["checks"].values())
    assert node.client.version()["api"] == "v1"


async def test_the_demo_shows_life_at_once(cluster: Nodes, folder: Path) -> None:
    node = await cluster.start("serve", "--demo")
    listed = await detent(node, folder, "job", "list", "-q")
    assert len(listed.split()) == 3
    for name in ("demo-greeting", "demo-echo", "demo-flaky"):
        node.client.trigger_job(name)
    runs = [run["id"] for run in node.client.list_runs().page()["items"]]
    for run in runs:
        assert (await ended(node.client, run))["status"] == "succeeded"
    assert "demo-greeting" in await detent(node, folder, "run", "list")
