"""When runs must be over: one timer for all of them, because one for each was a twentieth of what a run costs."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from itertools import count
from typing import Generic, TypeVar

Item = TypeVar("Item")

# Most runs are over long before their time. What they leave behind is swept out when there is more of it than this, and
# more than there is of those that go on.
KEPT = 10_000


class Deadlines(Generic[Item]):
    def __init__(self, waits: Callable[[Item], bool], expire: Callable[[Item], None]) -> None:
        """`waits`: whether it still matters to this one. `expire`: its time has come."""
        self._waits = waits
        self._expire = expire
        self._heap: list[tuple[float, int, Item]] = []
        self._numbers = count()
        self._sweep_at = KEPT
        self._timer: asyncio.TimerHandle | None = None

    def add(self, item: Item, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        heapq.heappush(self._heap, (loop.time() + seconds, next(self._numbers), item))
        if self._heap[0][2] is item:
            self._set_timer(loop)
        if len(self._heap) > self._sweep_at:
            self._sweep()

    def close(self) -> None:
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _sweep(self) -> None:
        self._heap = [entry for entry in self._heap if self._waits(entry[2])]
        heapq.heapify(self._heap)
        self._sweep_at = max(KEPT, 2 * len(self._heap))

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(self._heap[0][0], self._look)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._timer = None
        while self._heap and (self._heap[0][0] <= now or not self._waits(self._heap[0][2])):
            item = heapq.heappop(self._heap)[2]
            if self._waits(item):
                self._expire(item)
        if self._heap:
            self._set_timer(loop)
