# ruff: noqa: T201 - a script talks on its standard output
"""A Celery app with its own unchanged workers, and two nodes of detent in place of beat, one after another killed with
-9: `python -m chaos.celery [--broker redis|rabbitmq] [--seconds N] [--kills N]`.

The app's beat_schedule is imported first, and the report is printed line by line. Then jobs send a task every second
while nodes are killed and replaced. Every tick must have one task, by its id, and every task must have been executed. A
node that dies after the broker took a message and before it recorded the run leaves a run that is sent again, with the
same task id: these are counted and reported, because no scheduler can exclude them.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from chaos.harness import Scene, looking_at, perform
from tests.support.celery.judge import figures_of
from tests.support.celery.stage import RabbitMq, Shop, broker, shop
from tests.support.ledger import Watched, check_ledger, create_ticking, none_open, pause_all
from tests.support.processes import Node, command_line
from tests.support.servers import Redis
from tests.support.waiting import until

JOBS = 5
LEASE = "2"


async def script(scene: Scene, kind: str, seconds: float, kills: int) -> None:
    with ExitStack() as stack:
        records = stack.enter_context(broker(Redis))
        url = records.url if kind == "redis" else stack.enter_context(broker(RabbitMq)).url
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="detent-chaos-")))
        running = stack.enter_context(shop(url, records.url, folder, workers=2))
        scene.nodes.variables |= {**running.variables, "DETENT_LEASE_TTL_SECONDS": LEASE}
        await _with_workers(scene, running, seconds, kills)


async def _with_workers(scene: Scene, running: Shop, seconds: float, kills: int) -> None:
    nodes = [await _start(scene) for _ in range(2)]
    await _import(scene, nodes[0], running)
    sent = {"type": "celery", "app": "shop:app", "task": "shop.record", "queue": "shop", "ignore_result": True}
    followed = {"type": "celery", "app": "shop:app", "task": "shop.record", "queue": "shop"}
    targets = [sent if number % 2 else followed for number in range(JOBS)]
    jobs = [create_ticking(nodes[0].client, f"task-{number}", target) for number, target in enumerate(targets)]
    for turn in range(kills):
        before = len(running.executed())
        await until(lambda: len(running.executed()) > before + JOBS, 60, "tasks to be executed")  # noqa: B023
        await asyncio.sleep(seconds / max(kills, 1))
        await nodes[turn % 2].kill()
        nodes[turn % 2] = await _start(scene)
    await _verdict(scene, nodes[0], jobs, running)


async def _start(scene: Scene) -> Node:
    return await scene.nodes.start("serve", "--celery-apps", "shop:app")


async def _import(scene: Scene, node: Node, running: Shop) -> None:
    arguments = ("import", "celery-beat", "--app", "shop:app", "--yes")
    code, out, err = await command_line(scene.nodes.folder, node.url, *arguments, **running.variables)
    print(f"\n$ detent {' '.join(arguments)}\n{out}{err}")
    scene.expect("exit code of the import", code, 0)
    scene.expect("entries that became jobs", out.count("\tjob\t"), 5)
    node.client.pause_job("every-second", reason="the script has jobs of its own")


async def _verdict(scene: Scene, node: Node, jobs: list[Watched], running: Shop) -> None:
    jobs = pause_all(node.client, jobs)
    async with looking_at(scene.data) as look:
        await scene.judge("every run ends after the pause", none_open(look))
        await scene.judge("every tick has one run, none lost", check_ledger(look, jobs, "succeeded", "skipped"))
        scene.note("attempts lost", await look.fetchval("SELECT count(*) FROM attempts WHERE outcome = 'lost'"))
    runs = _succeeded(node, jobs)
    own = {job.name for job in jobs}

    def executed() -> list[dict[str, Any]]:
        return [each for each in running.executed() if each["headers"].get("Detent-Job") in own]

    await until(lambda: len({each["id"] for each in executed()}) >= len(runs), 60, "all tasks to be executed")
    found = figures_of(runs, executed())
    scene.note("ticks that were sent", found.runs)
    scene.expect("tasks, by id", found.tasks, found.runs)
    scene.expect("ticks without a task", len(found.missing), 0)
    scene.expect("tasks without a tick", len(found.unknown), 0)
    scene.expect("ticks with two task ids", len(found.several_tasks), 0)
    scene.note("executions repeated under the same task id", found.repeated)


def _succeeded(node: Node, jobs: list[Watched]) -> set[str]:
    found = set()
    for job in jobs:
        found |= {run["id"] for run in node.client.list_runs(job.name) if run["status"] == "succeeded"}
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else None)
    parser.add_argument("--broker", choices=("redis", "rabbitmq"), default="redis")
    parser.add_argument("--seconds", type=float, default=40.0, help="between the first and the last kill")
    parser.add_argument("--kills", type=int, default=8, help="how many nodes are killed")
    given = parser.parse_args()
    play = partial(script, kind=given.broker, seconds=given.seconds, kills=given.kills)
    return perform(f"Celery without beat, on {given.broker}", play)


if __name__ == "__main__":
    sys.exit(main())
