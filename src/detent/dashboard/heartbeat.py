"""Whether the database answers, asked once for all open pages, and how long a page may wait for it.

A page that is open shows figures of the database. While the database hangs, no error reaches anybody: statements simply
do not return. So each process asks the database for its time with a short limit, and passes every answer on to its
pages as a heartbeat. A browser that has had none for a few seconds says so by itself.
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

ANSWER_SECONDS = 2.0
ASKED_AGAIN_AFTER = 0.5

Result = TypeVar("Result")
Ask = Callable[[float], Awaitable[datetime]]


class DatabaseSilent(Unavailable):
    """The database has not answered in time."""

    def __init__(self) -> None:
        super().__init__("Database not answering.")


class Heartbeat:
    """`ask` gets the database's time within so many seconds, or fails."""

    def __init__(self, ask: Ask, clock: Callable[[], float] = monotonic) -> None:
        self._ask = ask
        self._clock = clock
        self._asking = asyncio.Lock()
        self._ask_next = 0.0
        self._last: datetime | None = None
        self.silent = False

    async def answer(self) -> datetime | None:
        """The database's time as of now; None: it does not answer. Many callers share one statement."""
        async with self._asking:
            if self._clock() >= self._ask_next:
                self._last = await self._asked()
                self._ask_next = self._clock() + ASKED_AGAIN_AFTER
            return self._last

    async def require(self) -> None:
        if await self.answer() is None:
            raise DatabaseSilent

    async def _asked(self) -> datetime | None:
        try:
            answered: datetime | None = await self._ask(ANSWER_SECONDS)
        except DetentError as error:
            answered = None
            if not self.silent:
                log.warning("the database does not answer the dashboard", error=str(error))
        self.silent = answered is None
        return answered


async def within(seconds: float, work: Coroutine[Any, Any, Result]) -> Result:
    """The result of `work`, or DatabaseSilent. A statement that hangs takes its time to be cancelled, which the caller
    does not wait for."""
    task = asyncio.ensure_future(work)
    return await _finished(task, seconds, None)


async def while_answering(heartbeat: Heartbeat, seconds: float, work: Coroutine[Any, Any, Result]) -> Result:
    """As `within`, but `work` may take longer as long as the database answers others."""
    task = asyncio.ensure_future(work)
    return await _finished(task, seconds, heartbeat)


async def _finished(task: asyncio.Future[Result], seconds: float, heartbeat: Heartbeat | None) -> Result:
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
    """Nobody waits for it any more: what it failed with is no news."""
    if not task.cancelled():
        task.exception()
