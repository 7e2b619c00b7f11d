"""A watch over the database's clock, for the lifetime of the process.

Ticks are due by that clock. When it steps forward by a day, a day's ticks are due at once; when it steps back by a day,
none is due for a day. So a step beyond the limit holds all ticks until an operator has checked. A
smaller step is accepted: late ticks are late, and a wheel that is ahead is turned back.

A step is the difference between what that clock and this machine's steady clock advanced between two heartbeats. The
steady clock counts suspended time, so a laptop that was closed sees no step. Some machines sleep without counting:
afterwards the database's clock seems to have stepped, while other nodes saw none. A node that suspects a step therefore
first checks whether another node has been steady for a while (`hold_for_clock.sql`).

A step makes all leases look ended: nodes evict each other, memberships are lost, sessions restart. So the watch belongs
to the process and not to any of these.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta

from detent.store.heartbeat import ExpectedClock

# Counts suspended time where the system has such a clock. macOS counts it in this one, too.
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def steady_seconds() -> float:
    return time.clock_gettime(_STEADY)


class ClockWatch:
    """Used by one heartbeat at a time. `limit_seconds` 0: no limit."""

    def __init__(self, limit_seconds: float, seconds: Callable[[], float] = steady_seconds) -> None:
        self._limit = timedelta(seconds=limit_seconds)
        self._seconds = seconds
        self._last: tuple[datetime, float] | None = None
        self._steady_since: datetime | None = None
        self.offset_logged = False

    @property
    def limit(self) -> timedelta:
        return self._limit

    @property
    def new(self) -> bool:
        """Whether it has observed no time yet."""
        return self._last is None

    def expectation(self) -> ExpectedClock:
        return ExpectedClock(self._expected(), self._limit, self._steady_since)

    def step(self, at: datetime) -> timedelta | None:
        """How far the clock stepped, if that is beyond the limit."""
        expected = self._expected()
        if expected is None or abs(at - expected) <= self._limit:
            return None
        return at - expected

    def observe(self, at: datetime) -> None:
        """Record a time that has just arrived from the database."""
        self._last = (at, self._seconds())
        if self._steady_since is None:
            self._steady_since = at

    def begin_again(self) -> None:
        """A step was handled: trust the next time."""
        self._last = self._steady_since = None

    def _expected(self) -> datetime | None:
        if self._last is None or not self._limit:
            return None
        at, seconds = self._last
        return at + timedelta(seconds=self._seconds() - seconds)
