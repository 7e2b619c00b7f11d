"""Nodes and enqueuers that are killed all the time, from an empty folder to a record."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from detent.domain.identity import ON_DEMAND
from tests.support.fleet.failover import STREAMING
from tests.support.fleet.members import UNREACHABLE, Fleet, Member
from tests.support.fleet.network import Links
from tests.support.fleet.recorder import ROOT, Recorder
from tests.support.fleet.records import Attempt, Audit
from tests.support.fleet.servers import Server
from tests.support.orders.enqueuer import READY
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
from tests.support.orders.tasks import BY_NAME, documents
from tests.support.processes import START_SECONDS
from tests.support.waiting import until

DRAIN_SECONDS = 180.0
# Where a worker kills itself, with the hits to choose from. W1: about to claim. W2: claimed, reply unseen. W3: about to
# call. W4: called, not settled. W5: settled, not committed. W6: committed, reply unseen.
STEPS = {"W1": (5, 60), "W2": (5, 60), "W3": (50, 500), "W4": (50, 500), "W5": (5, 60), "W6": (5, 60)}
STEP_SHARE = 0.4
COUNT = """
SELECT (SELECT count(*) FROM public.orders WHERE created), (SELECT count(*) FROM attempts WHERE outcome = 'lost')
"""


class Scale(NamedTuple):
    """`node_life` and `enqueuer_life`: how many seconds a process lives, at least and at most."""

    runs: int
    nodes: tuple[str, ...] = ("n1", "n2", "n3")
    enqueuers: tuple[str, ...] = ("e1", "e2", "e3")
    ttl: float = 2.0
    node_life: tuple[float, float] = (3.0, 12.0)
    enqueuer_life: tuple[float, float] = (1.0, 8.0)
    server_options: Mapping[str, str] = {}
    # The primary crashes once half of the runs are there, and its synchronous standby takes its place.
    promotes: bool = False


class Trade:
    """All processes of one record, and what was done to them."""

    def __init__(self, folder: Path, scale: Scale, seed: int, server: Server, links: Links) -> None:
        self.folder = folder
        self.scale = scale
        self.seed = seed
        self.server = server
        self.links = links
        self.link = links.add(server.port) if scale.promotes else None
        self.url = server.url if self.link is None else Server.url_at(self.link.port)
        self.standby: Server | None = None
        self.fleet = Fleet(folder, DETENT_DATABASE_URL=self.url, DETENT_LEASE_TTL_SECONDS=f"{scale.ttl:g}")
        self.notes = folder / "notes.jsonl"
        self.notes.touch()
        self.kills: list[Kill] = []
        self.gone: list[str] = []
        self.over = asyncio.Event()

    # --- nodes ---

    def any_node_ready(self) -> bool:
        return any(self.fleet[name].processes and self.fleet[name].node.is_ready for name in self.scale.nodes)

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
        elif node.process.returncode != UNREACHABLE:  # its supervisor starts it again
            self.gone.append(f"{node.name} (with code {node.process.returncode})")

    # --- enqueuers ---

    async def kill_enqueuers(self, name: str) -> None:
        chance = random.Random(f"{self.seed} {name}")
        number = 0
        while not self.over.is_set():
            number += 1
            await self._enqueue(f"{name}.{number}", chance)

    async def _enqueue(self, name: str, chance: random.Random) -> None:
        """One process, from its start until it is killed."""
        path = self.folder / f"enqueuer-{name}.log"
        with path.open("wb") as log:
            arguments = (self.url, str(self.notes), str(chance.random()))
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.orders.enqueuer", *arguments],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            ready = partial(_is_ready, path, process)
            await until(ready, START_SECONDS, f"the enqueuer {name} to start")
            await self._wait(chance.uniform(*self.scale.enqueuer_life))
            if process.poll() is None:
                self.kills.append(Kill(name, time.time()))
            else:
                self.gone.append(f"{name} (with code {process.returncode}: {path.read_text()[-1000:]})")
                self.over.set()
        finally:
            process.kill()
            process.wait()

    async def _wait(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self.over.wait(), seconds)
        except TimeoutError:
            return

    # --- the database ---

    async def follow(self) -> None:
        """Give the server a standby that has every commit before its caller is answered."""
        self.standby = Server(self.folder, "standby")
        await self.standby.copy(self.server, self.server.port)
        await self.standby.start()
        async with self.server.session() as look:
            await look.execute("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
            await look.execute("SELECT pg_reload_conf()")
            await until(lambda: look.fetchval(STREAMING, "sync"), START_SECONDS, "the standby to follow")

    async def promote(self) -> None:
        assert self.standby is not None
        assert self.link is not None
        self.kills.append(Kill(self.server.name, time.time()))
        await self.server.stop("immediate")
        await self.standby.promote()
        self.links.switch(self.link, self.standby.port)
        self.server = self.standby

    async def count_runs(self) -> None:
        """Until there are enough, and enough was broken."""
        if self.scale.promotes:
            await self._enough(self.scale.runs // 2)
            await self.promote()
        await self._enough(self.scale.runs)
        self.over.set()

    async def _enough(self, wanted: int) -> None:
        async with self.server.session() as look:
            while not self.over.is_set():
                await self._wait(0.5)
                runs, lost = await look.fetchrow(COUNT)
                killed = {kill.place[0] for kill in self.kills}
                if runs >= wanted and lost and killed >= set("ne"):
                    return


def _is_ready(path: Path, process: subprocess.Popen[bytes]) -> bool:
    return path.read_text() == READY or process.poll() is not None


async def perform(folder: Path, scale: Scale, seed: int) -> OrderBook:
    server = Server(folder, "primary")
    await server.create(track_commit_timestamp="on", **scale.server_options)
    with closing(Links()) as links, ExitStack() as servers:
        servers.callback(server.close)
        await server.start()
        await server.make_database()
        trade = Trade(folder, scale, seed, server, links)
        await trade.fleet.command("db", "migrate")
        if scale.promotes:
            await trade.follow()
            assert trade.standby is not None
            servers.callback(trade.standby.close)
        for name in (*scale.nodes, "api"):
            trade.fleet.add(name)
        with closing(Recorder(folder)) as recorder, closing(trade.fleet):
            return await _record(trade, recorder)


async def _record(trade: Trade, recorder: Recorder) -> OrderBook:
    began = time.time()
    api = await trade.fleet["api"].start()
    async with trade.server.session() as look:
        await look.execute(CREATE_ORDERS)
    registered = api.client.create_jobs(documents(recorder.url))["items"]
    jobs = [item["id"] for item in registered if BY_NAME[item["name"]].laned]
    async with asyncio.TaskGroup() as group:
        for name in trade.scale.nodes:
            group.create_task(trade.kill_nodes(name))
        await until(trade.any_node_ready, START_SECONDS, "a node to be ready")
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
        {**trade.fleet.logs(), **_server_logs(trade)},
        gone,
        audit,
    )  # fmt: skip


def _server_logs(trade: Trade) -> dict[str, str]:
    servers = [Server(trade.folder, name) for name in ("primary", "standby")]
    return {server.name: server.log.read_text("utf-8", "replace") for server in servers if server.log.exists()}
