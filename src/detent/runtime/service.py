"""Loops, written once. A service's `tick` does one pass and returns how long to wait before the next.

A wake-up that arrives while the tick is busy is remembered, so the wait that follows ends at once. A tick that fails
is logged and tried again with a growing, jittered pause; nothing but `stop` ends a loop.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextvars import Context
from typing import Any, Generic, TypeVar

from detent.errors import DetentError
from detent.runtime.clock import monotonic
from detent.telemetry.log import logger

log = logger("service")

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 2.0
LOGGED_EVERY = 10.0

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Result = TypeVar("Result")


def backoff(failures: int) -> float:
    """How long to wait after this many failures in a row: longer each time, with jitter."""
    return float(min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(failures, 10)) * random.uniform(0.5, 1))


def start_shared(work: Coroutine[Any, Any, Result], name: str | None = None) -> asyncio.Task[Result]:
    """Start a task that serves many callers. Its context is empty: it must not run with the tenant or inside the
    transaction of the caller that happened to start it."""
    return asyncio.create_task(work, name=name, context=Context())


async def do_each(parts: Iterable[Callable[[], Awaitable[object]]]) -> None:
    """Do all parts of a pass, also after one has failed; the first failure is raised in the end."""
    failed: Exception | None = None
    for part in parts:
        try:
            await part()
        except Exception as error:
            if failed is not None:
                log.warning("more than one part of a pass failed", error=str(error))
            failed = failed or error
    if failed is not None:
        raise failed


class Failing:
    """An operation that is retried and keeps failing: since when, how often, and when to try next. The first failure is
    logged, and then one every `LOGGED_EVERY` seconds."""

    def __init__(self) -> None:
        self.count = 0
        self._since = 0.0
        self._try_next = 0.0
        self._log_next = 0.0
        self.error = ""

    def note(self, error: str) -> bool:
        """Count one more failure; returns whether to log it."""
        now = monotonic()
        if not self.count:
            self._since, self._log_next = now, now
        self.count += 1
        self.error = error
        self._try_next = now + backoff(self.count)
        log_it = now >= self._log_next
        if log_it:
            self._log_next = now + LOGGED_EVERY
        return log_it

    def over(self) -> None:
        if self.count:
            self.count, self._try_next, self.error = 0, 0.0, ""

    @property
    def pausing(self) -> bool:
        return self.count > 0 and monotonic() < self._try_next

    @property
    def seconds(self) -> float:
        """For how long it has failed; 0 if the last try succeeded."""
        return monotonic() - self._since if self.count else 0.0


class Loop:
    def __init__(self, name: str, tick: Callable[[], Awaitable[float]]) -> None:
        self.name = name
        self._tick = tick
        self._awake = asyncio.Event()
        self._stopping = False
        self._failures = 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = start_shared(self._run(), self.name)

    def wake(self) -> None:
        self._awake.set()

    async def stop(self) -> None:
        """Let the tick in progress end, then the loop."""
        self._stopping = True
        self._awake.set()
        if self._task is not None:
            await self._task

    async def abort(self) -> None:
        """End the loop even inside a tick."""
        self._stopping = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while not self._stopping:
            pause = await self._pass()
            await self._wait(pause)

    async def _pass(self) -> float:
        self._awake.clear()
        try:
            pause = await self._tick()
            self._failures = 0
            return pause
        except asyncio.CancelledError:
            # Only `abort` cancels a loop. A cancellation inside a pass must not end it unnoticed.
            task = asyncio.current_task()
            if self._stopping or (task is not None and task.cancelling()):
                raise
            log.warning("pass cancelled from inside", loop=self.name)
        except DetentError as error:
            log.warning("pass failed", loop=self.name, error=str(error))
        except Exception:
            log.exception("pass failed", loop=self.name)
        self._failures += 1
        return backoff(self._failures)

    async def _wait(self, pause: float) -> None:
        if self._stopping or pause <= 0:
            await asyncio.sleep(0)
            return
        try:
            async with asyncio.timeout(pause):
                await self._awake.wait()
        except TimeoutError:
            pass


class Batcher(Generic[Item, Answer]):
    """Gathers single requests into one statement: while one batch is under way the next one forms."""

    def __init__(self, send: Callable[[Sequence[Item]], Awaitable[Sequence[Answer]]], limit: int = 1000) -> None:
        self._send = send
        self._limit = limit
        self._waiting: list[tuple[Item, asyncio.Future[Answer]]] = []
        self._task: asyncio.Task[None] | None = None

    async def __call__(self, item: Item) -> Answer:
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._task is None:
            self._task = start_shared(self._flush())
        return await future

    async def _flush(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[: self._limit], self._waiting[self._limit :]
                await self._answer(batch)
        finally:
            self._task = None

    async def _answer(self, batch: list[tuple[Item, asyncio.Future[Answer]]]) -> None:
        """Every caller gets an answer or an error, also where there are too few answers."""
        try:
            answers = await self._send([item for item, _ in batch])
            for (_, future), answer in zip(batch, answers, strict=True):
                if not future.done():
                    future.set_result(answer)
        except Exception as error:
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
