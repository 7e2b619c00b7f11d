"""Failures that can be read, and output that can be followed: a real node, and commands in other processes."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import Node, Nodes, command_line, environment
from tests.support.waiting import until
from tests.system.test_app import write
from tests.system.test_isolation import ended

SHOP = """
    import logging
    import sys
    import threading
    from pathlib import Path

    from detent import Detent, Run

    app = Detent("shop")
    log = logging.getLogger("shop.orders")
    HERE = Path(__file__).parent

    def read_order(order):
        return {"known": 1}[order]

    def load(order):
        try:
            return read_order(order)
        except KeyError as error:
            error.add_note("the order is not in the book")
            raise ValueError("no such order") from error

    @app.job(every="1h", max_retries=1, retry_base_seconds=0)
    def failing(run: Run) -> None:
        log.info("loading")
        load("missing")

    @app.job(every="1h", max_retries=0, isolate="process")
    def failing_apart(run: Run) -> None:
        log.info("loading")
        print("on its own")
        run.progress(0.5, "half")
        load("missing")

    @app.job(every="1h")
    def waiting(run: Run) -> str:
        log.info("before")
        print("printed")
        print("to stderr", file=sys.stderr)
        run.progress(0.4, "importing")
        while not (HERE / "go").exists():
            threading.Event().wait(0.05)
        run.log.warning("after")
        return "done"

    @app.job(every="1h")
    def flooding(run: Run) -> int:
        for number in range(20_000):
            log.info("line %d", number)
        return number

    @app.job(every="1h")
    def quiet(run: Run) -> None:
        log.debug("not kept")
"""


@pytest.fixture
async def node(cluster: Nodes, folder: Path) -> Node:
    write(folder, "shop", SHOP)
    return await cluster.start("serve", "--app", "shop.jobs:app")


def logs(node: Node, run: str, **options: Any) -> list[dict[str, Any]]:
    return list(node.client.list_run_logs(run, **options))


async def test_the_traceback_of_three_levels_is_in_the_run_the_log_the_api_and_the_command_line(
    node: Node, folder: Path
) -> None:
    run = node.client.trigger_job("failing")["id"]
    done = await ended(node, run)
    assert done["status"] == "dead"
    for attempt in done["attempts"]:
        cause, error = (attempt["traceback"].index(text) for text in ("KeyError: 'missing'", "ValueError: no such"))
        assert cause < error
        for part in ("in failing", "in load", "in read_order", "the order is not in the book", "direct cause"):
            assert part in attempt["traceback"]
        assert "targets/python.py" not in attempt["traceback"]
    (line,) = node.events("run dead")
    assert line["job"] == "failing"
    assert line["exception"] == done["attempts"][1]["traceback"]
    (retried,) = node.events("attempt failed, retry follows")
    assert "in read_order" in retried["exception"]
    assert "traceback" not in node.client.list_runs("failing").page(1)["items"][0]["attempts"][0], "too long for lists"
    code, out, _ = await command_line(folder, node.url, "run", "get", run, "--json")
    assert (code, json.loads(out)["attempts"]) == (0, done["attempts"])


async def test_a_handler_in_its_own_process_has_traceback_lines_and_progress_too(node: Node) -> None:
    run = node.client.trigger_job("failing-apart")["id"]
    done = await ended(node, run)
    assert "in read_order" in done["attempts"][0]["traceback"]
    assert "handler_process" not in done["attempts"][0]["traceback"]
    lines = await until(lambda: logs(node, run), 20, "its lines")
    assert [(line["logger"], line["message"]) for line in lines] == [
        ("shop.orders", "loading"),
        ("stdout", "on its own"),
    ]


async def test_the_output_of_a_run_is_followed_from_another_process_until_its_end(node: Node, folder: Path) -> None:
    run = node.client.trigger_job("waiting")["id"]
    follower = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "detent", "run", "logs", run, "--follow", "--json"),
        cwd=folder,
        env=environment(folder, DETENT_API_URL=node.url),
        stdout=asyncio.subprocess.PIPE,
    )
    assert follower.stdout is not None
    seen: list[dict[str, Any]] = []
    async with asyncio.timeout(60):
        while not {"stderr", "progress"} <= {event.get("logger", event["event"]) for event in seen}:
            seen.append(json.loads(await follower.stdout.readline()))
        assert node.client.get_run(run)["status"] == "running", "these came while it runs"
        assert node.client.get_run(run)["progress"]["message"] == "importing"
        (folder / "shop" / "go").touch()
        seen += [json.loads(line) async for line in follower.stdout]
        assert await follower.wait() == 0
    lines = [(event["logger"], event["level"], event["message"]) for event in seen if event["event"] == "line"]
    assert lines == [
        ("shop.orders", "info", "before"),
        ("stdout", "info", "printed"),
        ("stderr", "info", "to stderr"),
        ("detent.run.waiting", "warning", "after"),
    ]
    assert seen[-1] == {"event": "end", "status": "succeeded"}
    assert node.client.get_run(run)["progress"] is None
    (line,) = node.events("before")
    assert (line["job"], line["run_id"], line["level"]) == ("waiting", run, "info"), "also in the log of the node"


async def test_of_a_flood_the_first_and_last_lines_are_kept_and_the_others_counted(node: Node, folder: Path) -> None:
    run = node.client.trigger_job("flooding")["id"]
    assert (await ended(node, run))["result"] == 19_999

    def last() -> list[dict[str, Any]]:
        found = logs(node, run)
        return found if found and found[-1]["number"] == 20_000 else []

    lines = await until(last, 20, "its last lines")
    assert [line["number"] for line in lines] == [*range(1, 501), *range(19_501, 20_001)]
    assert lines[-1]["message"] == "line 19999"
    first = [line for line in node.text.splitlines() if '"event": "line ' in line]
    assert len(first) == 500, "the log of the node has the first ones"
    (note,) = node.events("lines of this attempt are not in this log")
    assert (note["lines"], note["run_id"]) == (19_500, run)
    _, out, err = await command_line(folder, node.url, "run", "logs", run)
    assert (len(out.splitlines()), "… 19,000 lines left out" in err) == (1_000, True)


async def test_who_follows_a_run_reads_how_it_ended(node: Node, folder: Path) -> None:
    for job, end in (
        ("quiet", "The run succeeded."),
        ("failing", "The run is dead: `detent run get {run}` shows why."),
    ):
        run = node.client.trigger_job(job)["id"]
        code, _, err = await command_line(folder, node.url, "run", "logs", run, "--follow")
        assert (code, err.splitlines()[-1]) == (0, end.format(run=run))
        _, _, err = await command_line(folder, node.url, "run", "logs", run, "--follow", "--quiet")
        assert err == ""


async def test_lines_of_one_attempt_are_listed_alone(node: Node) -> None:
    run = node.client.trigger_job("failing")["id"]
    await ended(node, run)
    lines = await until(lambda: logs(node, run, attempt=2), 20, "its lines")
    assert [(line["attempt"], line["message"]) for line in lines] == [(2, "loading")]


async def test_a_run_without_lines_writes_no_rows(node: Node, look: Any) -> None:
    run = node.client.trigger_job("quiet")["id"]
    await ended(node, run)
    marked = node.client.trigger_job("failing")["id"]
    await until(lambda: logs(node, marked), 20, "lines of a later run")
    assert logs(node, run) == []
    assert await look.fetchval("SELECT count(DISTINCT job) FROM run_logs") == 1
