"""Hooks, dependencies and middleware of an app in a real node, in its own process and in handler processes."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.support.processes import Nodes
from tests.system.test_app import first_result, write

SHOP = """
    import asyncio
    import os
    from contextlib import asynccontextmanager
    from contextvars import ContextVar
    from pathlib import Path

    from detent import Depends, Detent, Run

    HERE = Path(__file__).parent
    tenant = ContextVar("tenant")


    def note(text: str) -> None:
        with (HERE / "notes").open("a") as notes:
            notes.write(f"{os.getpid()} {text}\\n")


    @asynccontextmanager
    async def lifespan(app):
        note("lifespan begins")
        yield
        await asyncio.sleep(0)
        note("lifespan ends")


    app = Detent("shop", lifespan=lifespan)


    @app.on_startup
    async def connect() -> None:
        tenant.set("acme")


    @app.on_shutdown
    def disconnect() -> None:
        note("disconnect")


    @app.middleware
    def timing(run: Run):
        yield
        note(f"after {run.job}")


    async def pool():
        yield {"process": os.getpid()}
        note("pool closed")


    @app.job(every="1s")
    def here(pool: dict = Depends(pool, scope="worker")) -> list:
        return [tenant.get(), pool["process"] == os.getpid()]


    @app.job(every="1s", isolate="process")
    async def apart(pool: dict = Depends(pool, scope="worker")) -> list:
        return [tenant.get(), pool["process"] == os.getpid()]
"""

BROKEN = """
    from detent import Detent

    app = Detent("broken")

    @app.on_startup
    def connect() -> None:
        open_the_database()

    def open_the_database() -> None:
        raise ConnectionError("no route to the database")

    @app.job(every="1h")
    def work() -> None: ...
"""


def notes_by_process(folder: Path) -> list[list[str]]:
    notes: dict[str, list[str]] = {}
    for line in (folder / "shop" / "notes").read_text().splitlines():
        process, _, text = line.partition(" ")
        notes.setdefault(process, []).append(text)
    return list(notes.values())


async def test_hooks_surround_the_runs_of_a_worker_and_of_each_handler_process(cluster: Nodes, folder: Path) -> None:
    write(folder, "shop", SHOP)
    node = await cluster.start("serve", "--app", "shop.jobs:app")
    assert await first_result(node, "here") == ["acme", True]
    assert await first_result(node, "apart") == ["acme", True]
    node.send(signal.SIGTERM)
    assert await node.ended() == 0
    of_processes = notes_by_process(folder)
    assert len(of_processes) >= 2
    for notes in of_processes:
        assert (notes[0], notes[-3:]) == ("lifespan begins", ["pool closed", "disconnect", "lifespan ends"])
        assert set(notes[1:-3]) <= {"after here", "after apart"}


async def test_a_start_up_hook_that_raises_ends_the_worker_with_its_traceback(cluster: Nodes, folder: Path) -> None:
    write(folder, "broken", BROKEN)
    node = cluster.begin("worker", "--app", "broken.jobs:app")
    assert await node.ended() == 1
    said = node.text
    assert "The start-up of the app failed in connect (ConnectionError: no route to the database)" in said
    assert "open_the_database" in said
    cluster.started.remove(node)  # its traceback is expected


async def test_a_process_that_runs_nothing_of_the_app_runs_no_hook(cluster: Nodes, folder: Path) -> None:
    write(folder, "broken", BROKEN)
    node = await cluster.start("scheduler", app="broken.jobs:app")
    node.send(signal.SIGTERM)
    assert await node.ended() == 0
