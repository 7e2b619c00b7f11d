"""Does to a cluster what the plan says, each thing at its moment, and notes what was done and when."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import nullcontext

from tests.support.fleet.members import Fleet, Member
from tests.support.fleet.network import Link, Links
from tests.support.fleet.plans import Fault, Plan
from tests.support.fleet.records import Done
from tests.support.fleet.servers import Server
from tests.support.waiting import until

STOP_SECONDS = 30.0


class Nemesis:
    """`server` and `links` are there for those scenarios that touch them."""

    def __init__(self, fleet: Fleet, server: Server, links: Links, of_member: dict[str, Link]) -> None:
        self._fleet = fleet
        self.server = server
        self._links = links
        self._of_member = of_member
        # Nobody can be killed who is not there: what is done to one place is done one after another.
        self._busy: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.done: list[Done] = []
        # When jobs were paused for a moment: a tick that falls into one of these may be there or not.
        self.gaps: list[tuple[float, float]] = []
        self.deeds: dict[str, Callable[[Fault], Awaitable[str]]] = {
            "kill": self._kill,
            "stop": self._stop,
            "stop-at": self._stop_at,
            "exit-at": self._exit_at,
            "cut": self._cut,
            "restart-database": self._restart_database,
            "kill-backend": self._kill_backend,
            "join": self._join,
            "leave": self._leave,
        }

    async def perform(self, plan: Plan) -> None:
        """All of it; returns when the last fault is over and what it hit is running again."""
        # From a whole second on, for that is when runs begin: a plan can choose to strike while they are under way.
        await asyncio.sleep(-time.time() % 1)
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for fault in plan.faults:
                group.create_task(self._at_its_moment(fault, began))

    async def _at_its_moment(self, fault: Fault, began: float) -> None:
        await asyncio.sleep(max(0.0, began + fault.at - time.monotonic()))
        async with self._busy[fault.target] if fault.target else nullcontext():
            begun = time.time()
            note = await self.deeds[fault.action](fault)
            self.done.append(Done(fault, begun, time.time(), note))

    def _member(self, fault: Fault) -> Member:
        return self._fleet[fault.target]

    # --- processes ---

    async def _kill(self, fault: Fault) -> str:
        member = self._member(fault)
        await member.kill()
        await asyncio.sleep(fault.seconds)
        await member.start()
        return ""

    async def _stop(self, fault: Fault) -> str:
        node = self._member(fault).node
        node.send(signal.SIGSTOP)
        await asyncio.sleep(fault.seconds)
        node.send(signal.SIGCONT)
        return ""

    async def _stop_at(self, fault: Fault) -> str:
        """The process is replaced, politely, by one that stops itself at a step; then it is woken again."""
        member = self._member(fault)
        await member.end()
        node = await member.start_to_stop(fault.detail)
        stopped = time.time()
        await asyncio.sleep(fault.seconds)
        node.send(signal.SIGCONT)
        await node.ready()
        return f"stopped at {stopped:.3f}"

    async def _exit_at(self, fault: Fault) -> str:
        """The process is replaced, politely, by one that dies at a step, as with kill -9; then by a sound one."""
        member = self._member(fault)
        await member.end()
        await member.start_to_die(fault.detail)
        await asyncio.sleep(fault.seconds)
        await member.start()
        return ""

    async def _join(self, fault: Fault) -> str:
        await self._member(fault).start()
        return ""

    async def _leave(self, fault: Fault) -> str:
        member = self._member(fault)
        member.left = True
        code = await member.end()
        return f"exit code {code}"

    # --- the database and the way to it ---

    async def _cut(self, fault: Fault) -> str:
        which, how = fault.detail.split()
        link = self._of_member[fault.target]
        self._links.cut(link, which, how)
        await asyncio.sleep(fault.seconds)
        self._links.heal(link)
        return ""

    async def _restart_database(self, fault: Fault) -> str:
        await self.server.restart(fault.detail)
        return ""

    async def _kill_backend(self, fault: Fault) -> str:
        pid = await self.server.kill_backend()
        await until(self.server.answers, STOP_SECONDS, "the server to recover")
        return f"process {pid}"
