"""Runs that may have ended their node are tried alone, so that they harm no others and only their own crash counts.

When a node is lost, any run that it was executing may be the cause (a handler that calls os._exit, exhausts the
memory or crashes in native code). A run that was lost once runs as usual, and its start is recorded. A run that was
called when its node was lost, and had been lost before, is a suspect. A worker runs its suspects one at a time, the
most suspicious first:

    1. It starts nothing else and waits until nothing runs here, at most for `patience`.
    2. It starts the suspect and records that it is alone. If the node is lost now, that counts against the suspect.
    3. When the suspect has ended, or after a `window`, the others go on. A suspect that runs longer is recorded as
       accompanied first: the loss of its node no longer counts.

A suspect that has to start while others run, because they take longer than the patience lasts, is not recorded as
alone. So a run is never dead because another one crashed, and every suspect gets its turn. Patience and window double
with every loss, so a run that ends its node is alone when it does so after a few losses, however long it takes and
whatever else runs. Most runs that end their node do so at once, and are dead at the fourth loss.

The others are held for a short time only: after `MAX_HELD` seconds of trials they run for as long as they were held,
and runs that wait in memory for longer than `SHORT` are given back, so that other nodes can run them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from detent.cluster.membership import Membership
from detent.domain.run import Claim, HeldRun
from detent.errors import DetentError
from detent.runtime.clock import monotonic
from detent.runtime.service import backoff
from detent.runtime.wakeups import Wakeups
from detent.store import Store
from detent.telemetry.log import logger
from detent.worker.capacity import WorkerCapacity
from detent.worker.returns import Returns
from detent.worker.slots import Slots

log = logger("worker")

# The first loss is recorded as possible only, the second one as a loss after a start.
SUSPECT_FROM = 2
PATIENCE = 10.0
WINDOW = 5.0
MAX_HELD = 10.0
SHORT = 5.0
CHECK_EVERY = 0.02
TELL_EVERY = 1.0
MAX_DOUBLINGS = 20


def is_suspect(claim: Claim) -> bool:
    return claim.crashes >= SUSPECT_FROM


def doubled(seconds: float, claim: Claim) -> float:
    return float(seconds * 2.0 ** min(max(claim.crashes - SUSPECT_FROM, 0), MAX_DOUBLINGS))


class Trials:
    """The suspects of one worker."""

    def __init__(
        self,
        store: Store,
        membership: Membership,
        slots: Slots,
        capacity: WorkerCapacity,
        returns: Returns,
        wakeups: Wakeups,
    ) -> None:
        self._store = store
        self._membership = membership
        self._slots = slots
        self._capacity = capacity
        self._returns = returns
        self._wakeups = wakeups
        self._line: list[HeldRun] = []
        self._alone: HeldRun | None = None
        self._since = 0.0
        self._rest_until = 0.0
        self._gave_back = False
        self._untold = 0
        self._tell_from = 0.0
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._line)

    def add(self, held: HeldRun) -> None:
        self._line.append(held)
        self._line.sort(key=lambda each: -each.claim.crashes)
        if self._task is None or self._task.done():
            if monotonic() >= self._rest_until:
                self._hold()  # at once: runs that came together with it must not start before it
            self._task = asyncio.create_task(self._try_all())

    def clear(self) -> None:
        """The caller gives back those that have not begun."""
        self._line.clear()

    async def stop(self, seconds: float) -> None:
        """The node leaves cleanly: that must not count as a loss against the run that is tried."""
        alone = self._alone
        await self.abort()
        if alone is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._accompany(alone)

    async def abort(self) -> None:
        """The node is lost. Nothing is written: the loss counts against the run that is tried."""
        self.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _try_all(self) -> None:
        """No wait here depends on a wake-up: each checks its condition again and again."""
        try:
            while self._line:
                await asyncio.sleep(max(self._rest_until - monotonic(), 0.0))
                if self._line:
                    self._hold()
                    await self._try(self._line[0])
                if monotonic() - self._since >= MAX_HELD:
                    self._release()
        finally:
            self._release()

    async def _try(self, held: HeldRun) -> None:
        await self._until(lambda: self._slots.settled_down or held not in self._line, doubled(PATIENCE, held.claim))
        if held not in self._line:
            return
        self._line.remove(held)
        alone = held.alone = self._slots.quiet
        if alone:
            self._alone = held
        else:
            self._release()
        self._say(held.claim, alone=alone)
        self._slots.begin_alone(held)
        try:
            await self._until(lambda: held.task is None, doubled(WINDOW, held.claim))
            if alone:
                await self._accompany(held)
        finally:
            held.alone = False
            self._alone = None

    def _say(self, claim: Claim, *, alone: bool) -> None:
        """Once a second: when a fleet was lost, thousands of harmless suspects are tried one after the other."""
        self._untold += 1
        if monotonic() < self._tell_from:
            return
        log.warning(
            "a run whose nodes were lost is tried", job_number=claim.job, crashes=claim.crashes, alone=alone,
            tried=self._untold,
        )  # fmt: skip
        self._untold, self._tell_from = 0, monotonic() + TELL_EVERY

    async def _accompany(self, held: HeldRun) -> None:
        """Record that others are about to start: retried until it is done, the run is over, or the membership lost."""
        failures = 0
        while held.task is not None and self._membership.trusted:
            try:
                await self._store.live_runs.accompany(self._membership.node, held.claim)
                return
            except DetentError as error:
                failures += 1
                log.info("a run is tried alone for longer", job_number=held.claim.job, error=str(error))
                await asyncio.sleep(backoff(failures))

    # --- the others ---

    def _hold(self) -> None:
        """While a suspect is tried, or waits for that, nothing else is started."""
        if not self._capacity.on_trial:
            self._capacity.on_trial, self._since, self._gave_back = True, monotonic(), False

    def _release(self) -> None:
        """Let the other runs start again; the next trial waits for as long as they had to wait."""
        if self._capacity.on_trial:
            now = monotonic()
            self._capacity.on_trial, self._rest_until = False, now + (now - self._since)
            self._slots.fill()
            self._wakeups.capacity_freed()
            self._wakeups.runs_ready()

    async def _until(self, true: Callable[[], bool], seconds: float) -> None:
        end = monotonic() + seconds
        while not true() and monotonic() < end:
            if self._capacity.on_trial and not self._gave_back and monotonic() - self._since > SHORT:
                self._gave_back = True
                await self._returns.give_back_once(self._slots.take_waiting(keep=is_suspect))
                self._wakeups.runs_given_back()
            await asyncio.sleep(CHECK_EVERY)
