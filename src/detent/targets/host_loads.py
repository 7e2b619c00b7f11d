"""How many calls to each host are under way: a host that does not answer must not hold all slots of a worker.

Until enough calls have timed out to open its circuit, every call to a host that hangs holds a slot. So the last slots,
the headroom, are kept from a host that has not answered lately, unless it is the only one that this worker calls. It
leaves as many slots free as it holds itself; with 100 slots and a headroom of 20, a host that hangs holds 80, the next
one 10 of the other 20, and hosts that answer find the rest. Runs beyond that wait in their queue for a moment, and use
up no attempt.

A host that answers is never limited, and neither is any host while slots outside of the headroom are free.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from detent.domain.shares import headroom_slots
from detent.runtime.clock import monotonic
from detent.targets.called_hosts import HostKey

# Silent is a host without an answer for so long, or for twice as long as its last answer took.
ANSWERED_WITHIN = 5.0
FIRST_RETURN = 1.0
# Runs that wait for one host come back at no more than this rate, unless that takes longer than the longest return.
RETURNS_PER_SECOND = 500.0
LONGEST_RETURN = 10.0
# A host without calls for so long is forgotten.
FORGOTTEN_SECONDS = 600.0


class HostLoad:
    """The calls to one host."""

    __slots__ = ("answered_at", "inside", "put_off", "took", "used_at")

    def __init__(self, now: float) -> None:
        self.inside = 0
        self.used_at = now
        self.answered_at = float("-inf")
        self.took = 0.0
        self.put_off = 0  # since the last answer


class HostLoads:
    """`slots`: how many calls the worker makes at once; `headroom`: the part of them that silent hosts leave free. 0
    for either turns the limit off."""

    def __init__(self, slots: int = 0, headroom: float = 0.0, *, clock: Callable[[], float] = monotonic) -> None:
        self._slots = slots
        self._headroom = headroom_slots(slots, headroom)
        self._many = slots - self._headroom if self._headroom and slots > 1 else float("inf")
        self._clock = clock
        self._loads: dict[HostKey, HostLoad] = {}
        self._inside = 0

    @property
    def crowded(self) -> bool:
        """Whether only the headroom is left: otherwise `waiting_time` need not be called."""
        return self._inside >= self._many

    def began(self, key: HostKey) -> HostLoad:
        """Count a call, which is to be `ended`."""
        load = self._loads.get(key) or self._new(key)
        load.inside += 1
        self._inside += 1
        return load

    def _new(self, key: HostKey) -> HostLoad:
        load = self._loads[key] = HostLoad(self._clock())
        return load

    def ended(self, load: HostLoad, began: float, answered: bool) -> None:
        load.inside -= 1
        self._inside -= 1
        load.used_at = now = self._clock()
        if answered:
            load.answered_at, load.took, load.put_off = now, now - began, 0

    def waiting_time(self, key: HostKey) -> float:
        """0: a further call may begin. Otherwise the seconds after which its run may be claimed again."""
        load = self._loads.get(key) or self._new(key)
        free = self._slots - self._inside
        most = max(free, self._headroom // 4, 1)
        if free > self._headroom or load.inside < most or len(self._loads) < 2 or not self._is_silent(load):
            return 0.0
        load.put_off += 1
        spread = min(load.put_off / RETURNS_PER_SECOND, LONGEST_RETURN)
        return FIRST_RETURN + spread * random.random()

    def forget_unused(self) -> None:
        before = self._clock() - FORGOTTEN_SECONDS
        for key in [key for key, load in self._loads.items() if not load.inside and load.used_at < before]:
            del self._loads[key]

    def _is_silent(self, load: HostLoad) -> bool:
        return self._clock() - load.answered_at > max(ANSWERED_WITHIN, 2 * load.took)
