"""A call of a handler: from the node's loop to where the handler runs, and back as an outcome.

A call may have to wait for a thread or for the handlers' loop. Until it begins, the run has not been called: its time
limit does not count, and after `begin_within` seconds the node takes the call back, so that the run can return to its
queue. Either the handler's side begins the call or the node withdraws it, never both: one lock decides.

Where calls wait too long the lane is short of capacity. The node then claims no runs for it until a probe, which waits
in line like a call, has come through.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from detent.domain.run import Failed, NotBegun, Outcome
from detent.runtime.clock import monotonic
from detent.targets.gate import TenantGate
from detent.targets.handover import Handover
from detent.telemetry.log import logger

log = logger("python")

BEGIN_WITHIN = 5.0
_MOMENT = 0.001


class Lane:
    """Where handlers are called: threads, a loop, or processes. Used on the node's loop only."""

    def __init__(
        self, why: str, submit: Callable[[Callable[[], None]], object], gate: TenantGate | None = None
    ) -> None:
        """`why`: a sentence that says what is missing while this lane is short. `gate`: how tenants share it, where
        fewer calls than slots can run."""
        self.why = why
        self.gate = gate
        self.short = False
        self.changed: Callable[[], None] = lambda: None
        self._submit = submit

    def run_short(self) -> None:
        """A call could not begin in time. The lane is short until a probe has begun."""
        if not self.short:
            log.warning("no capacity for handlers: runs return to their queues", why=self.why)
            self.short = True
            self.changed()
            self._submit(partial_threadsafe(self._recovered))

    def _recovered(self) -> None:
        log.info("there is capacity for handlers again", why=self.why)
        self.short = False
        self.changed()


def partial_threadsafe(callback: Callable[[], None]) -> Callable[[], None]:
    """A function for other threads that calls `callback` on the running loop."""
    loop = asyncio.get_running_loop()

    def call() -> None:
        with suppress(RuntimeError):  # the loop is closed: the node has ended
            loop.call_soon_threadsafe(callback)

    return call


class Capacity:
    """Which handlers of a node cannot be called. The worker claims no runs for them; /readyz shows why runs wait."""

    def __init__(self, lanes: Sequence[Lane] = (), needed: Callable[[str], Sequence[Lane]] = lambda needs: ()) -> None:
        """`needed`: the lanes that runs with these needs are called through."""
        self._lanes = lanes
        self._needed = needed
        self.version = 0
        self.notify: Callable[[], None] = lambda: None
        self.gates = [lane.gate for lane in lanes if lane.gate is not None]
        for lane in lanes:
            lane.changed = self._changed
        for gate in self.gates:
            gate.changed = self._changed

    def share_among(self, weights: Mapping[int, int]) -> None:
        """These tenants have jobs for this node."""
        for gate in self.gates:
            gate.share_among(weights)

    def lacks(self, needs: str, tenant: int) -> bool:
        lanes = self._needed(needs)
        return any(lane.short or (lane.gate is not None and lane.gate.is_short(tenant)) for lane in lanes)

    def shortages(self) -> list[str]:
        return [lane.why for lane in self._lanes if lane.short]

    def _changed(self) -> None:
        self.version += 1
        self.notify()


class HandlerCall:
    """One call. `begin`, `interruptible` and `end` are for the handler's side, everything else for the node's loop."""

    def __init__(
        self, timeout_seconds: float, begin_within: float, back: Handover, over: Callable[[], None] | None = None
    ) -> None:
        """`back`: to the node's loop. `over` is called once, on that loop: when the handler has returned, whether or
        not anything still waits for that, or when the call is withdrawn."""
        self._loop = asyncio.get_running_loop()
        self._back = back
        self._when_over = over
        self._over: asyncio.Future[Outcome | NotBegun] = self._loop.create_future()
        self._decided = threading.Lock()
        self._begun_at: float | None = None
        self._abandoned = False
        self._interrupts: list[Callable[[], object]] = []  # taken from it by whichever side is first
        self._timeout = timeout_seconds
        self._begin_by = monotonic() + begin_within

    # --- the handler's side, in its own thread ---

    def begin(self) -> bool:
        """False: the node has withdrawn the call, and the handler must not be called."""
        if not self._decided.acquire(blocking=False):
            return False
        self._begun_at = monotonic()
        return True

    def interruptible(self, interrupt: Callable[[], object]) -> None:
        """How the call can be interrupted from now on. `interrupt` is called once at most, on either side."""
        self._interrupts.append(interrupt)
        if self._abandoned:
            self._interrupt()

    def end(self, outcome: Outcome) -> None:
        self._back.hand(self._set, outcome)

    # --- the node's side ---

    async def wait(self, lane: Lane) -> Outcome | NotBegun:
        """Wait until the call ends, times out, or is withdrawn because it could not begin."""
        self._lane = lane
        self._check_in(min(self._timeout, self._begin_by - monotonic()))
        try:
            return await self._over
        except asyncio.CancelledError:
            if not self._withdraw():
                self._abandon()
            raise
        finally:
            self._timer.cancel()

    def _check_in(self, seconds: float) -> None:
        self._timer = self._loop.call_later(max(seconds, _MOMENT), self._check)

    def _check(self) -> None:
        """A timer may be early, and the call may begin at this moment: then check again."""
        now = monotonic()
        deadline = self._begin_by if self._begun_at is None else self._begun_at + self._timeout
        if self._over.done():
            return
        if now < deadline:
            self._check_in(deadline - now)
        elif self._begun_at is not None:
            self._abandon()
            self._over.set_result(timed_out(self._timeout))
        elif self._withdraw():
            self._lane.run_short()
            self._over.set_result(NotBegun(self._lane.why))
        else:
            self._check_in(_MOMENT)

    def _withdraw(self) -> bool:
        """True: the call has not begun, and never will."""
        withdrawn = self._decided.acquire(blocking=False)
        if withdrawn and self._when_over is not None:
            self._when_over()
        return withdrawn

    def _abandon(self) -> None:
        """Interrupt a call that has begun, if possible; its outcome is ignored."""
        self._abandoned = True
        self._interrupt()

    def _interrupt(self) -> None:
        """A second interruption would meet the handler while it cleans up."""
        try:
            interrupt = self._interrupts.pop()
        except IndexError:
            return
        interrupt()

    def _set(self, outcome: Outcome) -> None:
        if self._when_over is not None:
            self._when_over()
        if not self._over.done():
            self._over.set_result(outcome)


def timed_out(seconds: float) -> Failed:
    return Failed(f"No answer within {seconds:g} s.", outcome="timeout")
