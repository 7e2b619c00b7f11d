"""Jobs in code: `detent serve --app module:name` with a package that is written, run, changed and run again."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import textwrap
from pathlib import Path
from typing import Any

import pytest

from detent.errors import Unavailable
from tests.support.processes import Node, Nodes
from tests.support.waiting import until

SHOP = """
    import asyncio
    import threading
    import time

    from detent import Detent, Run

    app = Detent("shop")

    @app.job(every="1s")
    def count_stock(run: Run) -> dict:
        run.log.info("counting")
        return {"thread": threading.current_thread().name, "attempt": run.attempt}

    @app.job(name="greet", every="1s", payload={"name": "Ada"})
    async def greeting(run: Run) -> str:
        await asyncio.sleep(0)
        return f"hello {run.payload['name']}"
"""

TILL = """
    from detent import Detent, Run

    app = Detent("till")

    @app.job(every="1h", max_retries=2, retry_base_seconds=0)
    async def book(run: Run) -> None:
        async with run.transaction() as connection:
            await connection.execute(
                "INSERT INTO public.bookings (run, attempt) VALUES ($1, $2)", run.id, run.attempt
            )
            if run.attempt == 1:
                raise RuntimeError("the till is stuck")
"""

PICTURES = """
    from detent import Detent

    app = Detent("pictures")

    @app.function()
    def resize() -> str:
        return "resized"
"""

RESIZE = {"schedule": "every 1h", "target": {"type": "python", "function": "pictures.jobs:resize"}}


def write(folder: Path, name: str, source: str) -> None:
    (folder / name).mkdir(exist_ok=True)
    (folder / name / "__init__.py").touch()
    (folder / name / "jobs.py").write_text(textwrap.dedent(source))


async def restarted(cluster: Nodes, node: Node, app: str) -> Node:
    node.send(signal.SIGTERM)
    assert await node.ended() == 0
    return await cluster.start("serve", "--app", app)


async def triggered(node: Node, job: str, look: Any) -> str:
    """The id of a new run, although the node may die of it before it answers."""
    with contextlib.suppress(Unavailable):
        node.client.trigger_job(job)
    run = await until(
        lambda: look.fetchval("SELECT run_id(job, scheduled_at, serial)::text FROM runs WHERE serial > 0"), what="a run"
    )
    return str(run)


async def first_result(node: Node, job: str) -> Any:
    def succeeded() -> list[Any]:
        return list(node.client.list_runs(job, status=["succeeded"]).page(1)["items"])

    (run,) = await until(succeeded, 20, f"{job} to succeed")
    return run["result"]


def revisions(node: Node) -> dict[str, int]:
    return {job["name"]: job["revision"] for job in node.client.list_jobs().page()["items"]}


async def test_functions_of_both_kinds_are_registered_at_start_and_run(cluster: Nodes, folder: Path) -> None:
    write(folder, "shop", SHOP)
    node = await cluster.start("serve", "--app", "shop.jobs:app")
    assert revisions(node) == {"count-stock": 1, "greet": 1}
    assert await first_result(node, "greet") == "hello Ada"
    counted = await first_result(node, "count-stock")
    assert counted["attempt"] == 1
    assert counted["thread"] != "MainThread"
    assert node.events("counting")[0]["attempt"] == 1
    job = node.client.get_job("greet")
    assert job["target"] == {"type": "python", "function": "shop.jobs:greeting"}


async def test_a_second_start_changes_only_what_was_changed_in_the_code(cluster: Nodes, folder: Path) -> None:
    write(folder, "shop", SHOP)
    node = await cluster.start("serve", "--app", "shop.jobs:app")
    ids = {job["name"]: job["id"] for job in node.client.list_jobs().page()["items"]}
    node = await restarted(cluster, node, "shop.jobs:app")
    assert revisions(node) == {"count-stock": 1, "greet": 1}
    assert node.events("job registered") == []

    write(folder, "shop", SHOP.replace('name="greet", every="1s"', 'name="greet", every="2s"'))
    node = await restarted(cluster, node, "shop.jobs:app")
    assert revisions(node) == {"count-stock": 1, "greet": 2}
    assert node.client.get_job("greet")["schedule"] == {"every": "2s"}
    assert {job["name"]: job["id"] for job in node.client.list_jobs().page()["items"]} == ids
    assert await first_result(node, "greet") == "hello Ada"


async def test_a_job_that_left_the_code_is_reported_and_kept(cluster: Nodes, folder: Path) -> None:
    write(folder, "shop", SHOP)
    node = await cluster.start("serve", "--app", "shop.jobs:app")
    write(folder, "shop", SHOP.split("    @app.job(name=")[0])
    node = await restarted(cluster, node, "shop.jobs:app")
    (line,) = node.events("jobs no longer in the code; delete them with `detent job delete NAME`")
    assert line["jobs"] == ["greet"]
    assert revisions(node) == {"count-stock": 1, "greet": 1}


async def test_a_worker_without_the_function_leaves_its_runs_to_one_that_has_it(
    cluster: Nodes, folder: Path, look: Any
) -> None:
    write(folder, "shop", SHOP)
    node = await cluster.start("serve", "--app", "shop.jobs:app")
    node.send(signal.SIGTERM)
    assert await node.ended() == 0
    node = await cluster.start("serve")
    run = node.client.trigger_job("greet")["id"]
    assert node.client.get_run(run)["status"] == "pending"
    worker = await cluster.start("worker", "--app", "shop.jobs:app")
    await until(lambda: node.client.get_run(run)["status"] == "succeeded", 20)
    assert node.client.get_run(run)["node"] == worker.identities[0]


async def test_an_effect_and_its_run_commit_together(cluster: Nodes, folder: Path, look: Any) -> None:
    await look.execute("CREATE TABLE public.bookings (run text PRIMARY KEY, attempt integer)")
    write(folder, "till", TILL)
    node = await cluster.start("serve", "--app", "till.jobs:app")
    run = node.client.trigger_job("book")["id"]
    await until(lambda: node.client.get_run(run)["status"] == "succeeded", 20)
    # The first attempt wrote, failed, and took its row back with it.
    assert [tuple(row) for row in await look.fetch("SELECT run, attempt FROM public.bookings")] == [(run, 2)]
    assert node.client.get_run(run)["attempt"] == 2


@pytest.mark.parametrize("step", ["W4=exit", pytest.param("W3=exit", marks=pytest.mark.long)])
async def test_an_effect_in_its_own_transaction_happens_once_even_when_the_node_dies(
    cluster: Nodes, folder: Path, look: Any, step: str
) -> None:
    await look.execute("CREATE TABLE public.bookings (run text PRIMARY KEY, attempt integer)")
    write(folder, "till", TILL.replace("if run.attempt == 1:", "if False:"))
    victim = await cluster.start("serve", "--app", "till.jobs:app", failpoints=step)
    run = await triggered(victim, "book", look)
    assert await victim.ended() == -signal.SIGKILL
    node = await cluster.start("serve", "--app", "till.jobs:app")
    await until(lambda: node.client.get_run(run)["status"] == "succeeded", 20)
    assert [row["run"] for row in await look.fetch("SELECT run FROM public.bookings")] == [run]


POISON = """
    import os
    from detent import Detent, Run

    app = Detent("poison")

    @app.job(every="1h")
    def bitter(run: Run) -> None:
        os.kill(os.getpid(), 9)

    @app.job(every="1s", concurrent_policy="ALLOW")
    def sweet(run: Run) -> str:
        return "fine"
