"""Handlers in separate processes, in a real node: a crash of one affects neither the node nor other handlers."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import Node, Nodes, is_alive
from tests.support.waiting import until
from tests.system.test_app import write

SHOP = """
    import os
    import re
    import threading
    from pathlib import Path

    from detent import Detent, Run

    app = Detent("shop")
    HERE = Path(__file__).parent

    @app.job(every="1s")
    def calm(run: Run) -> int:
        return os.getpid()

    @app.job(every="1h", isolate="process", max_retries=1, retry_base_seconds=0)
    def poison(run: Run) -> None:
        with (HERE / "calls").open("a") as calls:
            calls.write(f"{run.attempt}\\n")
        os._exit(7)

    @app.job(every="1h", isolate="process", max_retries=0, timeout_seconds=5)
    def backtracks() -> None:
        (HERE / "process").write_text(str(os.getpid()))
        re.match(r"(a+)+$", "a" * 60 + "b")

    @app.job(every="1h", isolate="process", delivery="at_most_once", timeout_seconds=60)
    def hangs() -> None:
        (HERE / "process").write_text(str(os.getpid()))
        threading.Event().wait(60)

    @app.job(every="1h", isolate="process")
    async def books(run: Run) -> None:
        async with run.transaction() as connection:
            await connection.execute("INSERT INTO public.bookings (run, process) VALUES ($1, $2)", run.id, os.getpid())

    def note(step: str) -> int:
        with (HERE / "notes").open("a") as notes:
            notes.write(f"{step}\\n")
        return os.getpid()

    @app.job(every="1h", isolate="process", max_retries=1, retry_base_seconds=0)
    async def steps(run: Run) -> list:
        done = [await run.step("one", note, "one")]
        async with run.once("booking") as effect:
            if effect.first:
                await effect.connection.execute(
                    "INSERT INTO public.bookings (run, process) VALUES ($1, $2)", run.id, os.getpid()
                )
        if run.attempt == 1:
            os._exit(7)
        return [*done, effect.first]

    @app.job(every="1h", isolate="process", max_retries=1, retry_base_seconds=0)
    def plain_steps(run: Run) -> list:
        done = [run.step_sync("one", note, "plain one")]
        with run.once("booking") as effect:
            if effect.first:
                effect.connection.execute(
                    "INSERT INTO public.bookings (run, process) VALUES ($1, $2)", run.id, os.getpid()
                )
        if run.attempt == 1:
            os._exit(7)
        return [*done, effect.first]
"""


@pytest.fixture
async def node(cluster: Nodes, folder: Path) -> Node:
    write(folder, "shop", SHOP)
    return await cluster.start("serve", "--app", "shop.jobs:app")


def attempts_of(node: Node, run: str) -> list[tuple[str, str | None]]:
    return [(attempt["outcome"], attempt["error"]) for attempt in node.client.get_run(run)["attempts"]]


async def ended(node: Node, run: str) -> dict[str, Any]:
    def over() -> dict[str, Any] | None:
        found = node.client.get_run(run)
        return found if found["status"] in ("succeeded", "dead", "cancelled") else None

    return dict(await until(over, 60, "the run's end"))


def successes(node: Node) -> int:
    return len(node.client.list_runs("calm", status=["succeeded"]).page(100)["items"])


async def process_of(folder: Path) -> int:
    file = folder / "shop" / "process"
    return int(await until(lambda: file.exists() and file.read_text(), 30, "the handler's process"))


async def test_a_handler_that_ends_its_process_is_one_failed_attempt_each_time(node: Node, folder: Path) -> None:
    run = node.client.trigger_job("poison")["id"]
    assert (await ended(node, run))["status"] == "dead"
    assert attempts_of(node, run) == [("failed", "The handler's process died (exit code 7).")] * 2
    assert (folder / "shop" / "calls").read_text().split() == ["1", "2"]
    before = successes(node)
    await until(lambda: successes(node) > before, 30, "another tick")
    assert len(node.identities) == 1


async def test_a_handler_that_holds_the_interpreters_lock_delays_no_tick_and_is_ended_by_its_timeout(
    node: Node, folder: Path
) -> None:
    run = node.client.trigger_job("backtracks")["id"]
    process = await process_of(folder)
    before = successes(node)
    await until(lambda: successes(node) > before + 1, 30, "ticks of another job")
    assert (await ended(node, run))["status"] == "dead"
    assert attempts_of(node, run) == [("timeout", "No answer within 5 s.")]
    await until(lambda: not is_alive(process))


async def test_a_process_that_is_killed_ends_a_run_that_may_be_called_only_once(node: Node, folder: Path) -> None:
    run = node.client.trigger_job("hangs")["id"]
    os.kill(await process_of(folder), signal.SIGKILL)
    assert (await ended(node, run))["status"] == "dead"
    assert attempts_of(node, run) == [("failed", "The handler's process died (killed by SIGKILL).")]


async def test_a_cancelled_run_ends_its_process(node: Node, folder: Path) -> None:
    run = node.client.trigger_job("hangs")["id"]
    process = await process_of(folder)
    node.client.cancel_run(run)
    assert (await ended(node, run))["status"] == "cancelled"
    await until(lambda: not is_alive(process))


async def test_an_effect_in_another_process_commits_with_its_run(node: Node, look: Any) -> None:
    await look.execute("CREATE TABLE public.bookings (run text PRIMARY KEY, process integer)")
    run = node.client.trigger_job("books")["id"]
    assert (await ended(node, run))["status"] == "succeeded"
    booked = await look.fetchrow("SELECT run, process, xmin::text FROM public.bookings")
    history = await look.fetchval(
        "SELECT xmin::text FROM run_history WHERE run_id(job, scheduled_at, serial)::text = $1", run
    )
    assert (booked["run"], booked["xmin"]) == (run, history)
    assert booked["process"] != node.process.pid
    assert attempts_of(node, run) == [("succeeded", None)]


async def test_a_worker_can_isolate_every_function_and_its_processes_end_with_it(cluster: Nodes, folder: Path) -> None:
    write(folder, "shop", SHOP)
    node = await cluster.start("serve", "--app", "shop.jobs:app", "--isolate", "process", "--handler-processes", "1")
    (run,) = await until(lambda: node.client.list_runs("calm", status=["succeeded"]).page(1)["items"], 30, "a tick")
    process = node.client.get_run(run["id"])["result"]
    assert process != node.process.pid and is_alive(process)
    await node.kill()
    await until(lambda: not is_alive(process), what="its process to end")


async def test_steps_and_effects_of_an_isolated_handler_outlive_its_process(
    node: Node, folder: Path, look: Any
) -> None:
    await look.execute("CREATE TABLE public.bookings (run text, process integer)")
    for job, step in (("steps", "one"), ("plain-steps", "plain one")):
        run = await ended(node, node.client.trigger_job(job)["id"])
        assert [attempt["outcome"] for attempt in run["attempts"]] == ["failed", "succeeded"]
        process, first = run["result"]
        assert not first
        assert not is_alive(process)  # the result is that of the process which died
        assert (folder / "shop" / "notes").read_text().splitlines().count(step) == 1
    assert await look.fetchval("SELECT count(*) FROM public.bookings") == 2
