"""Watches the embedded PostgreSQL while detent uses it, and restarts it when it has ended.

The process itself is checked twice a second: a failed connection can have many causes, and an idle node has no
connection that would fail soon. All detents that share a server notice its end; the lock in `embedded.py` lets one of
them start it, and the others find it running. If the server cannot be started, or ends repeatedly, detent exits after a
few tries with growing pauses.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from time import monotonic

from detent.errors import DetentError, Unavailable
from detent.store.embedded import EmbeddedServer
from detent.store.embedded_host import SystemProcess, process_of
from detent.telemetry.log import logger

log = logger("embedded")

WATCH_EVERY = 0.5
TRIES = 6
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 10.0
# A server that ran for this long did not fail to start.
STEADY_SECONDS = 60.0


class EmbeddedWatch:
    """For a server that runs. `clock` counts seconds."""

    def __init__(self, server: EmbeddedServer, clock: Callable[[], float]) -> None:
        self._server = server
        self._clock = clock
        self._process: SystemProcess | None = process_of(server.postmaster)
        self._failures = 0
        self._since = clock()

    async def run(self) -> None:
        """Watch until cancelled; raise Unavailable once the server cannot be kept running."""
        while True:
            pause = await self.tick()
            await asyncio.sleep(pause)

    async def tick(self) -> float:
        """Check once; returns the seconds until the next check."""
        if self._process is not None and process_of(self._process.pid) == self._process:
            if self._clock() - self._since >= STEADY_SECONDS:
                self._failures = 0
            return WATCH_EVERY
        log.error("the embedded PostgreSQL has ended unexpectedly", data=str(self._server.home), tries=self._failures)
        if self._failures >= TRIES:
            raise self._given_up("it ended soon after each start")
        self._failures += 1
        try:
            await self._revive()
        except (Unavailable, OSError, ValueError, IndexError) as error:  # the last three: its file is being written
            reason = str(error).rstrip(".")
            if self._failures >= TRIES:
                raise self._given_up(reason) from error
            log.warning("the embedded PostgreSQL cannot be started yet", error=reason)
            return min(FIRST_PAUSE * 2.0 ** (self._failures - 1), LONGEST_PAUSE)
        return WATCH_EVERY

    async def _revive(self) -> None:
        self._process = None
        launched = await self._server.revive()
        pid = self._server.postmaster
        self._process, self._since = process_of(pid), self._clock()
        if launched:
            log.warning("the embedded PostgreSQL was started again", server=pid)
        else:
            log.warning("the embedded PostgreSQL runs again", server=pid)

    def _given_up(self, reason: str) -> Unavailable:
        return Unavailable(
            f"The embedded PostgreSQL in {self._server.home} has ended and cannot be started again after {TRIES} "
            f"tries ({reason}): its log is {self._server.log}."
        )


@asynccontextmanager
async def watched(server: EmbeddedServer, failed: Callable[[DetentError], None] | None) -> AsyncIterator[None]:
    """Watch the server inside the block; `failed` is called once it cannot be kept running. None: no watch."""
    if failed is None:
        yield
        return

    async def watch() -> None:
        try:
            await EmbeddedWatch(server, monotonic).run()
        except DetentError as error:
            failed(error)
        except Exception as error:
            log.exception("the embedded PostgreSQL is no longer watched")
            failed(Unavailable(f"The embedded PostgreSQL in {server.home} cannot be watched ({error})."))

    watching = asyncio.create_task(watch(), name="embedded")
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
