"""Whether the broker of a transport can be reached, as the parts of one node share it.

Schedulers and workers go on through PostgreSQL while it cannot. The first failure is logged and counted, then its end;
between them the broker is tried again with growing pauses. Nothing has to be told that it is back.

Some brokers answer and refuse all work: a Redis without memory, a RabbitMQ with an alarm. A broker that is lost again
soon after it came back is on trial from then on: it is used, but the failure is over only when it has been used for
`STEADY_SECONDS` without another one.
"""

from __future__ import annotations

import asyncio
import contextlib

from detent.runtime.clock import monotonic
from detent.runtime.service import Failing
from detent.telemetry.log import logger
from detent.telemetry.metrics import Metrics
from detent.transports.answering import words_of
from detent.transports.transport import Transport, TransportAwayError

log = logger("transport")

CLOSE_SECONDS = 2.0
STEADY_SECONDS = 10.0


class TransportLink:
    def __init__(self, transport: Transport, metrics: Metrics) -> None:
        self.transport = transport
        self.up = False
        """Whether it can be tried. `steady`: and is not on trial."""
        self.steady = False
        # Rises each time that the broker is reached again: what it held before may be lost.
        self.opened = 0
        self._since = 0.0
        """When it was opened, or its trial ended."""
        self._came_back = False
        self._unsteady = False
        self._metrics = metrics
        self._failing = Failing()
        self._opening = asyncio.Lock()
        metrics.transport_up = False

    async def ensure(self) -> bool:
        """Whether the broker can be used now; opens the transport, if it is time to try."""
        if self.up:
            if not self.steady and monotonic() - self._since >= STEADY_SECONDS:
                self._back()
            return True
        async with self._opening:
            if not self.up and not self._failing.pausing:
                await self._open()
        return self.up

    async def _open(self) -> None:
        try:
            await self.transport.open()
        except TransportAwayError as error:
            self.away(error)
        except Exception as error:  # of a client library, which may fail in any way; the node goes on without it
            self.away(TransportAwayError(f"The client of {self.transport.name} failed: {words_of(error)}."))
        else:
            self.up, self._since = True, monotonic()
            if not self._unsteady:
                self._back()

    def _back(self) -> None:
        seconds = round(self._failing.seconds, 1)
        self._came_back = self._failing.count > 0
        if self._failing.count:
            log.info("the broker is back: runs are offered again", transport=self.transport.name, seconds=seconds)
        else:
            log.info("runs are offered through the broker", transport=self.transport.name)
        self._failing.over()
        self._unsteady, self._since = False, monotonic()
        self.opened += 1
        self.steady = self._metrics.transport_up = True

    def away(self, error: TransportAwayError) -> None:
        """A call has failed: until it is open again, whoever asks goes through PostgreSQL."""
        first = not self._failing.count
        if first and self._came_back and monotonic() - self._since < STEADY_SECONDS:
            self._unsteady = True
        self._failing.note(str(error))
        self.up = self.steady = self._metrics.transport_up = False
        if first:
            self._metrics.transport_fallbacks += 1
            log.warning(
                "the broker is away: runs go through PostgreSQL until it is back",
                transport=self.transport.name,
                error=str(error),
            )

    async def close(self) -> None:
        """Best effort: what the broker keeps for this node returns to others in time."""
        self.up = self.steady = self._metrics.transport_up = False
        with contextlib.suppress(Exception):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self.transport.close()
