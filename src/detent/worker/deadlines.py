"""When runs must be over: one timer for all of them, because one for each was a tenth of what a run costs.

Runs that may take equally long come due in the order in which they began, and there are few different limits. So there
is a line for each limit, and only the heads of the lines are looked at.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Deadlines(Generic[Item]):
    def __init__(self, waits: Callable[[Item], bool], expire: Callable[[Item], None]) -> None:
        """`waits`: whether it still matters to this one. `expire`: its time has come."""
        self._waits = waits
        self._expire = expire
        self._lines: dict[float, deque[tuple[float, Item]]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    def add(self, item: Item, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        line = self._lines.get(seconds)
        if line is None:
            line = self._lines[seconds] = deque()
        # Most runs are over long before their time: who joins a line takes two of those with him that have left.
        for _ in range(2):
            if line and not self._waits(line[0][1]):
                line.popleft()
        at = loop.time() + seconds
        line.append((at, item))
        if self._timer is None or at < self._timer_at:
            self._set_timer(loop, at)

    def close(self) -> None:
        self._lines.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _set_timer(self, loop: asyncio.AbstractEventLoop, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = loop.call_at(at, self._look), at

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._timer = None
        for seconds, line in list(self._lines.items()):
            self._advance(line, now)
            if not line:
                del self._lines[seconds]
        if self._lines:
            self._set_timer(loop, min(line[0][0] for line in self._lines.values()))

    def _advance(self, line: deque[tuple[float, Item]], now: float) -> None:
        while line and (line[0][0] <= now or not self._waits(line[0][1])):
            item = line.popleft()[1]
            if self._waits(item):
                self._expire(item)
