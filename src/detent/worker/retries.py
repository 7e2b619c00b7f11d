"""When the retries of this worker's runs are due, so that it claims them then and not at its next poll.

The database decides when a run is due, by its own clock, and a timer may come early: a claim that is a fraction of a
millisecond too soon finds nothing. So a claim counts only if it began `SLACK` after the time; until then another
follows.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Sequence

from detent.runtime.clock import monotonic

SLACK = 0.05
# Beyond that, polling finds them.
MOST = 100_000


class Retries:
    def __init__(self, wake: Callable[[], None]) -> None:
        """`wake`: begin a pass of the worker."""
        self._wake = wake
        self._due: list[float] = []

    def add(self, delays: Sequence[float]) -> None:
        """Runs are due after these seconds. One timer for the first of them: the pass that it begins waits for the
        others."""
        if not delays:
            return
        now = monotonic()
        for seconds in delays[: max(MOST - len(self._due), 0)]:
            heapq.heappush(self._due, now + seconds)
        asyncio.get_running_loop().call_later(min(delays), self._wake)  # a hint: the loop's own pause counts too

    def claimed(self, began: float) -> None:
        """A claim that began then has found whatever was due."""
        while self._due and self._due[0] + SLACK <= began:
            heapq.heappop(self._due)

    def pause(self, longest: float) -> float:
        """How long to wait before the next claim."""
        if not self._due:
            return longest
        wait = self._due[0] - monotonic()
        return min(longest, wait if wait > 0 else max(wait + SLACK, 0.001))
