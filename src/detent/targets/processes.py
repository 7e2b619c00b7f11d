"""A pool of handler processes, started on demand and reused.

Each executes one call at a time, so a process that dies, hangs or is killed fails one attempt and nothing else. It is
replaced when the next call needs one. A process ends after some time without calls, and after many calls, which bounds
what handlers leak.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from typing import Any

from detent.domain.run import Call, NotBegun, Outcome
from detent.runtime.clock import monotonic
from detent.settings.settings import Settings
from detent.targets.calls import BEGIN_WITHIN, Lane
from detent.targets.frames import Effects, Setup
from detent.targets.gate import TenantGate
from detent.targets.process import HandlerProcess, Hold, Receive, UnfitError
from detent.telemetry.log import logger

log = logger("process")

IDLE_SECONDS = 60.0
MAX_RUNS = 1_000
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0


class HandlerProcesses:
    """Used on the node's loop only."""

    def __init__(
        self,
        limit: int,
        setup: Setup,
        hold: Hold,
        *,
        begin_within: float = BEGIN_WITHIN,
        idle_seconds: float = IDLE_SECONDS,
        max_runs: int = MAX_RUNS,
        tenant_headroom: float = 0.0,
        receive: Receive = lambda message: None,
    ) -> None:
        """`hold` returns the claim under which the node holds the run of a call. `tenant_headroom`: as in the worker,
        of the processes. `receive` gets the lines and the progress of runs."""
        self._setup = setup
        self._hold = hold
        self._receive = receive
        self._begin_within = begin_within
        self._idle_seconds = idle_seconds
        self._max_runs = max_runs
        self._free = asyncio.Semaphore(limit)
        self._idle: list[HandlerProcess] = []
        self._all: set[HandlerProcess] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._reaper: asyncio.TimerHandle | None = None
        self._failures = 0
        self._gate = TenantGate(limit, tenant_headroom)
        self._full = Lane(f"All {limit} processes for handlers are busy.", self._probe, self._gate)
        self._unfit = Lane("No process for handlers could be started: the log says why.", self._probe_later)
        self.lanes = (self._full, self._unfit)

    async def __call__(self, call: Call) -> Outcome | NotBegun:
        short = next((lane for lane in self.lanes if lane.short), None)
        if short is not None:
            return NotBegun(short.why)
        if not await self._gate.enter(call.tenant, self._begin_within):
            return NotBegun("Its tenant holds its share of the processes for handlers.")
        try:
            return await self._in_turn(call)
        finally:
            self._gate.leave(call.tenant)

    async def _in_turn(self, call: Call) -> Outcome | NotBegun:
        try:
            async with asyncio.timeout(self._begin_within):
                await self._free.acquire()
        except TimeoutError:
            self._full.run_short()
            return NotBegun(self._full.why)
        try:
            return await self._run(call)
        finally:
            self._free.release()

    async def _run(self, call: Call) -> Outcome | NotBegun:
        """A process that died while idle may be noticed only by the call: then the call takes another."""
        while True:
            try:
                process = await self._take()
            except UnfitError as error:
                self._failed(str(error))
                return NotBegun(self._unfit.why)
            try:
                outcome = await process.run(call)
            finally:
                await self._return(process)
            if not isinstance(outcome, NotBegun):
                return outcome
            if process.runs == 1:
                self._failed(outcome.why)
                return outcome

    def _failed(self, why: str) -> None:
        self._failures += 1
        log.error("a handler process failed before its handler was called", error=why, failures=self._failures)
        self._unfit.run_short()

    async def _take(self) -> HandlerProcess:
        """The process used last, so that those not needed become idle for long."""
        while self._idle:
            process = self._idle.pop()
            if process.alive:
                return process
            await self._end(process)
        process = await HandlerProcess.start(self._setup, self._hold, self._receive)
        self._failures = 0
        self._all.add(process)
        return process

    async def _return(self, process: HandlerProcess) -> None:
        if not process.alive:
            await self._end(process)
        elif process.runs >= self._max_runs:
            self._begin(self._retire(process))
        else:
            process.idle_since = monotonic()
            self._idle.append(process)
            self._reap_later(self._idle_seconds)

    async def _end(self, process: HandlerProcess) -> None:
        await process.kill()
        self._all.discard(process)

    async def _retire(self, process: HandlerProcess) -> None:
        await process.retire()
        self._all.discard(process)

    def _reap_later(self, seconds: float) -> None:
        if self._reaper is None:
            self._reaper = asyncio.get_running_loop().call_later(seconds, self._reap)

    def _reap(self) -> None:
        """The list is ordered by last use, the oldest first."""
        self._reaper = None
        before = monotonic() - self._idle_seconds
        while self._idle and self._idle[0].idle_since <= before:
            self._begin(self._retire(self._idle.pop(0)))
        if self._idle:
            self._reap_later(max(self._idle[0].idle_since - before, 0.01))

    # --- whether there is capacity ---

    def _probe(self, free: Callable[[], None]) -> None:
        """Waits in line like a call."""
        self._begin(self._probe_after(0.0, free))

    def _probe_later(self, free: Callable[[], None]) -> None:
        """Let a run try again after a pause that grows."""
        self._begin(self._probe_after(min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(self._failures, 10)), free))

    async def _probe_after(self, seconds: float, free: Callable[[], None]) -> None:
        await asyncio.sleep(seconds)
        async with self._free:
            free()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Called when no run is left: processes that wait for calls end by themselves, with the hooks of their app."""
        if self._reaper is not None:
            self._reaper.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        waiting = set(self._idle)
        await asyncio.gather(*(each.retire() if each in waiting else each.kill() for each in self._all))


def handler_processes(settings: Settings, url: str, hold: Hold, receive: Receive) -> HandlerProcesses | None:
    """The lane of handler processes; None if there is no app to import."""
    if settings.app is None:
        return None
    effects = Effects(url, settings.database_schema, settings.lease_ttl_seconds, settings.pooled)
    setup = Setup(
        settings.app, effects, settings.max_result_bytes, settings.log_format, settings.log_level,
        hidden=bool(settings.allow_shell), run_log_bytes=settings.run_log_bytes,
    )  # fmt: skip
    automatic = min(settings.concurrency, max(4, 2 * (os.cpu_count() or 1)))
    limit = settings.handler_processes or automatic
    return HandlerProcesses(limit, setup, hold, tenant_headroom=settings.tenant_headroom, receive=receive)
