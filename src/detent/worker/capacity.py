"""How many more runs a worker can take.

Up to `concurrency` runs execute at once. The same number may wait in memory, so that a free slot need not ask the
database. If no other worker could take them and runs end quickly, more may wait: as many as ended in the last moment,
or so far in this one: a worker that was idle reaches its full pace within milliseconds.
A hundred slots then execute a hundred thousand ticks as fast as thousands of slots would. A run that has ended but is
not written yet takes no capacity, unless the writing falls far behind.
"""

from __future__ import annotations

from detent.runtime.clock import monotonic

MOMENT = 0.07
MAX_UNWRITTEN = 10_000


class WorkerCapacity:
    def __init__(self, concurrency: int, *, draining: bool = False) -> None:
        self.concurrency = concurrency
        self.reserved = 0
        # Other nodes or programs have workers: they could run what waits here.
        self.others_work = False
        # Why nothing new is started: the node stops, it drains, or a suspect is tried alone.
        self.closed = False
        self.draining = draining
        self.on_trial = False
        self._unwritten = 0
        self._over = 0
        self._since = monotonic()
        self._pace = 0

    @property
    def starts(self) -> bool:
        """Whether runs are started, and new ones taken in."""
        return not self.closed and not self.draining and not self.on_trial

    @property
    def max_waiting(self) -> int:
        """How many runs may wait for a slot."""
        return self.concurrency if self.others_work else max(self.concurrency, self._pace, self._over)

    @property
    def accepts(self) -> bool:
        """Whether a run that has a slot may be taken in, however many others wait."""
        return self._unwritten <= MAX_UNWRITTEN and self.starts

    def free(self, held: int) -> int:
        """The unwritten runs among this many held ones."""
        self._measure_pace()
        if not self.accepts:
            return 0
        return max(0, self.concurrency + self.max_waiting - (held - self._unwritten) - self.reserved)

    def over(self) -> None:
        """A run is over, and is to be written."""
        self._unwritten += 1
        self._over += 1

    def written(self, runs: int) -> None:
        self._unwritten -= runs

    def _measure_pace(self) -> None:
        now = monotonic()
        if now - self._since >= MOMENT:
            self._pace = int(self._over * MOMENT / (now - self._since))
            self._since, self._over = now, 0
