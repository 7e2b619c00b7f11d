"""Increments through `run.once` and jobs of five steps, in nodes that are killed all the time."""

from __future__ import annotations

import asyncio
import random
import signal
import textwrap
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.processes import START_SECONDS, Node, Nodes
from tests.support.waiting import until

COUNTERS = 16
DRAIN_SECONDS = 240.0
STEPS = ("reserve", "charge", "pack", "ship", "mail")
# In a step: its function has been called, and its result is not stored. Behind it: its result is stored.
POINTS = tuple(f"{where} {step}" for step in STEPS for where in ("in", "behind"))

# Each increment is asked for by two runs with the same key. The pause behind the block is where a worker dies after the
# effect was committed and before the run is settled.
APP = f"""
    import asyncio
    import os
    import signal
    from pathlib import Path

    from detent import Detent, Run

    app = Detent("effects")
    HERE = Path(__file__).parent
    STEPS = {STEPS!r}

    @app.task(name="increment", max_retries=20, retry_base_seconds=0, timeout_seconds=60)
    async def increment(run: Run, number: int) -> bool:
        async with run.once(f"increment-{{number}}") as effect:
            if effect.first:
                await effect.connection.execute(
                    "UPDATE public.counters SET value = value + 1 WHERE counter = $1", number % {COUNTERS}
                )
        await asyncio.sleep(0.05)
        return effect.first

    def die_at(point: str, asked: str) -> None:
        if point == asked and not (HERE / f"died {{point}}").exists():
            (HERE / f"died {{point}}").touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def perform(step: str, asked: str) -> str:
        with (HERE / f"calls {{asked}}").open("a") as calls:
            calls.write(step + "\\n")
        die_at(f"in {{step}}", asked)
        return step.upper()

    @app.task(name="order", max_retries=3, retry_base_seconds=0)
    async def order(run: Run, point: str) -> list[str]:
        done = []
        for step in STEPS:
            done.append(await run.step(step, perform, step, point))
            die_at(f"behind {{step}}", point)
        return done
"""


class Increments(NamedTuple):
    """What became of the increments: their sum, how many runs ended, how many nodes were killed, and how many attempts
    were lost with them."""

    total: int
    succeeded: int
    kills: int
    lost: int


async def write_app(folder: Path, look: Any) -> None:
    (folder / "effects_app.py").write_text(textwrap.dedent(APP))
    await look.execute("CREATE TABLE public.counters (counter integer PRIMARY KEY, value integer NOT NULL)")
    await look.execute("INSERT INTO public.counters SELECT n, 0 FROM generate_series(0, $1 - 1) n", COUNTERS)


def begin_node(nodes: Nodes) -> Node:
    return nodes.begin("serve", "--app", "effects_app:app")


async def increment(nodes: Nodes, look: Any, count: int, *, seed: int, kills: int) -> Increments:
    """A node is killed so many times, each time when another part of the runs has left the backlog: then it holds some,
    however fast the machine is."""
    chance = random.Random(seed)
    first = await begin_node(nodes).ready()
    runs = [{"payload": {"number": number}} for number in range(count)] * 2
    chance.shuffle(runs)
    for begin in range(0, len(runs), 1000):
        await asyncio.to_thread(first.client.enqueue_many, "increment", runs[begin : begin + 1000])
    places = [first, begin_node(nodes)]
    for number in range(1, kills + 1):
        left = len(runs) * (kills + 1 - number) // (kills + 1)
        await until(partial(_has_at_most, look, left), DRAIN_SECONDS, f"at most {left} runs to wait")
        await until(lambda: any(node.is_ready for node in places), START_SECONDS, "a node to start")
        place = chance.choice([place for place, node in enumerate(places) if node.is_ready])
        await places[place].kill()
        places[place] = begin_node(nodes)
    await _drained(look, await places[0].ready())
    row = await look.fetchrow(
        "SELECT (SELECT sum(value) FROM public.counters), (SELECT count(*) FROM run_history WHERE status = 1),"
        " (SELECT count(*) FROM attempts WHERE outcome = 'lost')"
    )
    return Increments(row[0], row[1], kills, row[2])


async def _has_at_most(look: Any, left: int) -> bool:
    return bool(await look.fetchval("SELECT count(*) FROM backlog") <= left)


async def _drained(look: Any, node: Node) -> None:
    """Until all runs have succeeded. One that was lost four times is dead, and is retried, as an operator would."""

    async def over() -> bool:
        if await look.fetchval("SELECT count(*) FROM run_history WHERE status = 2"):
            await asyncio.to_thread(node.client.redrive_dead_letters)
            return False
        return not await look.fetchval("SELECT (SELECT count(*) FROM backlog) + (SELECT count(*) FROM live_runs)")

    await until(over, DRAIN_SECONDS, "all runs to end")


async def order(nodes: Nodes, look: Any, points: Sequence[str]) -> list[str]:
    """One run for each point, in which its node dies there; returns what is wrong."""
    node = await begin_node(nodes).ready()
    wrong = []
    for point in points:
        answer = await asyncio.to_thread(node.client.enqueue_many, "order", [{"payload": {"point": point}}])
        if await node.ended() != -signal.SIGKILL:
            wrong.append(f"{point}: the node ended by itself")
        node = await begin_node(nodes).ready()
        run = await _success(node, answer["items"][0]["id"])
        calls = Counter((nodes.folder / f"calls {point}").read_text().split())
        wrong += [f"{point}: {fault}" for fault in _faults(point, calls, run)]
    return wrong


async def _success(node: Node, run: str) -> dict[str, Any]:
    def over() -> dict[str, Any] | None:
        found: dict[str, Any] = node.client.get_run(run)
        return found if found["status"] in ("succeeded", "dead", "cancelled") else None

    return dict(await until(over, 60, "the run's end"))


def _faults(point: str, calls: Counter[str], run: dict[str, Any]) -> list[str]:
    """Only the step in which the node died was called twice: its result was not stored."""
    where, _, died_at = point.partition(" ")
    expected = {step: 2 if (where, step) == ("in", died_at) else 1 for step in STEPS}
    found = [] if calls == expected else [f"calls were {dict(calls)}"]
    if (run["status"], run["result"]) != ("succeeded", [step.upper() for step in STEPS]):
        found.append(f"the run ended {run['status']} with {run['result']}")
    return found
