"""The app of a worker, from its start-up hooks to its shut-down hooks, on the handlers' loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from detent.sdk.serving import HOOK_SECONDS, ServedApp
from detent.targets.python import HandlerThread
from detent.telemetry.log import logger

log = logger("app")

# The handlers' loop ends the shut-down itself, unless a hook blocks it.
_BLOCKED_SECONDS = 2.0


@asynccontextmanager
async def alive(
    served: ServedApp | None, thread: HandlerThread, stop: asyncio.Event, hurry: asyncio.Event
) -> AsyncIterator[None]:
    """Runs may be executed inside this block. Raises StartupFailed. `stop` ends a start-up that takes long, and `hurry`
    a shut-down."""
    if served is None:
        yield
        return
    starting = asyncio.create_task(thread.run(served.start()))
    await _first(starting, stop)
    try:
        yield
    finally:
        await _shut_down(served, thread, hurry)  # also a start-up that was cancelled: it has to come to its end


async def _first(work: asyncio.Task[None], event: asyncio.Event) -> None:
    """Wait for the work, or until the event cancels it."""
    waiting = asyncio.create_task(event.wait())
    try:
        await asyncio.wait((work, waiting), return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
        work.cancel()  # without effect if it is done
    if work.done():
        work.result()
    else:
        await asyncio.wait((work,))


async def _shut_down(served: ServedApp, thread: HandlerThread, hurry: asyncio.Event) -> None:
    if hurry.is_set():
        thread.on_loop(served.abandon)
        return
    try:
        async with asyncio.timeout(HOOK_SECONDS + _BLOCKED_SECONDS):
            await _first(asyncio.create_task(thread.run(served.stop())), hurry)
    except TimeoutError:
        log.error("a shut-down hook of the app blocks the handlers' loop: it is abandoned", seconds=HOOK_SECONDS)
