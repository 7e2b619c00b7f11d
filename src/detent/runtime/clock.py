"""An estimate of the database's clock that needs no query per tick.

Each heartbeat returns a sample: the server read its clock between sending and receiving. When the sample arrives, the
server's time is therefore *at least* the sampled time. Adding the monotonic time since then gives a lower bound of the
server's current time. The largest bound of the recent samples is the closest one. A lower bound ensures that no fire is
sent before it is due on the server's clock. The node's own wall clock is not used.

The heartbeat's thread writes the samples and the loops read them: the tuple is replaced, never changed.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from detent.domain.identity import EPOCH

SAMPLES_KEPT = 6
STEP_BACK = timedelta(milliseconds=100)


monotonic = time.monotonic


def wall() -> datetime:
    return datetime.now(UTC)


class DatabaseClock:
    def __init__(self) -> None:
        self._samples: tuple[tuple[float, float], ...] = ()
        self._lead = 0.0
        self.offset = 0.0

    def observe(self, server_time: datetime, received: float, round_trip: float) -> None:
        """`received` is the monotonic time at which `server_time` arrived."""
        lead = (server_time - EPOCH).total_seconds() - received
        if self._samples and lead < self._lead - STEP_BACK.total_seconds() - round_trip:
            self._samples = ()  # the server's clock stepped back: earlier samples are no longer valid
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
