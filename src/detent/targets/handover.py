"""Hands work from any thread to a loop, with one wake-up for all that is there by then.

To wake a loop of another thread is a system call, half of what it took to hand a run over (docs/benchmarks/python.md).
While many runs begin or end, the loop still has to take what was handed over before.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any


class Handover:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._woken = False

    def hand(self, work: Callable[..., object], *arguments: Any) -> None:
        """From any thread: call this on the loop, in order. Nothing is called once the loop is closed."""
        self._waiting.append((work, arguments))
        if not self._woken:  # two threads may both wake it, which does no harm
            self._wake()

    def _wake(self) -> None:
        self._woken = True
        with suppress(RuntimeError):  # it is closed: the node has ended
            self._loop.call_soon_threadsafe(self._take)

    def _take(self) -> None:
        """What comes from here on wakes the loop again: other tasks have their turn between."""
        self._woken = False
        waiting = self._waiting
        try:
            for _ in range(len(waiting)):
                work, arguments = waiting.popleft()
                work(*arguments)
        except BaseException:
            if waiting:
                self._wake()
            raise
