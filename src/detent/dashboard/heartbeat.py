"""Whether the database answers, checked once for all open pages, and how long a page waits for it.

While the database hangs, statements do not return and no error occurs. So each process asks the database for its time
with a short timeout, and sends every answer to its open pages as a heartbeat. A browser that has received none for a
few seconds shows a banner without help from the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime
from typing import Any, TypeVar

from detent.errors import DetentError, Unavailable
from detent.runtime.clock import monotonic
from detent.telemetry.log import logger

log = logger("dashboard")

TIMEOUT_SECONDS = 2.0
CACHE_SECONDS = 0.5

Result = TypeVar("Result")
Ask = Callable[[float], Awaitable[datetime]]


class DatabaseSilent(Unavailable):
    """The database has not answered in time."""

    def __init__(self) -> None:
        super().__init__("Database not answering.")


class DatabaseHeartbeat:
    """`ask` returns the database's time within the given seconds, or fails."""

    def __init__(self, ask: Ask, clock: Callable[[], float] = monotonic) -> None:
        self._ask = ask
        self._clock = clock
        self._asking = asyncio.Lock()
        self._ask_next = 0.0
        self._last: datetime | None = None
        self.silent = False

    async def answer(self) -> datetime | None:
        """The database's current time; None if it does not answer. Concurrent callers share one statement."""
        async with self._asking:
            if self._clock() >= self._ask_next:
                self._last = await self._query()
                self._ask_next = self._clock() + CACHE_SECONDS
            return self._last

    async def require(self) -> None:
        if await self.answer() is None:
            raise DatabaseSilent

    async def _query(self) -> datetime | None:
        try:
            answered: datetime | None = await self._ask(TIMEOUT_SECONDS)
        except DetentError as error:
            answered = None
            if not self.silent:
                log.warning("database not answering the dashboard", error=str(error))
        self.silent = answered is None
        return answered


async def within(seconds: float, work: Coroutine[Any, Any, Result]) -> Result:
    """The result of `work`, or DatabaseSilent after `seconds`. The caller does not wait until a hanging statement is
    cancelled."""
    task = asyncio.ensure_future(work)
    return await _finished(task, seconds, None)


async def while_answering(heartbeat: DatabaseHeartbeat, seconds: float, work: Coroutine[Any, Any, Result]) -> Result:
    """As `within`, but `work` may take longer while the database answers heartbeats."""
    task = asyncio.ensure_future(work)
    return await _finished(task, seconds, heartbeat)


async def _finished(task: asyncio.Future[Result], seconds: float, heartbeat: DatabaseHeartbeat | None) -> Result:
    try:
        while True:
            await asyncio.wait({task}, timeout=seconds)
            if task.done():
                return task.result()
            if heartbeat is None or await heartbeat.answer() is None:
                raise DatabaseSilent
    finally:
        if not task.done():
            task.cancel()
            task.add_done_callback(_ignore)


def _ignore(task: asyncio.Future[Any]) -> None:
    """Retrieve the exception of an abandoned task, so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()