"""


@pytest.mark.long
async def test_a_run_that_kills_its_node_every_time_is_given_up(cluster: Nodes, folder: Path, look: Any) -> None:
    write(folder, "poison", POISON)
    node = await cluster.start("serve", "--app", "poison.jobs:app")
    run = await triggered(node, "bitter", look)
    deaths = 0
    while deaths < 10:
        ended, given_up = asyncio.create_task(node.ended(30)), asyncio.create_task(is_dead(node, run))
        done, others = await asyncio.wait((ended, given_up), return_when=asyncio.FIRST_COMPLETED)
        for task in others:
            task.cancel()
        if given_up in done:
            break
        deaths += 1
        node = await cluster.start("serve", "--app", "poison.jobs:app")
    assert deaths == 4
    found = node.client.get_run(run)
    assert (found["status"], found["reason"]) == ("dead", "lost")
    assert {attempt["outcome"] for attempt in found["attempts"]} == {"lost"}
    assert await first_result(node, "sweet") == "fine"


async def is_dead(node: Node, run: str) -> None:
    def dead() -> bool:
        try:
            return bool(node.client.get_run(run)["status"] == "dead")
        except Unavailable:  # the node is dying
            return False

    await until(dead, 30, "the run to be given up")


async def test_a_job_that_no_worker_serves_says_what_to_start_until_one_does(cluster: Nodes, folder: Path) -> None:
    write(folder, "pictures", PICTURES)
    node = await cluster.start("serve")
    job = node.client.create_job({**RESIZE, "name": "resize"})
    start = "start one with `detent worker --app pictures.jobs:app`."
    assert job["warnings"] == [f"Its runs will wait. No worker has the function 'pictures.jobs:resize': {start}"]
    run = node.client.trigger_job("resize")["id"]
    waiting = node.client.get_run(run)
    assert (waiting["status"], waiting["waiting_for"]) == ("pending", job["warnings"][0].partition("wait. ")[2])
    worker = await cluster.start("worker", "--app", "pictures.jobs:app")
    assert worker.events("serving")[0]["jobs"] == ["pictures.jobs:resize (for jobs that name it)"]
    await until(lambda: node.client.get_run(run)["status"] == "succeeded", 20, "the run to succeed")
    assert "waiting_for" not in node.client.get_run(run)
    assert node.client.upsert_job({**RESIZE, "name": "resize"})["warnings"] == []
