"""A tenant that floods one node, beside a quiet one with jobs every second: how late do the quiet tenant's calls start?

    flood   20,000 calls of the noisy tenant wait in its queue, and their target answers at once
    hang    150 calls of the noisy tenant hang until the end
    ticks   20,000 cron jobs of the noisy tenant are due at the same moment, every twenty seconds

The node, the target of the flood, and this script, which the quiet tenant's jobs call, are processes of their own.
Lateness is from the tick to the call's arrival. It counts while the flood lasts.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from chaos.harness import Scene, looking_at, milliseconds, percentile, perform
from detent.client import JsonClient
from tests.support.processes import Node
from tests.support.sink import Received, http_target
from tests.support.tenants import add_ready
from tests.support.waiting import until

LATEST = 1.0
SLOTS = 100
SHARE_OF_ONE = 80  # the last fifth of the slots is for tenants below their fair share
QUIET_JOBS = 20
FLOOD, FLOOD_JOBS = 20_000, 1_000
HANGING = 150
HERD, HERD_SECONDS = 20_000, 20
BATCH = 1_000
FLOOD_SECONDS = 60.0
HANG_SECONDS = 20.0
HERD_WATCHED_SECONDS = 2.0 * HERD_SECONDS


class Stage(NamedTuple):
    """One node with two tenants. `flood_url` answers every call at once."""

    scene: Scene
    look: Any
    noisy: JsonClient
    quiet: JsonClient
    flood_url: str


class Watched(NamedTuple):
    """How long the flood was watched, and how many of its runs ended meanwhile."""

    began: datetime
    ended: datetime
    runs: int


# --- what the noisy tenant does ---


async def flood(stage: Stage) -> Watched:
    add_noisy_jobs(stage, FLOOD_JOBS, {"type": "http", "url": stage.flood_url})
    await add_quiet_jobs(stage)
    await queue_runs(stage, FLOOD // FLOOD_JOBS)
    return await watch(stage, FLOOD, FLOOD_SECONDS)


async def hang(stage: Stage) -> Watched:
    add_noisy_jobs(stage, HANGING, http_target(stage.scene.sink, "hang"), timeout_seconds=300)
    await add_quiet_jobs(stage)
    await queue_runs(stage, 1)
    await until(lambda: len(calls_of(stage, "noisy")) >= SHARE_OF_ONE, 30, "the calls that hang")
    watched = await watch(stage, HANGING, HANG_SECONDS)
    stage.scene.expect(f"calls that hang, on {SLOTS} slots", len(calls_of(stage, "noisy")), SHARE_OF_ONE)
    stage.scene.sink.release()
    return watched


async def ticks(stage: Stage) -> Watched:
    await add_quiet_jobs(stage)
    target = {"type": "http", "url": stage.flood_url}
    add_noisy_jobs(stage, HERD, target, schedule=f"*/{HERD_SECONDS} * * * * *")
    return await watch(stage, sys.maxsize, HERD_WATCHED_SECONDS)


FLOODS: dict[str, Callable[[Stage], Awaitable[Watched]]] = {"flood": flood, "hang": hang, "ticks": ticks}


def add_noisy_jobs(stage: Stage, count: int, target: dict[str, Any], **fields: Any) -> None:
    shared = {"schedule": "every 1h", "target": target, **fields}
    jobs = [{"name": f"noisy-{number}", **shared} for number in range(count)]
    for first in range(0, count, BATCH):
        stage.noisy.create_jobs(jobs[first : first + BATCH])


async def add_quiet_jobs(stage: Stage) -> None:
    shared = {"schedule": "every 1s", "target": http_target(stage.scene.sink)}
    stage.quiet.create_jobs([{"name": f"quiet-{number}", **shared} for number in range(QUIET_JOBS)])
    await until(
        lambda: len({call.job for call in calls_of(stage, "quiet")}) == QUIET_JOBS, 30, "the quiet tenant's jobs"
    )


async def queue_runs(stage: Stage, each: int) -> None:
    """So many runs of every job of the noisy tenant, ready at once."""
    jobs = await stage.look.fetch(
        "SELECT c.job, c.queue FROM cursors c JOIN jobs j USING (job) JOIN tenants t USING (tenant)"
        " WHERE t.name = 'noisy'"
    )
    async with stage.look.transaction():
        for job in jobs:
            await add_ready(stage.look, job["job"], job["queue"], each)
        await stage.look.execute("SELECT pg_notify('detent_runs', 'ready')")


async def watch(stage: Stage, runs: int, longest: float) -> Watched:
    """Until so many runs of the flood have ended, or for `longest` seconds."""
    began, before = datetime.now(UTC), await count_ended(stage)
    end = began + timedelta(seconds=longest)
    ended = 0
    while ended < runs and datetime.now(UTC) < end:
        await asyncio.sleep(1.0)
        ended = await count_ended(stage) - before
    return Watched(began, datetime.now(UTC), ended)


async def count_ended(stage: Stage) -> int:
    count: int = await stage.look.fetchval(
        "SELECT count(*) FROM run_history JOIN jobs j USING (job) JOIN tenants t USING (tenant) WHERE t.name = 'noisy'"
    )
    return count


def calls_of(stage: Stage, tenant: str) -> Sequence[Received]:
    return [call for call in stage.scene.sink.calls if call.job.startswith(tenant)]


# --- the stage, and the verdict ---


async def script(scene: Scene, *, name: str, source: Path | None) -> None:
    if source is not None:
        scene.nodes.variables["PYTHONPATH"] = str(source)
    node = await scene.nodes.start("serve", "--concurrency", str(SLOTS))
    await node.says("partitions taken")
    async with answering() as flood_url, looking_at(scene.data) as look:
        noisy, quiet = tenants(node)
        stage = Stage(scene, look, noisy, quiet, flood_url)
        await judge(stage, await FLOODS[name](stage))


def tenants(node: Node) -> tuple[JsonClient, JsonClient]:
    """Clients of the noisy and of the quiet tenant."""
    admin = JsonClient(node.url, node.client.create_key("admin", name="operator")["key"])
    clients = []
    for name in ("noisy", "quiet"):
        admin.create_tenant(name)
        admin.change_tenant(name, {"allow": ["private"]})
        clients.append(JsonClient(node.url, admin.create_key("write", name=name, tenant=name)["key"]))
    admin.close()
    return clients[0], clients[1]


@asynccontextmanager
async def answering() -> AsyncIterator[str]:
    """The address of a process that answers every request at once."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "detent.devtools.bench.http_sink"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        port = int(await process.stdout.readline())
        yield f"http://127.0.0.1:{port}/hook"
    finally:
        process.terminate()
        await process.communicate()


