"""Counts partitions that this node takes again and again although no node joined or left: two nodes take turns with
them, or this one keeps losing its nominations. No I/O; time is an argument."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection

WITHIN = 3600.0


class Turns:
    def __init__(self) -> None:
        self._taken: deque[tuple[float, int]] = deque()
        self._changes: deque[float] = deque()
        self._schedulers: frozenset[int] | None = None

    def saw(self, schedulers: Collection[int], now: float) -> None:
        """Record the schedulers that share the partitions: each that joins, leaves, drains or resumes explains one
        change."""
        before, self._schedulers = self._schedulers, frozenset(schedulers)
        if before is not None:
            self._changes.extend([now] * len(before ^ self._schedulers))

    def took(self, partitions: Collection[int], now: float) -> None:
        self._taken.extend((now, partition) for partition in partitions)
        self._drop_old(now)

    def flapping(self, now: float) -> int:
        """How many partitions this node took in the last hour more often than changes of schedulers explain."""
        self._drop_old(now)
        counts = Counter(partition for _, partition in self._taken)
        return sum(count > 1 + len(self._changes) for count in counts.values())

    def _drop_old(self, now: float) -> None:
        while self._taken and self._taken[0][0] < now - WITHIN:
            self._taken.popleft()
        while self._changes and self._changes[0] < now - WITHIN:
            self._changes.popleft()
