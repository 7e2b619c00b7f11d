"""How the fire shares the work with the worker of its own node.

A tick that is handed off is written four times (cursor, run, its end, history); one that goes through the queue a fifth
time, when it is claimed: measured, 1,290 instead of 1,000 bytes of log and half as much again of the server's time. So
when many ticks are due at once and our own worker is full but quick, the fire waits for it, a moment at a time. It does
not wait where others could take the runs, nor for a worker that does not get on or has nothing in hand, nor when the
ticks have waited long already: a tick that is not fired in time counts as missed, a run in its queue does not.

Whether to wait is asked again by every pass of the scheduler and whenever the worker has room. No timer is set: a timer
that comes a fraction of a millisecond early is answered "wait", and if it was the only one, the tick is never sent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from detent.domain.run import Claim
from detent.runtime.clock import monotonic

# Long enough for a server that stops for a checkpoint: once ticks are in a queue, all that follow them have to be.
MOMENT = 1.0
# To be worth waiting for, a worker settles at least so many in a moment, and then has room for a good part of a batch.
QUICK = 100
ENOUGH = 500
LONGEST_SECONDS = 40.0


class Handoff(Protocol):
    """The co-located worker, as the fire sees it. `open_room`: for how many runs that bypass nobody. `busy`: it has
    runs in hand, whose end makes room. `settled`: how many it has ended so far. `breath`: how many it lets wait.
    `looks_first`: it is about to find out whether others wait, and to have room if none do."""

    @property
    def open_room(self) -> int: ...
    @property
    def busy(self) -> bool: ...
    @property
    def settled(self) -> int: ...
    @property
    def breath(self) -> int: ...

    def takes(self, queue: int) -> bool: ...
    def looks_first(self) -> bool: ...
    def foresee(self, jobs: Iterable[tuple[int, int]]) -> None: ...
    def reserve(self, queues: Sequence[int]) -> list[bool]: ...
    def release(self, count: int) -> None: ...
    def accept_handed_off(self, claims: Sequence[Claim]) -> None: ...


class CatchUps(Protocol):
    """The release of missed ticks, as the fire sees it."""

    @property
    def busy(self) -> bool: ...
    def begin(self, jobs: Collection[int], ticks: int) -> None: ...
    def pending(self, job: int) -> bool: ...
    def fired(self, jobs: Iterable[int]) -> None: ...


class Reservation:
    """Room in the worker for the runs of one batch; whatever happens to the batch, what was not used is given back."""

    def __init__(self, handoff: Handoff | None, count: int) -> None:
        self._handoff = handoff
        self._left = count

    def accept(self, claims: Sequence[Claim]) -> None:
        if claims and self._handoff is not None:
            self._left -= len(claims)
            self._handoff.accept_handed_off(claims)

    def close(self) -> None:
        if self._left and self._handoff is not None:
            self._handoff.release(self._left)
            self._left = 0


class Waiting:
    """Whether to wait for our own worker before the next batch is sent."""

    def __init__(self, handoff: Handoff | None) -> None:
        self._handoff = handoff
        self._since: float | None = None
        self._settled = 0
        self._quick = True
        # Room for batches that are under way, but have not reserved it yet.
        self.promised = 0
        # Nodes or programs that only work: what we keep back, they could run.
        self.others_work = False

    def batch(self, queue: int, late_seconds: float, most: int) -> int:
        """How many to send now, at most; 0 is to wait. Of the first tick in line: its queue, and how late it is."""
        handoff = self._handoff
        if handoff is None or self.others_work or late_seconds > LONGEST_SECONDS or not handoff.takes(queue):
            return most
        room = handoff.open_room - self.promised
        if room >= min(most, ENOUGH, handoff.breath):
            self._since = None
            return min(room, most)
        if not self.promised and not handoff.busy and not handoff.looks_first():
            return most  # nothing is under way that could make room
        return 0 if self._worthwhile(handoff) else most

    def _worthwhile(self, handoff: Handoff) -> bool:
        """For the first moment in any case; then for as long as the worker got on in the moment before."""
        now = monotonic()
        if self._since is None:
            self._quick = True
        elif now - self._since < MOMENT:
            return self._quick
        else:
            self._quick = handoff.settled - self._settled >= min(QUICK, handoff.breath)
        self._since, self._settled = now, handoff.settled
        return self._quick
