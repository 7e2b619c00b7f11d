"""A broker between schedulers and workers that is killed, emptied or cut off in the middle of 20,000 runs.

    redis      Redis is emptied with FLUSHALL, killed with -9 and started again without its data, and emptied again
    nats       NATS is killed with -9 and started again, twice
    rabbitmq   RabbitMQ is killed with -9 and started again, twice
    cut        Redis accepts connections for a minute and does not answer, then every connection breaks

Two schedulers, three workers and an API are processes of their own; jobs tick all the time and call a target that
records every call. In the end every run has ended, no key was called twice, and the audit is clean. If workers took no
offers before the faults or after them, or did not miss the broker, that proves nothing, and the script fails.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, NamedTuple

from aiohttp import ClientSession

from chaos.harness import Scene, looking_at, milliseconds, percentile, perform
from tests.support.fleet.checker import SKIPPED, SUCCEEDED
from tests.support.ports import free_port
from tests.support.processes import START_SECONDS, Node
from tests.support.relay import Relay, relay_to
from tests.support.sink import http_target
from tests.support.waiting import until
from tests.topics import debian_brokers  # noqa: F401 - it adds its brokers
from tests.topics.brokers import BROKERS, Broker, running_broker

RUNS = 20_000
JOBS = 200
WORKERS, SCHEDULERS = 3, 2
AWAY_SECONDS, CUT_SECONDS = 5.0, 60.0
# On one of two cores, which everything here shares, a run takes a few milliseconds.
RUN_SECONDS, DRAIN_SECONDS = 900.0, 120.0


class Stage(NamedTuple):
    """What a fault is done to. Only a broker that is cut off is behind the relay."""

    broker: Broker
    relay: Relay


Fault = Callable[[Stage], Awaitable[None]]


async def empty(stage: Stage) -> None:
    broker: Any = stage.broker
    async with broker.client() as client:
        await client.flushall()


async def kill(stage: Stage) -> None:
    stage.broker.kill()
    await asyncio.sleep(AWAY_SECONDS)
    await asyncio.to_thread(stage.broker.start)


async def cut(stage: Stage) -> None:
    stage.relay.answers = False
    await asyncio.sleep(CUT_SECONDS)
    stage.relay.answers = True
    stage.relay.cut()


class Variant(NamedTuple):
    broker: str
    faults: tuple[Fault, ...]
    """Each is done when a further part of the runs has been called."""


VARIANTS = {
    "redis": Variant("redis", (empty, kill, empty)),
    "nats": Variant("nats", (kill, kill)),
    "rabbitmq": Variant("rabbitmq", (kill, kill)),
    "cut": Variant("redis", (cut,)),
}


async def script(scene: Scene, *, name: str, runs: int) -> None:
    variant = VARIANTS[name]
    with running_broker(BROKERS[variant.broker]) as broker:
        async with relay_to(broker.port) as relay:
            port = relay.port if cut in variant.faults else broker.port
            scene.nodes.variables["DETENT_QUEUE"] = broker.url.replace(f":{broker.port}", f":{port}")
            async with cluster(scene) as (api, workers):
                await played(scene, api, workers, Stage(broker, relay), variant.faults, runs)
                await judge(scene, api, runs)


@asynccontextmanager
async def cluster(scene: Scene) -> AsyncIterator[tuple[Node, list[int]]]:
    """The API, and the ports of the workers' metrics."""
    api = await scene.nodes.start("api")
    for _ in range(SCHEDULERS):
        await scene.nodes.start("scheduler")
    ports = [free_port() for _ in range(WORKERS)]
    for port in ports:
        await scene.nodes.start("worker", metrics_port=str(port))
    yield api, ports


