"""Nodes and enqueuers that are killed all the time, from an empty folder to a record."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from detent.domain.identity import ON_DEMAND
from tests.support.fleet.members import Fleet, Member
from tests.support.fleet.recorder import ROOT, Recorder
from tests.support.fleet.records import Attempt, Audit
from tests.support.fleet.servers import Server
from tests.support.orders.records import (
    CREATE_ORDERS,
    READ_ATTEMPTS,
    READ_ORDERS,
    READ_RUNS,
    EndedRun,
    Kill,
    Order,
    OrderBook,
    read,
)
from tests.support.orders.tasks import create_tasks, scheduled_jobs
from tests.support.processes import START_SECONDS
from tests.support.waiting import until

DRAIN_SECONDS = 180.0
# Where a worker kills itself, with the hits to choose from. W1: about to claim. W2: claimed, reply unseen. W3: about to
# call. W4: called, not settled. W5: settled, not committed. W6: committed, reply unseen.
STEPS = {"W1": (5, 60), "W2": (5, 60), "W3": (50, 500), "W4": (50, 500), "W5": (5, 60), "W6": (5, 60)}
STEP_SHARE = 0.4


class Scale(NamedTuple):
    """`node_life` and `enqueuer_life`: how many seconds a process lives, at least and at most."""

    runs: int
    nodes: tuple[str, ...] = ("n1", "n2", "n3")
    enqueuers: tuple[str, ...] = ("e1", "e2", "e3")
    ttl: float = 2.0
    node_life: tuple[float, float] = (3.0, 12.0)
    enqueuer_life: tuple[float, float] = (1.0, 8.0)
    server_options: dict[str, str] = {}


class Trade:
    """All processes of one record, and what was done to them."""

    def __init__(self, folder: Path, scale: Scale, seed: int, server: Server) -> None:
        self.folder = folder
        self.scale = scale
        self.seed = seed
        self.server = server
        self.fleet = Fleet(
            folder, DETENT_DATABASE_URL=server.url, DETENT_LEASE_TTL_SECONDS=f"{scale.ttl:g}", DETENT_LOG_FORMAT="json"
        )
        self.notes = folder / "notes.jsonl"
        self.notes.touch()
        self.kills: list[Kill] = []
        self.gone: list[str] = []
        self.over = asyncio.Event()

    # --- nodes ---

    async def kill_nodes(self, name: str) -> None:
        """One process after another in this place, each killed; in the end one that is left alone."""
        chance = random.Random(f"{self.seed} {name}")
        member = self.fleet[name]
        while not self.over.is_set():
            await self._one_life(member, chance)
        await member.start()

    async def _one_life(self, member: Member, chance: random.Random) -> None:
        step = ""
        if member.processes and chance.random() < STEP_SHARE:
            where = chance.choice(sorted(STEPS))
            step = f"{where}=exit@{chance.randint(*STEPS[where])}"
        node = member.begin(**({"DETENT_FAILPOINTS": step} if step else {}))
        await until(lambda: node.is_ready or node.process.poll() is not None, START_SECONDS, f"{node.name} to start")
        deadline = time.monotonic() + chance.uniform(*self.scale.node_life)
        while node.process.poll() is None and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        if node.process.poll() is None:
            self.kills.append(Kill(member.name, time.time()))
            await node.kill()
        elif step and node.process.returncode == -signal.SIGKILL:
            self.kills.append(Kill(member.name, time.time(), step))
        else:
            self.gone.append(f"{node.name} (with code {node.process.returncode})")

    # --- enqueuers ---

    async def kill_enqueuers(self, name: str) -> None:
        chance = random.Random(f"{self.seed} {name}")
        with (self.folder / f"{name}.1.log").open("ab") as log:
            while not self.over.is_set():
                arguments = (self.server.url, str(self.notes), str(chance.random()))
                process = subprocess.Popen(
                    [sys.executable, "-m", "tests.support.orders.enqueuer", *arguments],
                    cwd=ROOT,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
                try:
                    await self._wait(chance.uniform(*self.scale.enqueuer_life))
                    if process.poll() is not None:
                        self.gone.append(f"{name} (with code {process.returncode})")
                        return
                    self.kills.append(Kill(name, time.time()))
                finally:
                    process.kill()
                    process.wait()

    async def _wait(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self.over.wait(), seconds)
        except TimeoutError:
            return

    async def count_runs(self) -> None:
        """Until there are enough."""
        async with self.server.session() as look:
            while await look.fetchval("SELECT count(*) FROM public.orders WHERE created") < self.scale.runs:
                await asyncio.sleep(0.5)
                if any(name.startswith("e") for name in self.gone):
                    break
        self.over.set()


async def perform(folder: Path, scale: Scale, seed: int) -> OrderBook:
    server = Server(folder, "primary")
    await server.create(track_commit_timestamp="on", **scale.server_options)
    with closing(server):
        await server.start()
        await server.make_database()
        trade = Trade(folder, scale, seed, server)
        await trade.fleet.command("db", "migrate")
        for name in (*scale.nodes, "api"):
            trade.fleet.add(name)
        with closing(Recorder(folder)) as recorder, closing(trade.fleet):
            return await _record(trade, recorder)


async def _record(trade: Trade, recorder: Recorder) -> OrderBook:
    began = time.time()
    api = await trade.fleet["api"].start()
    async with trade.server.session() as look:
        await look.execute(CREATE_ORDERS)
        await create_tasks(look, recorder.url)
    jobs = [api.client.create_job(document)["id"] for document in scheduled_jobs(recorder.url)]
    async with asyncio.TaskGroup() as group:
        for name in trade.scale.nodes:
            group.create_task(trade.kill_nodes(name))
        for name in trade.scale.enqueuers:
            group.create_task(trade.kill_enqueuers(name))
        group.create_task(trade.count_runs())
    async with trade.server.session() as look:
        left = await _drained(look, jobs, api.client)
        audit = await _audit(trade, api.url, began)
        gone = trade.gone + trade.fleet.gone
        for member in trade.fleet.present:
            if member.node.process.poll() is None and (code := await member.end()):
                gone.append(f"{member.node.name} (with code {code}, when asked to)")
        return await _book(trade, recorder, look, began, left, gone, audit)


async def _drained(look: Any, jobs: list[str], client: Any) -> dict[str, int]:
    """How many runs are left after some time; the scheduled jobs are paused once their backlog is empty."""
    count = "SELECT (SELECT count(*) FROM backlog) AS backlog, (SELECT count(*) FROM live_runs) AS live_runs"
    deadline = time.monotonic() + DRAIN_SECONDS
    while await look.fetchval("SELECT count(*) FROM backlog") and time.monotonic() < deadline:
        await asyncio.sleep(0.2)
    for job in jobs:
        await asyncio.to_thread(client.pause_job, job)
    while time.monotonic() < deadline and any(await look.fetchrow(count)):
        await asyncio.sleep(0.2)
    return dict(await look.fetchrow(count))


async def _audit(trade: Trade, url: str, began: float) -> Audit:
    since = f"{10 + int((time.time() - began) / 60)}m"
    return Audit(*await trade.fleet.answer("audit", "--since", since, DETENT_API_URL=url))


async def _book(
    trade: Trade, recorder: Recorder, look: Any, began: float, left: dict[str, int], gone: list[str], audit: Audit
) -> OrderBook:
    notes = [json.loads(line) for line in trade.notes.read_text().splitlines()]
    return OrderBook(
        trade.seed, began, time.time(),
        await read(look, READ_ORDERS, Order),
        await read(look, READ_RUNS, EndedRun, ON_DEMAND),
        await read(look, READ_ATTEMPTS, Attempt, ON_DEMAND),
        recorder.calls(),
        trade.kills,
        [run for kind, *values in notes for run in (values if kind == "rolled back" else values[1:])],
        [values[0] for kind, *values in notes if kind == "repeated"],
        left,
        _logs(trade),
        gone,
        audit,
    )  # fmt: skip


def _logs(trade: Trade) -> dict[str, str]:
    paths = [*trade.folder.glob("e*.1.log"), trade.server.log]
    return {**trade.fleet.logs(), **{path.stem: path.read_text("utf-8", "replace") for path in paths}}