async def judge(stage: Stage, watched: Watched) -> None:
    scene, seconds = stage.scene, (watched.ended - watched.began).total_seconds()
    await until(lambda: all_called_since(stage, watched.ended), 60, "the quiet tenant's calls after the flood")
    lateness = lateness_of_ticks(stage, watched)
    recorded = await recorded_lateness(stage, watched)
    scene.note("the flood lasted, or was watched for", f"{seconds:.1f} s")
    scene.note("runs of the flood that ended", f"{watched.runs:,}, {watched.runs / seconds:,.0f} per second")
    scene.note("ticks of the quiet tenant meanwhile", len(lateness))
    scene.note("... start lateness, p50", milliseconds(percentile(lateness, 0.5)))
    scene.limit("... start lateness, p99", percentile(lateness, 0.99), LATEST)
    scene.note("... start lateness, latest", milliseconds(max(lateness)))
    scene.note("... start lateness as the node recorded it, p99", milliseconds(percentile(recorded, 0.99)))


def all_called_since(stage: Stage, moment: datetime) -> bool:
    return len({call.job for call in calls_of(stage, "quiet") if call.scheduled_at > moment}) == QUIET_JOBS


def lateness_of_ticks(stage: Stage, watched: Watched) -> list[float]:
    """The lateness of every tick of the quiet tenant while the flood was watched. Infinite if it was not called: it was
    skipped because the call of the previous tick had not ended."""
    called = {(call.job, call.scheduled_at): call.lateness for call in calls_of(stage, "quiet")}
    latest = {job: max(at for of, at in called if of == job) for job, _ in called}
    lateness = []
    for job, tick in latest.items():
        while tick >= watched.began:
            if tick <= watched.ended:
                lateness.append(called.get((job, tick), math.inf))
            tick -= timedelta(seconds=1)
    return lateness


async def recorded_lateness(stage: Stage, watched: Watched) -> list[float]:
    rows = await stage.look.fetch(
        "SELECT extract(epoch FROM h.started_at - h.scheduled_at)::float8 AS late FROM run_history h"
        " JOIN jobs USING (job) JOIN tenants t USING (tenant)"
        " WHERE t.name = 'quiet' AND h.status = 1 AND h.scheduled_at BETWEEN $1 AND $2",
        watched.began, watched.ended,
    )  # fmt: skip
    return [row["late"] for row in rows]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=", ".join(FLOODS))
    parser.add_argument("--source", type=Path, help="the folder of another copy of the product than the installed one")
    given = parser.parse_args()
    unknown = set(given.scenarios) - FLOODS.keys()
    if unknown:
        parser.error(f"there is no scenario {', '.join(sorted(unknown))}: choose from {', '.join(FLOODS)}")
    source = given.source.absolute() if given.source else None
    codes = [
        perform(f"fairness: {name}", partial(script, name=name, source=source)) for name in given.scenarios or FLOODS
    ]
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