async def played(
    scene: Scene, api: Node, workers: list[int], stage: Stage, faults: tuple[Fault, ...], runs: int
) -> None:
    job = {"schedule": "every 1s", "target": http_target(scene.sink), "concurrent_policy": "ALLOW",
           "max_concurrent": 1000, "max_retries": 5}  # fmt: skip
    api.client.create_jobs([{"name": f"job-{number}", **job} for number in range(JOBS)])
    for number, fault in enumerate(faults, 1):
        await called(scene, runs * number // (len(faults) + 1))
        await fault(stage)
    await until(partial(all_up, workers), START_SECONDS, "the workers to use the broker again")
    before = await total(workers, "offers_taken")
    await called(scene, max(runs, len(scene.sink.calls) + 10 * JOBS))
    for number in range(JOBS):
        api.client.pause_job(f"job-{number}")
    async with looking_at(scene.data) as look:
        await until(partial(none_left, look), DRAIN_SECONDS, "the end of all runs")
    taken = await total(workers, "offers_taken")
    scene.note(
        "offers that workers took, before the end of the last fault and after", f"{before:,.0f}, {taken - before:,.0f}"
    )
    scene.expect("... some before, and some after", before > 0 and taken > before, True)
    away = sum(text.count("the broker is away") for _, text in scene.nodes.logs)
    scene.note("processes that missed the broker, times", away)
    scene.expect("... at least once", away > 0, True)


async def all_up(workers: list[int]) -> bool:
    return await total(workers, "transport_up", ending="") == len(workers)


async def called(scene: Scene, runs: int) -> None:
    await until(lambda: len(scene.sink.calls) >= runs, RUN_SECONDS, f"{runs:,} calls")


async def none_left(look: Any) -> bool:
    return not await look.fetchval("SELECT count(*) FROM live_runs")


async def judge(scene: Scene, api: Node, runs: int) -> None:
    async with looking_at(scene.data) as look:
        # Skipped: ticks that were due while their job was being paused.
        rows = await look.fetch(
            "SELECT status, reason, coalesce(attempt, 1) > 1 AS again, count(*) AS runs FROM run_history"
            " WHERE status <> $1 GROUP BY 1, 2, 3", SKIPPED,
        )  # fmt: skip
    ended = sum(row["runs"] for row in rows)
    failed = {f"{row['status']}, {row['reason']}": row["runs"] for row in rows if row["status"] != SUCCEEDED}
    calls = scene.sink.calls
    keys = Counter(call.key for call in calls)
    scene.expect(f"at least {runs:,} runs ended", ended >= runs, True)
    scene.expect("... of them did not succeed", failed, {})
    scene.expect("... of them called", len(keys), ended)
    scene.expect("keys that were called twice", sum(count > 1 for count in keys.values()), 0)
    scene.expect("runs with a second attempt", sum(row["runs"] for row in rows if row["again"]), 0)
    code, said = await scene.nodes.run("audit", "--since", "1h", DETENT_API_URL=api.url)
    scene.expect("exit code of detent audit", code, 0)
    scene.note("audit", said.strip().splitlines()[-1] if said.strip() else "")
    lateness = [call.lateness for call in calls]
    scene.note("start lateness, p50", milliseconds(percentile(lateness, 0.5)))
    scene.note("start lateness, p99", milliseconds(percentile(lateness, 0.99)))
    scene.note("start lateness, latest", milliseconds(max(lateness)))


async def total(workers: list[int], name: str, ending: str = "_total") -> float:
    return sum([await counter(port, f"detent_{name}{ending}") for port in workers])


async def counter(port: int, name: str) -> float:
    async with ClientSession() as session, session.get(f"http://127.0.0.1:{port}/metrics") as answer:
        text = await answer.text()
    return sum(float(value) for value in re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", text, re.MULTILINE))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("variants", nargs="*", metavar="VARIANT", help=", ".join(VARIANTS))
    parser.add_argument("--runs", type=int, default=RUNS, help="runs of each variant (default: %(default)s)")
    given = parser.parse_args()
    unknown = set(given.variants) - set(VARIANTS)
    if unknown:
        parser.error(f"there is no variant {', '.join(sorted(unknown))}: choose from {', '.join(VARIANTS)}")
    chosen = given.variants or list(VARIANTS)
    return max(perform(f"transport: {name}", partial(script, name=name, runs=given.runs)) for name in chosen)


if __name__ == "__main__":
    sys.exit(main())
