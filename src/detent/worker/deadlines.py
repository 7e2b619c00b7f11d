"""Deadlines of runs: one timer for all of them, because one for each was a tenth of what a run costs.

Runs with the same time limit reach it in the order in which they began, and there are few different limits. So there is
a line for each limit, and only the heads of the lines are checked.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from detent.runtime.clock import monotonic

Item = TypeVar("Item")

# How many ended runs may remain in line. Checking them one by one as others came took a twelfth of the cost of a run.
MAX_OVER = 5_000


class Deadlines(Generic[Item]):
    def __init__(self, waits: Callable[[Item], bool], expire: Callable[[Item], None]) -> None:
        """`waits`: whether the run is still under way. `expire`: its time limit is reached."""
        self._waits = waits
        self._expire = expire
        self._lines: dict[float, deque[tuple[float, Item]]] = {}
        self._added = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    def add(self, item: Item, seconds: float) -> None:
        """Most runs end long before their deadline: these are removed in batches."""
        at = monotonic() + seconds
        try:
            self._lines[seconds].append((at, item))
        except KeyError:
            self._lines[seconds] = deque(((at, item),))
        self._added += 1
        if self._added >= MAX_OVER:
            self._remove_over()
        if self._timer is None or at < self._timer_at:
            self._set_timer(at)

    def _remove_over(self) -> None:
        self._added = 0
        for seconds, line in self._lines.items():
            self._lines[seconds] = deque(entry for entry in line if self._waits(entry[1]))

    def close(self) -> None:
        self._lines.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer, self._timer_at = loop.call_later(max(at - monotonic(), 0.0), self._check), at

    def _check(self) -> None:
        now = monotonic()
        self._timer = None
        for seconds, line in list(self._lines.items()):
            self._advance(line, now)
            if not line:
                del self._lines[seconds]
        if self._lines:
            self._set_timer(min(line[0][0] for line in self._lines.values()))

    def _advance(self, line: deque[tuple[float, Item]], now: float) -> None:
        while line and (line[0][0] <= now or not self._waits(line[0][1])):
            item = line.popleft()[1]
            if self._waits(item):
                self._expire(item)
