"""The database's clock, as a node can know it without asking for every tick.

Each heartbeat brings a sample: the server read its clock at some moment between sending and receiving. At the moment
of receiving, the server's time was therefore *at least* what it said. Adding the monotonic time since then gives a
lower bound of the server's time now, and the largest bound of the recent samples is the best one. A lower bound, so
that a fire is never sent before the server agrees that it is due. The node's own wall clock plays no part.

Samples come from the heartbeat's thread and are read by the loops: a tuple is replaced, never changed.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from detent.domain.identity import EPOCH

SAMPLES_KEPT = 6
STEP_BACK = timedelta(milliseconds=100)


def monotonic() -> float:
    return time.monotonic()


def wall() -> datetime:
    return datetime.now(UTC)


class DatabaseClock:
    def __init__(self) -> None:
        self._samples: tuple[tuple[float, float], ...] = ()
        self._lead = 0.0
        self.offset = 0.0

    def observe(self, server_time: datetime, received: float, round_trip: float) -> None:
        """`received` is the monotonic time at which `server_time` had arrived."""
        lead = (server_time - EPOCH).total_seconds() - received
        if self._samples and lead < self._lead - STEP_BACK.total_seconds() - round_trip:
            self._samples = ()  # the server's clock stepped back: what earlier samples promised no longer holds
        self._samples = (*self._samples[-(SAMPLES_KEPT - 1) :], (lead, received))
        self._lead = max(sample for sample, _ in self._samples)
        self.offset = wall().timestamp() - self.seconds()

    @property
    def known(self) -> bool:
        return bool(self._samples)

    def seconds(self) -> float:
        """Seconds since 1970 on the database's clock, never ahead of it."""
        return monotonic() + self._lead

    def milliseconds(self) -> int:
        return int(self.seconds() * 1000)

    def now(self) -> datetime:
        return datetime.fromtimestamp(monotonic() + self._lead, UTC)
