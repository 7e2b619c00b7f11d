"""`--reload`: code that changes is served by the next process, and no run is lost on the way."""

from __future__ import annotations

import os
import re
import signal
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from detent.client import JsonClient
from detent.domain.states import OPEN
from tests.support.processes import PRESENT, Node, Nodes, is_alive
from tests.support.waiting import until
from tests.system.test_embedded_serve import postmaster

APP = """
    import threading
    from pathlib import Path
    from detent import Detent, Run

    app = Detent("shop")
    HERE = Path(__file__).parent

    @app.task({options})
    def version(run: Run) -> str:
        (HERE / "started").touch()
        while run.payload and not (HERE / run.payload).exists():
            threading.Event().wait(0.01)
        return "{answer}"
"""
CHANGED = "changed. Running jobs finish, then the app starts again."


def write(folder: Path, answer: str, options: str = "") -> None:
    """In one step: half a file would be a change too."""
    made = folder / "new-shop"
    made.write_text(textwrap.dedent(APP).format(answer=answer, options=options))
    made.replace(folder / "shop.py")


async def joined(node: Node, times: int) -> None:
    await until(lambda: len(node.identities) >= times, 60, f"start {times} of {node.name}:\n{node.text}")


async def ended(node: Node, run: str) -> Any:
    def over() -> Any:
        found = node.client.get_run(run)
        return None if found["status"] in OPEN else found

    return await until(over, 60, f"the end of {run}:\n{node.text}")


def enqueued(node: Node, payload: Any = None) -> str:
    return str(node.client.enqueue("version", payload=payload)["items"][0]["id"])


async def answer(node: Node) -> Any:
    return (await ended(node, enqueued(node)))["result"]


async def no_process_of(folder: Path) -> None:
    def left() -> list[str]:
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    where = (entry / "cwd").readlink()
                except OSError:
                    continue
                if "detent" in line and where == folder:
                    found.append(line)
        return found

    await until(lambda: not left(), 45, f"no process of {folder}")


async def test_a_change_is_served_by_the_next_process_and_a_running_handler_finishes(
    cluster: Nodes, folder: Path
) -> None:
    write(folder, "first")
    server = await cluster.start("serve", python=PRESENT)
    worker = await cluster.start("worker", "--app", "shop:app", "--reload", python=PRESENT)
    run = enqueued(server, "finish")
    await until((folder / "started").exists, 30, "the handler to start")
    write(folder, "second")
    await until(lambda: CHANGED in worker.text, 30, "the change to be seen")
    waiting = enqueued(server)
    (folder / "finish").touch()
    assert (await ended(server, run))["result"] == "first"
    assert (await ended(server, waiting))["result"] == "second"
    assert len(worker.identities) == 2
    worker.send(signal.SIGINT)
    assert await worker.ended() == 0


async def test_broken_code_is_shown_and_waits_for_the_next_change(nodes: Nodes, folder: Path) -> None:
    write(folder, "first")
    node = await nodes.start("serve", "--app", "shop:app", "--reload", "--drain-seconds", "5", python=PRESENT)
    server = postmaster(folder / "data")
    assert await answer(node) == "first"
    (folder / "shop.py").write_text("def broken(:\n")
    await until(lambda: "Waiting for the next change." in node.text, 60, "the supervisor to wait")
    assert "SyntaxError: invalid syntax" in node.text and "def broken(:" in node.text
    assert node.process.poll() is None
    write(folder, "second")
    await joined(node, 2)
    urls = await until(lambda: len(found := re.findall(r"listening on (\S+)", node.text)) == 2 and found, 30, "the API")
    node.client.close()
    node._client = JsonClient(urls[-1])
    assert await answer(node) == "second"
    assert postmaster(folder / "data") == server, "PostgreSQL went on"
    node.send(signal.SIGTERM)
    assert await node.ended() == 0
    await until(lambda: not is_alive(server), 20, "PostgreSQL to end with the last process")


async def test_handler_processes_have_the_new_code_too(cluster: Nodes, folder: Path) -> None:
    write(folder, "first", 'isolate="process"')
    server = await cluster.start("serve", python=PRESENT)
    worker = await cluster.start("worker", "--app", "shop:app", "--reload", python=PRESENT)
    assert await answer(server) == "first"
    write(folder, "second", 'isolate="process"')
    await joined(worker, 2)
    assert await answer(server) == "second"
    worker.send(signal.SIGTERM)
    assert await worker.ended() == 0


async def test_a_supervisor_that_is_killed_takes_its_process_with_it(cluster: Nodes, folder: Path) -> None:
    write(folder, "first")
    worker = await cluster.start("worker", "--app", "shop:app", "--reload", python=PRESENT)
    await worker.kill()
    if sys.platform == "linux":
        await no_process_of(folder)


@pytest.mark.parametrize(
    ("arguments", "variables", "sentence"),
    [
        (("--app", "shop:app"), {"production": "true"}, "--reload is for development, and production is on: leave"),
        ((), {}, "--reload starts an app again when its code changes: name the app with --app MODULE:NAME."),
    ],
)
async def test_reload_is_refused_where_it_cannot_or_must_not_work(
    nodes: Nodes, folder: Path, arguments: tuple[str, ...], variables: dict[str, Any], sentence: str
) -> None:
    write(folder, "first")
    node = nodes.begin("worker", "--reload", *arguments, **variables)
    assert await node.ended() == 2
    assert sentence in node.text


async def test_reload_says_what_to_install(nodes: Nodes, folder: Path) -> None:
    write(folder, "first")
    (folder / "watchfiles.py").write_text("raise ImportError('not installed')")
    node = nodes.begin("worker", "--reload", "--app", "shop:app", PYTHONPATH=str(folder))
    assert await node.ended() == 2
    assert "pip install 'detent[reload]'" in node.text
