"""How a fire shares the work with the worker of its own node.

A tick that is handed off is written four times (cursor, run, its end, history). One that goes through the queue is
written a fifth time, when it is claimed: measured, that is 1,290 instead of 1,000 bytes of write-ahead log, and 50 %
more of the server's time. So when many ticks are due at once and this node's worker is full but quick, the fire waits
for it, a moment at a time. It does not wait where other workers could take the runs, nor for a worker that makes no
progress or holds no runs, nor when the ticks have waited long already: a tick that is not fired in time counts as
missed, a run in its queue does not.

Every pass of the scheduler decides anew whether to wait, and so does every wake-up for freed capacity. No timer is set:
one that came a fraction of a millisecond early would find that it has to wait, and if it was the only one, the tick
would never be sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from detent.domain.run import Claim
from detent.runtime.clock import monotonic
from detent.runtime.wakeups import Wakeups
from detent.store.cursors import Advance, Exceptional

# Longer than a server stops for a checkpoint: once ticks are in a queue, all later ones have to go there, too.
MOMENT = 1.0
# A worker is worth waiting for if it settles this many runs in a moment; it then has capacity for much of a batch.
QUICK = 100
ENOUGH = 500
LONGEST_SECONDS = 40.0


class Handoff(Protocol):
    """The worker of this node, as the fire sees it. `open_capacity`: how many runs of a queue it can take without
    overtaking runs that wait in that queue. `with_free_slot`: the tenants for which a slot is kept free, however many
    slots the others use. `busy`: it has runs, whose end frees capacity. `settled`: how many it has finished so far.
    `max_waiting`: how many may wait for a slot. `checks_backlog`: it is about to find out whether runs wait in queues,
    and has open capacity if none do."""

    @property
    def busy(self) -> bool: ...
    @property
    def settled(self) -> int: ...
    @property
    def max_waiting(self) -> int: ...

    def open_capacity(self, queue: int) -> int: ...
    def with_free_slot(self, tenants: Iterable[int]) -> set[int]: ...
    def serves(self, queue: int) -> bool: ...
    def checks_backlog(self) -> bool: ...
    def prefetch(self, jobs: Iterable[tuple[int, int]]) -> None: ...
    def reserve(self, queues: Sequence[int]) -> list[bool]: ...
    def release(self, count: int) -> None: ...
    def accept_handed_off(self, claims: Sequence[Claim]) -> None: ...


class Reservation:
    """Capacity of the worker for the runs of one batch. Whatever happens to the batch, the unused part is released."""

    def __init__(self, worker: Handoff | None, count: int) -> None:
        """Without a worker nothing is reserved: the runs go to their queues."""
        self._worker = worker
        self._left = count
        self.hand_off = worker is not None

    def accept(self, claims: Sequence[Claim]) -> None:
        if claims and self._worker is not None:
            self._left -= len(claims)
            self._worker.accept_handed_off(claims)

    def close(self) -> None:
        if self._left and self._worker is not None:
            self._worker.release(self._left)
            self._left = 0


_USUAL = Exceptional(0, 0, None)


def wait_for_slots(fired: Sequence[Advance], exceptions: Mapping[int, Exceptional]) -> list[tuple[Advance, int]]:
    """The ticks that became runs which wait for nothing but a slot, with their lanes: all of them in lane 0, but for
    the exceptions, by job."""
    if not exceptions:  # nearly always
        return [(item, 0) for item in fired]
    found = [(item, exceptions.get(item.cursor.job, _USUAL)) for item in fired]
    return [(item, one.lane) for item, one in found if one.lane is not None and one.lane >= 0 and one.why is None]


class WorkerWait:
    """Whether to wait for this node's worker before the next batch is sent."""

    def __init__(self, worker: Handoff | None, wakeups: Wakeups) -> None:
        self._worker = worker
        self._since: float | None = None
        self._settled = 0
        self._quick = True
        # Capacity for batches that are being sent, but have not reserved it yet.
        self.promised = 0
        # Other nodes or programs have workers: they could take the runs that this node delays.
        self._others_work = False
        wakeups.others_work.subscribe(self._set_others_work)

    def _set_others_work(self, others: bool) -> None:
        self._others_work = others

    def batch_limit(self, queue: int, late_seconds: float, most: int) -> int:
        """The maximum number of ticks to send now; 0: wait. `queue` and `late_seconds` are those of the first tick."""
        worker = self._worker
        if worker is None or self._others_work or late_seconds > LONGEST_SECONDS or not worker.serves(queue):
            return most
        capacity = worker.open_capacity(queue) - self.promised
        if capacity >= min(most, ENOUGH, worker.max_waiting):
            self._since = None
            return min(capacity, most)
        if not self.promised and not worker.busy and not worker.checks_backlog():
            return most  # nothing is under way that could free capacity
        return 0 if self._worthwhile(worker) else most

    def _worthwhile(self, worker: Handoff) -> bool:
        """Whether to wait for the worker: always in the first moment; then as long as it was quick in the last
        moment."""
        now = monotonic()
        if self._since is None:
            self._quick = True
        elif now - self._since < MOMENT:
            return self._quick
        else:
            self._quick = worker.settled - self._settled >= min(QUICK, worker.max_waiting)
        self._since, self._settled = now, worker.settled
        return self._quick
