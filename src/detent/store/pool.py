"""A pool: a few connections, shared by many callers.

The driver's own pool fails a request as soon as the server refuses to open one more connection, although connections of
the pool are returned every few milliseconds. Here a request waits for whichever comes first, one that is returned or
one that is opened, and fails only when its wait times out. While the server refuses, there are pauses between the
attempts to open one.

Everything here runs on one event loop; `acquire` gives an idle connection away without waiting, and `release` never
waits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NamedTuple

from detent.errors import Unavailable
from detent.store.connection import Connection
from detent.store.servers import NoConnectionLeft
from detent.telemetry.log import logger

log = logger("store")

# The pause between two attempts to open a connection while the server has none left.
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 2.0
# The time that the server has to end a statement whose caller was cancelled.
SETTLE_SECONDS = 5.0
CLOSE_SECONDS = 2.0


class Idle(NamedTuple):
    connection: Connection
    since: float


class Pool:
    """At most `size` connections, opened by `connect`. Those that are idle for `idle_seconds` are closed, except one;
    0 keeps them all."""

    def __init__(self, connect: Callable[[], Awaitable[Connection]], size: int, *, idle_seconds: float = 0.0) -> None:
        self._connect = connect
        self._size = size
        self._idle_seconds = idle_seconds
        self._idle: list[Idle] = []  # the last one returned is the first one taken, so that the others can be closed
        self._waiters: deque[asyncio.Future[Connection]] = deque()
        self._open: dict[Connection, int] = {}  # every connection, idle or in use, with the generation it belongs to
        self._generation = 0
        self._opening = 0
        self._pause = 0.0
        self._paused_until = 0.0
        self._refusal: NoConnectionLeft | None = None
        self._asking_again: asyncio.TimerHandle | None = None
        self._closing_idle: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    async def open(self) -> None:
        """Open the first connection; raises the error if that fails."""
        self._return(await self._new())

    @property
    def idle(self) -> int:
        return len(self._idle)

    # --- taking and returning

    async def acquire(self, timeout: float) -> Connection:
        """A connection; raises Unavailable after `timeout` seconds, when nothing has been sent yet."""
        if self._closed:
            raise Unavailable("The database is closed.")
        while self._idle:
            connection = self._idle.pop().connection
            if not connection.is_closed():
                return connection
            self._drop(connection)
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self._open_more()
        return await self._wait(waiter, timeout)

    async def _wait(self, waiter: asyncio.Future[Connection], timeout: float) -> Connection:
        try:
            async with asyncio.timeout(timeout):
                return await waiter
        except TimeoutError as error:
            self._abandon(waiter)
            raise self._refusal or Unavailable("The database has no free connection.") from error
        except asyncio.CancelledError:
            self._abandon(waiter)
            raise

    def _abandon(self, waiter: asyncio.Future[Connection]) -> None:
        if waiter in self._waiters:
            self._waiters.remove(waiter)
        served = waiter.done() and not waiter.cancelled() and waiter.exception() is None
        if served:  # it got a connection in the moment it gave up
            self._return(waiter.result())

    def release(self, connection: Connection, *, unsettled: bool = False) -> None:
        """Take a connection back. `unsettled`: its statement was cancelled or failed. The server may then still execute
        it; and after an argument that the driver cannot encode, the statement's transaction is still open."""
        if connection.is_closed() or (not unsettled and connection.is_in_transaction()):
            connection.terminate()
            self._drop(connection)
            self._open_more()
        elif unsettled:
            self._start(self._settle(connection))
        else:
            self._return(connection)

    async def _settle(self, connection: Connection) -> None:
        """Run an empty transaction: the driver first waits until the cancelled statement has ended, and a transaction
        that was left open shows as an error."""
        try:
            async with asyncio.timeout(SETTLE_SECONDS), connection.transaction():
                pass
        except BaseException:
            connection.terminate()
            raise
        finally:
            self.release(connection)

    def _return(self, connection: Connection) -> None:
        if self._closed or self._open.get(connection) != self._generation:
            self._drop(connection)
            self._start(_close(connection))
            self._open_more()
            return
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(connection)
                return
        self._idle.append(Idle(connection, asyncio.get_running_loop().time()))
        self._close_idle_later()

    def _close_idle_later(self) -> None:
        if self._idle_seconds and len(self._idle) > 1 and self._closing_idle is None:
            loop = asyncio.get_running_loop()
            self._closing_idle = loop.call_later(self._idle_seconds, self._close_idle)

    def _close_idle(self) -> None:
        """Close those that were idle for too long, which are at the front. One stays open: the server may have none
        left when it is needed."""
        self._closing_idle = None
        latest = asyncio.get_running_loop().time() - self._idle_seconds
        while len(self._idle) > 1 and self._idle[0].since <= latest:
            connection = self._idle.pop(0).connection
            self._drop(connection)
            self._start(_close(connection))
        self._close_idle_later()

    # --- opening

    def _open_more(self) -> None:
        """Start one attempt for each waiting caller, as far as the size and the server's refusals allow."""
        possible = self._size - len(self._open) - self._opening
        if self._closed or possible <= 0 or not self._waiters:
            return
        if asyncio.get_running_loop().time() < self._paused_until:
            self._open_more_later()
            return
        for _ in range(min(possible, len(self._waiters) - self._opening)):
            self._opening += 1
            self._start(self._open_one())

    async def _open_one(self) -> None:
        try:
            connection = await self._new()
        except NoConnectionLeft as refusal:
            self._opening -= 1
            self._pause_after(refusal)
        except Exception as error:
            self._opening -= 1
            self._fail_one(error)
            self._open_more()
        except BaseException:
            self._opening -= 1
            raise
        else:
            self._opening -= 1
            self._pause, self._refusal = 0.0, None
            self._return(connection)
            self._open_more()

    async def _new(self) -> Connection:
        generation = self._generation
        connection = await self._connect()
        self._open[connection] = generation
        return connection

    def _pause_after(self, refusal: NoConnectionLeft) -> None:
        """Requests continue to wait for a connection that is returned; opening one is tried again later."""
        loop = asyncio.get_running_loop()
        if self._refusal is None:
            log.warning("the database server has no connection left; waiting for a pooled one", open=len(self._open))
        self._refusal = refusal
        if loop.time() >= self._paused_until:  # else another attempt was refused at the same time
            self._pause = min(max(2 * self._pause, FIRST_PAUSE), LONGEST_PAUSE)
            self._paused_until = loop.time() + self._pause
        self._open_more_later()

    def _open_more_later(self) -> None:
        if self._asking_again is None:
            loop = asyncio.get_running_loop()
            self._asking_again = loop.call_at(self._paused_until, self._ask_again)

    def _ask_again(self) -> None:
        self._asking_again = None
        self._open_more()  # sets a new timer if this one was early

    def _fail_one(self, error: Exception) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_exception(error)
                return

    # --- the end

    def expire(self) -> None:
        """Replace all present connections: none of them is used again."""
        self._generation += 1
        idle, self._idle = self._idle, []
        for each in idle:
            self._drop(each.connection)
            self._start(_close(each.connection))

    async def close(self) -> None:
        """Close every connection as soon as it is returned."""
        self._stop()
        self.expire()
        while self._open or self._tasks:
            tasks = list(self._tasks)
            await (asyncio.wait(tasks) if tasks else asyncio.sleep(0.01))

    def terminate(self) -> None:
        self._stop()
        for connection in list(self._open):
            connection.terminate()
        for task in self._tasks:
            task.cancel()
        self._open.clear()
        self._idle.clear()

    def _stop(self) -> None:
        self._closed = True
        for timer in (self._asking_again, self._closing_idle):
            if timer is not None:
                timer.cancel()
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(Unavailable("The database is closed."))
        self._waiters.clear()

    def _drop(self, connection: Connection) -> None:
        self._open.pop(connection, None)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.debug("a pooled connection could not be kept", error=str(error))


async def _close(connection: Connection) -> None:
    try:
        await connection.close(timeout=CLOSE_SECONDS)
    except Exception:
        connection.terminate()
