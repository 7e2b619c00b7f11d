"""One run from an empty folder to a record: start, register, let the nemesis work, heal, pause, drain, read."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from detent.client import JsonClient
from tests.support.fleet.members import Fleet
from tests.support.fleet.nemesis import Nemesis
from tests.support.fleet.network import Link, Links
from tests.support.fleet.plans import Plan
from tests.support.fleet.recorder import Recorder
from tests.support.fleet.records import Audit, Job, Record, Tables, read_tables
from tests.support.fleet.servers import Server
from tests.support.waiting import until

PARTITIONS = 256
DRAIN_SECONDS = 40.0
# Overlapping runs are allowed, so that the runs a dead node holds do not turn later ticks into skipped ones.
POLICY = {"concurrent_policy": "ALLOW", "max_concurrent": 50, "max_retries": 5, "retry_base_seconds": 0.1}
# Every third job takes a while, so that there are runs in flight whenever a process dies.
MODES = ("ok", "ok", "slow/0.4")


class Ticking(NamedTuple):
    """A job of a scenario that has a few of its own kind: its interval in seconds, what the target does with a call,
    how long a run then lasts, and other fields of its document."""

    every: int = 1
    mode: str = "ok"
    takes: float = 0.0
    fields: Mapping[str, Any] = {}


class Shape(NamedTuple):
    """Who takes part, and how hard they work."""

    members: tuple[str, ...] = ("s1", "s2", "s3", "w1", "w2", "api")
    # Who comes later, when the plan says so.
    later: tuple[str, ...] = ()
    jobs: int = 300
    # Instead of that many alike.
    ticking: tuple[Ticking, ...] = ()
    ttl: float = 5.0
    linked: bool = False
    variables: Mapping[str, str] = {}
    server_variables: Mapping[str, str] = {}
    server_options: Mapping[str, str] = {}


class Stage:
    """What a run works with; scenarios reach in here for what only they do."""

    def __init__(self, folder: Path, shape: Shape, plan: Plan, server: Server, links: Links) -> None:
        self.folder = folder
        self.shape = shape
        self.plan = plan
        self.server = server
        self.links = links
        self.of_member: dict[str, Link] = {}
        variables = {"DETENT_LEASE_TTL_SECONDS": f"{shape.ttl:g}", **shape.variables}
        self.fleet = Fleet(folder, **variables)
        self.nemesis = Nemesis(self.fleet, server, links, self.of_member)
        self.extra_logs: dict[str, Path] = {server.name: server.log}
        self.former: Server | None = None
        self.target = ""
        self._closing: list[Callable[[], None]] = []

    def on_close(self, action: Callable[[], None]) -> None:
        self._closing.append(action)

    def close(self) -> None:
        for action in self._closing:
            action()

    def change_server(self, server: Server) -> None:
        """Another one is the primary from now on."""
        self.former, self.server = self.server, server
        self.nemesis.server = server

    def add_member(self, name: str, **variables: str) -> None:
        """Its way to the database is its own where links can be cut or lead elsewhere."""
        url = self.server.url
        if self.shape.linked:
            link = self.of_member[name] = self.links.add(self.server.port)
            url = Server.url_at(link.port)
        self.fleet.add(name, DETENT_DATABASE_URL=url, **variables)

    @property
    def client(self) -> JsonClient:
        name = next(name for name in self.fleet.members if name[0] in "an")
        return self.fleet[name].node.client

    def logs(self) -> dict[str, str]:
        others = {name: path.read_text("utf-8", "replace") for name, path in self.extra_logs.items()}
        return {**self.fleet.logs(), **others}


Prepare = Callable[[Stage], Awaitable[None]]


async def perform(plan: Plan, shape: Shape, folder: Path, prepare: Prepare | None = None) -> Record:
    async with _stage(plan, shape, folder) as stage:
        with closing(stage):
            if prepare is not None:
                await prepare(stage)
            with closing(Recorder(folder)) as recorder, closing(stage.fleet):
                stage.target = recorder.url
                await _start(stage)
                return await _record(stage, recorder)


@asynccontextmanager
async def _stage(plan: Plan, shape: Shape, folder: Path) -> AsyncIterator[Stage]:
    server = Server(folder, "primary", **shape.server_variables)
    await server.create(**shape.server_options)
    with closing(Links()) as links, closing(server):
        await server.start()
        await server.make_database()
        stage = Stage(folder, shape, plan, server, links)
        await stage.fleet.command("db", "migrate", DETENT_DATABASE_URL=server.url)
        for name in (*shape.members, *shape.later):
            stage.add_member(name)
        yield stage


async def _start(stage: Stage) -> None:
    """Everybody is there, and every partition has its leader."""
    await asyncio.gather(*(stage.fleet[name].start() for name in stage.shape.members))
    async with stage.server.session() as look:

        async def all_led() -> bool:
            return bool(await look.fetchval("SELECT count(*) FROM partitions WHERE holder IS NOT NULL") == PARTITIONS)

        await until(all_led, 30, "every partition to have a leader")


async def _record(stage: Stage, recorder: Recorder) -> Record:
    began = time.time()
    ticking = stage.shape.ticking or [_alike(number) for number in range(stage.shape.jobs)]
    jobs = await asyncio.to_thread(register, stage.client, recorder.url, ticking)
    await asyncio.gather(stage.nemesis.perform(stage.plan), asyncio.sleep(stage.plan.seconds))
    await asyncio.sleep(stage.shape.ttl + 2.0)  # whatever was broken last has been put right by then
    gone = stage.fleet.gone
    jobs = await asyncio.to_thread(pause, stage.client, jobs)
    tables, numbers = await drained(stage)
    audit = await _audit(stage)
    gaps = tuple(stage.nemesis.gaps)
    jobs = [msgspec.structs.replace(job, number=numbers[job.id], gaps=gaps) for job in jobs]
    gone += await _end(stage)
    return Record(
        stage.plan, stage.shape.ttl, began, time.time(), jobs, recorder.calls(), tables, stage.nemesis.done,
        stage.logs(), gone, await _former_tables(stage), audit,
    )  # fmt: skip


async def _audit(stage: Stage) -> Audit:
    """All jobs; but a clock that was stepped by a day owes 86,400 ticks of each, which is enough of some."""
    stepped = any(fault.action == "step-clock" for fault in stage.plan.faults)
    some = [word for number in range(3) for word in ("--job", f"job-{number}")] if stepped else []
    url = stage.client.url
    since = f"{10 + int(stage.plan.seconds / 60)}m"
    return Audit(*await stage.fleet.answer("audit", "--since", since, *some, DETENT_API_URL=url))


async def _former_tables(stage: Stage) -> Tables | None:
    """What a crashed primary had, once no client can reach it any more."""
    if stage.former is None:
        return None
    await stage.former.start()
    async with stage.former.session() as look:
        return await read_tables(look)


async def drained(stage: Stage) -> tuple[Tables, dict[str, int]]:
    """What the tables say once nothing is open any more, or once that has been waited for long enough; and the numbers
    by which they name the jobs."""
    async with stage.server.session() as look:
        deadline = time.monotonic() + DRAIN_SECONDS
        while await look.fetchval("SELECT count(*) FROM live_runs") and time.monotonic() < deadline:
            await asyncio.sleep(0.1)
        numbers = {row["id"]: row["job"] for row in await look.fetch("SELECT job, id::text FROM jobs")}
        return await read_tables(look), numbers


async def _end(stage: Stage) -> list[str]:
    """Everybody leaves in good order; those who did not."""
    members = [member for member in stage.fleet.present if member.node.process.poll() is None]
    codes = await asyncio.gather(*(member.end() for member in members))
    return [
        f"{member.node.name} (with code {code}, when asked to)"
        for member, code in zip(members, codes, strict=True)
        if code
    ]


# --- jobs ---


def _alike(number: int) -> Ticking:
    return Ticking(mode=MODES[number % len(MODES)], fields=POLICY)


def register(client: JsonClient, target: str, ticking: Sequence[Ticking]) -> list[Job]:
    """All in one call: either all are there or none is."""
    documents = [
        {
            "name": f"job-{number}",
            "schedule": "* * * * * *" if kind.every == 1 else f"*/{kind.every} * * * * *",
            "target": {"type": "http", "url": f"{target}/{kind.mode}"},
            "payload": {"number": number},
            **kind.fields,
        }
        for number, kind in enumerate(ticking)
    ]
    registering = time.time()
    items = client.create_jobs(documents, upsert=True)["items"]
    registered = time.time()
    return [
        Job(0, item["id"], item["name"], registering, registered, 0.0, 0.0, kind.every, kind.takes)
        for item, kind in zip(items, ticking, strict=True)
    ]


def pause(client: JsonClient, jobs: Sequence[Job]) -> list[Job]:
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(lambda job: _pause(client, job), jobs))


def _pause(client: JsonClient, job: Job) -> Job:
    pausing = time.time()
    client.pause_job(job.id)
    return msgspec.structs.replace(job, pausing=pausing, paused=time.time())
