"""For how many more runs a worker has room.

Up to `concurrency` run at once. Besides, some wait in memory, so that a slot that is free need not ask the database: as
many as can run at once. Where no other worker could take them meanwhile, and runs are over quickly, as many as were
over in the last moment: a hundred slots then get through a hundred thousand ticks as fast as thousands of slots. A run
that is over but not yet written takes no room, unless the writing falls far behind.
"""

from __future__ import annotations

from detent.runtime.clock import monotonic

MOMENT = 0.07
MOST_UNWRITTEN = 10_000


class Room:
    def __init__(self, concurrency: int) -> None:
        self.concurrency = concurrency
        self.reserved = 0
        # Nodes or programs that only work: what waits here, they could run.
        self.others_work = False
        self._unwritten = 0
        self._over = 0
        self._since = monotonic()
        self._pace = 0

    @property
    def breath(self) -> int:
        """How many may wait for a slot."""
        return self.concurrency if self.others_work else max(self.concurrency, self._pace)

    def free(self, held: int) -> int:
        """With so many in hand, the unwritten among them."""
        self._look_at_pace()
        if self._unwritten > MOST_UNWRITTEN:
            return 0
        return max(0, self.concurrency + self.breath - (held - self._unwritten) - self.reserved)

    def over(self) -> None:
        """A run is over, and is to be written."""
        self._unwritten += 1
        self._over += 1

    def written(self) -> None:
        self._unwritten -= 1

    def _look_at_pace(self) -> None:
        now = monotonic()
        if now - self._since >= MOMENT:
            self._pace = int(self._over * MOMENT / (now - self._since))
            self._since, self._over = now, 0
