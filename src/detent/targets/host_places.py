"""At most so many calls to a host at the same time, in this process.

A call over the limit must not keep a slot of the worker that runs for other hosts could use. A few wait here for a
moment, so that a place that becomes free is used at once. The others return to their queue until their turn is
expected. Each gets a turn of its own, the mean time of a call after the turn before it: so they come back as fast as
the host answers, in the order in which they came, and not all at the same time again and again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import NamedTuple

from detent.runtime.clock import monotonic

MOST_WAITERS = 4
LONGEST_WAIT = 1.0
SHORTEST_RETURN = 0.2
LONGEST_RETURN = 60.0
# Until a call has ended: too small a number costs a return more, too large a one an idle host.
EXPECTED_SECONDS = 0.2
NEWEST_SHARE = 0.2
MANY_HOSTS = 1000

LimitKey = tuple[int | None, str, int]
"""The tenant, None for all of them; host and port."""


class HostLimit(NamedTuple):
    key: LimitKey
    limit: int


class _HostLine:
    """The calls to one host."""

    __slots__ = ("free_at", "inside", "mean", "waiting")

    def __init__(self) -> None:
        self.inside = 0
        self.waiting: list[tuple[int, asyncio.Future[None]]] = []
        self.mean = EXPECTED_SECONDS
        self.free_at = 0.0

    def admit(self) -> None:
        for waiter in list(self.waiting):
            limit, turn = waiter
            if not turn.done() and self.inside < limit:
                self.waiting.remove(waiter)
                self.inside += 1
                turn.set_result(None)


class HostPlaces:
    """Used on the node's loop only."""

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        self._now = now
        self._lines: dict[LimitKey, _HostLine] = {}

    async def enter(self, limits: list[HostLimit], patience: float) -> float:
        """0: the call may begin, and must `leave`. Otherwise the seconds after which it may try again."""
        taken: list[HostLimit] = []
        try:
            for each in limits:
                if not await self._enter(each, min(patience, LONGEST_WAIT)):
                    return self._turn(each)
                taken.append(each)
            taken = []  # the call has them now
            return 0.0
        finally:
            self._release(taken)  # also if it is cancelled while it waits for the next one

    def leave(self, limits: list[HostLimit], seconds: float | None) -> None:
        """`seconds`: how long the call took; None: the host was not called."""
        if seconds is not None:
            for key, _ in limits:
                line = self._lines[key]
                line.mean += NEWEST_SHARE * (seconds - line.mean)
        self._release(limits)

    async def _enter(self, wanted: HostLimit, patience: float) -> bool:
        line = self._lines.get(wanted.key) or self._open(wanted.key)
        if line.inside < wanted.limit and not line.waiting:
            line.inside += 1
            return True
        if len(line.waiting) >= min(wanted.limit, MOST_WAITERS):
            return False
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter = (wanted.limit, turn)
        line.waiting.append(waiter)
        line.admit()  # those before it may all have smaller limits
        try:
            async with asyncio.timeout(patience):
                await turn
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            if waiter not in line.waiting:  # its turn has come
                self._release([wanted])
            else:
                line.waiting.remove(waiter)
            raise
        if waiter not in line.waiting:
            return True
        line.waiting.remove(waiter)
        return False

    def _release(self, limits: list[HostLimit]) -> None:
        for key, _ in limits:
            line = self._lines[key]
            line.inside -= 1
            line.admit()

    def _turn(self, wanted: HostLimit) -> float:
        """The seconds until the call's turn is expected, spread where the line is too long to be expected."""
        line, now = self._lines[wanted.key], self._now()
        line.free_at = max(line.free_at, now) + line.mean / wanted.limit
        if line.free_at > now + LONGEST_RETURN:
            line.free_at = now + LONGEST_RETURN
            return LONGEST_RETURN * random.uniform(0.5, 1.0)
        return max(line.free_at - now, SHORTEST_RETURN)

    def _open(self, key: LimitKey) -> _HostLine:
        if len(self._lines) >= MANY_HOSTS:
            now = self._now()
            for old in [old for old, line in self._lines.items() if not line.inside and not line.waiting]:
                if self._lines[old].free_at <= now:
                    del self._lines[old]
        line = self._lines[key] = _HostLine()
        return line
