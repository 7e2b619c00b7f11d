"""One event loop in a thread of the process, on which all gateways work.

A connection belongs to one loop. Scripts have none, web servers have one or several, tests have one each: so the loop
is the process's own. A coroutine that enqueues awaits a future; a plain function waits for it. Neither depends on the
loop of the caller, and a loop that ends takes no connection with it.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from detent.errors import UsageError

Result = TypeVar("Result")
Work = Callable[[], Coroutine[Any, Any, Result]]


class Portal:
    """Starts its thread at the first use, and again in a process that was forked."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    async def run(self, work: Work[Result]) -> Result:
        """Await the work; if the caller is cancelled, so is the work."""
        return await asyncio.wrap_future(self._submit(work))

    def block(self, work: Work[Result], timeout: float | None = None) -> Result:
        """Wait for the work in this thread."""
        if threading.current_thread() is self._thread:
            raise UsageError("This thread serves all enqueues: use the awaitable twin of this method here.")
        future = self._submit(work)
        try:
            return future.result(timeout)
        except BaseException:
            future.cancel()  # the wait was interrupted; without effect on work that has ended
            raise

    def _submit(self, work: Work[Result]) -> Future[Result]:
        """The work begins on the loop, so that threads which enqueue first at the same moment share one gateway."""

        async def begun() -> Result:
            return await work()

        return asyncio.run_coroutine_threadsafe(begun(), self._running_loop())

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None or self._thread is None or not self._thread.is_alive():
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="detent-enqueue", daemon=True)
                self._thread.start()
            return self._loop

    def forget(self) -> None:
        """Start anew in a forked child. The thread exists only in the parent, and a thread that does not exist here may
        hold the lock. The child shares the loop's selector with the parent: a connection that is finalised in the child
        would remove itself from the selector, and the parent would wait for its answers in vain. Drivers do not touch
        connections of a closed loop. So the loop is only marked as closed: `close` itself would remove the loop's own
        pipe from the selector."""
        if self._loop is not None:
            with suppress(AttributeError):  # of another kind of loop
                self._loop._closed = True  # type: ignore[attr-defined] # there is no public way
        self.__init__()  # type: ignore[misc] # on purpose: everything is as new


portal = Portal()
os.register_at_fork(after_in_child=portal.forget)
