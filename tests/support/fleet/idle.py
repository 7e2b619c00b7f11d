"""A quiet cluster: one job on one node or two, one disturbance at a time, and silence after each.

Under load the next event frees a tick that is stuck. Here there is no next event: what a disturbance left behind is
still there when the silence ends, and `fleet.liveness` finds it. That is why each scenario has one job only.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from detent.client import JsonClient
from detent.store import sql
from tests.support.fleet.clocks import faked
from tests.support.fleet.plans import Chance, Fault
from tests.support.waiting import until

if TYPE_CHECKING:
    from tests.support.fleet.driver import Stage

SILENCE = 26.0
FIRST = 4.0
CLIENTS = 6
HOG, STALL = "hog", "stall"
NEVER = {"at": "2099-01-01T00:00:00Z"}
LISTENING = (
    "SELECT pid FROM pg_stat_activity WHERE application_name = 'detent' AND (query ILIKE 'listen%' OR query = $1)"
)
BACKENDS = "SELECT pid FROM pg_stat_activity WHERE application_name = 'detent' ORDER BY pid"
LOCKS = {
    "cursors": "SELECT 1 FROM cursors c JOIN jobs j USING (job) WHERE j.name = 'job-0' FOR UPDATE OF c",
    "jobs": "SELECT 1 FROM jobs WHERE name = 'job-0' FOR UPDATE",
    "nodes": "SELECT 1 FROM nodes WHERE NOT evicted FOR UPDATE",
}

# What can happen to a node and to its database; after each of these its ticks go on by themselves.
DISTURBANCES = (
    Fault(0, "stop", "n1", 2.2),
    Fault(0, "stop", "n1", 8.0),
    Fault(0, "freeze-database", seconds=3.0),
    Fault(0, "freeze-database", seconds=12.0),
    Fault(0, "restart-database", detail="fast"),
    Fault(0, "restart-database", detail="immediate"),
    Fault(0, "terminate-each", seconds=0.7),
    Fault(0, "terminate-listening"),
    Fault(0, "cut", "n1", 3.0, "requests hold"),
    Fault(0, "cut", "n1", 3.0, "replies swallow"),
    Fault(0, "cut", "n1", 8.0, "replies hold"),
    Fault(0, "lock", seconds=4.0, detail="cursors"),
    Fault(0, "lock", seconds=4.0, detail="nodes"),
    Fault(0, "lock", seconds=4.0, detail="jobs"),
    Fault(0, "edit"),
    Fault(0, "trigger"),
)
BURSTS = (Fault(0, "register", seconds=25.0), Fault(0, "register", seconds=25.0))
FULL = (
    Fault(0, "hog", seconds=6.0),
    Fault(0, "hog", seconds=2.3),
    Fault(0, "stall", seconds=6.0, detail="plain"),
    Fault(0, "stall", seconds=6.0, detail="blocking"),
)
LIMITED = (
    Fault(0, "limit", seconds=6.0, detail="tenant"),
    Fault(0, "limit", seconds=2.3, detail="tenant"),
    Fault(0, "limit", seconds=6.0, detail="queue"),
    Fault(0, "unlimit"),
)
CLOCK_STEPS = ("+0.6", "-0.6", "+4", "-4", "+30", "-12")
STEPS = tuple(Fault(0, "small-step", seconds=abs(min(0.0, float(step))), detail=step) for step in CLOCK_STEPS)


def one_at_a_time(faults: Sequence[Fault], *, shuffled: bool = True) -> Callable[[Chance, float, float], list[Fault]]:
    """Those for which there is time, each at a random moment of its second, and silence after each."""

    def draw(chance: Chance, seconds: float, _ttl: float) -> list[Fault]:
        order = chance.sample(faults, len(faults)) if shuffled else faults
        drawn: list[Fault] = []
        at = FIRST
        for fault in order:
            lasts = fault.seconds + SILENCE + ALLOWANCE.get(fault.action, 1.0)
            if at + lasts <= seconds + FIRST:
                moment = round(at + chance.rounded(0.0, 0.9), 1)
                drawn.append(Fault(moment, fault.action, fault.target, fault.seconds, fault.detail))
                at += lasts
        return drawn

    return draw


# How much longer than its `seconds` a disturbance itself may last.
ALLOWANCE = {"terminate-each": 14.0, "restart-database": 4.0, "register": 3.0, "hog": 2.0, "stall": 4.0, "limit": 3.0}


def lasting(faults: Sequence[Fault]) -> float:
    return FIRST + sum(fault.seconds + SILENCE + ALLOWANCE.get(fault.action, 1.0) for fault in faults)


async def with_disturbances(stage: Stage) -> None:
    deeds = Deeds(stage)
    stage.nemesis.deeds |= {
        "freeze-database": deeds.freeze_database,
        "terminate-each": deeds.terminate_each,
        "terminate-listening": deeds.terminate_listening,
        "lock": deeds.lock,
        "edit": deeds.edit,
        "trigger": deeds.trigger,
        "register": deeds.register,
        "hog": deeds.hog,
        "limit": deeds.limit,
        "unlimit": deeds.unlimit,
    }


class Deeds:
    """What is done to a quiet cluster, beside what the nemesis does to every one."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    # --- the database ---

    async def freeze_database(self, fault: Fault) -> str:
        """All processes of the server stop: statements get no answer, connections stay open."""
        processes = _with_children(self._stage.server.process)
        for process in processes:
            os.kill(process, signal.SIGSTOP)
        await asyncio.sleep(fault.seconds)
        for process in reversed(processes):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGCONT)
        return f"{len(processes)} processes"

    async def terminate_each(self, fault: Fault) -> str:
        """Every connection that a node has, one after another, `seconds` apart."""
        async with self._stage.server.session() as session:
            backends = [row["pid"] for row in await session.fetch(BACKENDS)]
            for backend in backends:
                await session.execute("SELECT pg_terminate_backend($1)", backend)
                await asyncio.sleep(fault.seconds)
        return f"{len(backends)} connections"

    async def terminate_listening(self, _fault: Fault) -> str:
        async with self._stage.server.session() as session:
            found = [row["pid"] for row in await session.fetch(LISTENING, sql.database.CLOCK.text)]
            assert found, "no connection listens"
            for backend in found:
                await session.execute("SELECT pg_terminate_backend($1)", backend)
        return f"{len(found)} connections"

    async def lock(self, fault: Fault) -> str:
        async with self._stage.server.session() as session, session.transaction():
            rows = await session.fetch(LOCKS[fault.detail])
            await asyncio.sleep(fault.seconds)
        return f"{len(rows)} rows of {fault.detail}"

    # --- people ---

    async def edit(self, _fault: Fault) -> str:
        """Paused, changed and resumed at once."""
        begun = time.time()
        client = self._stage.client

        def change() -> None:
            client.pause_job("job-0")
            client.edit_job("job-0", {"payload": {"edited": begun}})
            client.resume_job("job-0")
            client.edit_job("job-0", {"payload": {"edited": time.time()}})

        await asyncio.to_thread(change)
        self._stage.nemesis.gaps.append((begun, time.time()))
        return ""

    async def trigger(self, _fault: Fault) -> str:
        """Three triggered runs: under QUEUE and REPLACE they have to wait for each other."""
        for _ in range(3):
            with suppress(Exception):  # a job that has its run already may refuse another
                await asyncio.to_thread(self._stage.client.trigger_job, "job-0")
        return ""

    async def register(self, fault: Fault) -> str:
        """Clients that create jobs one by one; their ticks are years away."""
        deadline = time.monotonic() + fault.seconds
        url, prefix = self._stage.client.url, f"burst-{int(time.time())}"
        with ThreadPoolExecutor(CLIENTS) as pool:
            loop = asyncio.get_running_loop()
            made = await asyncio.gather(
                *(loop.run_in_executor(pool, _register, url, f"{prefix}-{n}", deadline) for n in range(CLIENTS))
            )
        return f"{sum(made)} jobs"

    async def hog(self, fault: Fault) -> str:
        """A run that takes all the room there is, until it has ended."""
        client, target = self._stage.client, {"type": "http", "url": f"{self._stage.target}/slow/{fault.seconds:g}"}
        await asyncio.to_thread(client.upsert_job, {"name": HOG, "schedule": NEVER, "target": target})
        await self._run_by_hand(HOG)
        return ""

    async def limit(self, fault: Fault) -> str:
        """One run at a time, and one that takes a while: the limit is reached, and free again when that has ended."""
        client = self._stage.client
        if fault.detail == "tenant":
            await asyncio.to_thread(client.change_tenant, "default", {"max_concurrent": 1})
        else:
            await asyncio.to_thread(client.limit_queue, "default", max_concurrent=1)
        return await self.hog(fault)

    async def unlimit(self, _fault: Fault) -> str:
        client = self._stage.client
        await asyncio.to_thread(client.change_tenant, "default", {"max_concurrent": None})
        await asyncio.to_thread(client.limit_queue, "default")
        return ""

    async def stall(self, fault: Fault) -> str:
        """A handler that blocks: in a thread, or the loop of the coroutines."""
        target = {"type": "python", "function": f"{STALL}:{fault.detail}"}
        document = {"name": STALL, "schedule": NEVER, "target": target, "payload": fault.seconds}
        await asyncio.to_thread(self._stage.client.upsert_job, document)
        await self._run_by_hand(STALL)
        return ""

    async def _run_by_hand(self, job: str) -> None:
        client = self._stage.client
        run = (await asyncio.to_thread(client.trigger_job, job))["id"]

        async def over() -> bool:
            return bool((await asyncio.to_thread(client.get_run, run))["finished_at"])

        await until(over, 60, f"{job} to end")


