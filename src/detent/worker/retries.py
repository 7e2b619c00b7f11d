"""When runs that this worker has put off are due again, so that it looks for them then and not at its next poll.

The database decides when a run is due, by its own clock, and a timer may come early: a look that is a fraction of a
millisecond too soon finds nothing. So a look counts only once it began `SLACK` after the time, and until then there is
another one.
"""

from __future__ import annotations

import heapq

from detent.runtime.clock import monotonic

SLACK = 0.05
# Beyond that, polling finds them.
MOST = 100_000


class Retries:
    def __init__(self) -> None:
        self._due: list[float] = []

    def add(self, at: float) -> None:
        if len(self._due) < MOST:
            heapq.heappush(self._due, at)

    def looked(self, began: float) -> None:
        """A claim that began then has found whatever was due."""
        while self._due and self._due[0] + SLACK <= began:
            heapq.heappop(self._due)

    def pause(self, longest: float) -> float:
        """How long to wait before the next look."""
        if not self._due:
            return longest
        wait = self._due[0] - monotonic()
        return min(longest, wait if wait > 0 else max(wait + SLACK, 0.001))