def _register(url: str, prefix: str, deadline: float) -> int:
    made = 0
    with JsonClient(url) as client:
        while time.monotonic() < deadline:
            made += 1
            document = {"name": f"{prefix}-{made}", "schedule": NEVER, "target": {"type": "http", "url": "http://x/"}}
            client.create_job(document)
    return made


def _with_children(process: int) -> list[int]:
    """A process and those that it started, parents first."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    return [process, *(child for child, parent in parents.items() if parent == process)]


# --- a worker with handlers of its own ---

HANDLERS = f"""
import time
from detent import Detent

app = Detent("{STALL}")


@app.function()
def plain(run):
    time.sleep(run.payload)


@app.function()
async def blocking(run):
    time.sleep(run.payload)
"""


async def with_handlers(stage: Stage) -> None:
    await with_disturbances(stage)
    (stage.folder / f"{STALL}.py").write_text(HANDLERS)
    stage.fleet.variables["DETENT_APP"] = f"{STALL}:app"
    stage.nemesis.deeds["stall"] = Deeds(stage).stall


# --- small steps of the database's clock, which are taken as they are ---


async def with_small_steps(stage: Stage) -> None:
    setting = stage.folder / "clock"
    setting.write_text("+0\n")
    setting.chmod(0o644)
    stage.server.variables.update(faked(FAKETIME_TIMESTAMP_FILE=str(setting), FAKETIME_NO_CACHE="1"))
    await stage.server.restart("fast")
    stage.nemesis.deeds["small-step"] = SmallStep(setting)


class SmallStep:
    """The fault `small-step`: by `detail` seconds, and for good. After a step back nothing is due for as long."""

    def __init__(self, setting: Path) -> None:
        self._setting = setting
        self._offset = 0.0

    async def __call__(self, fault: Fault) -> str:
        self._offset += float(fault.detail)
        self._setting.write_text(f"{self._offset:+g}\n")
        await asyncio.sleep(fault.seconds)
        return f"{self._offset:+g}"
