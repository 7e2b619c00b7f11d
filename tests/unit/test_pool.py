"""The pool of connections, with fake connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from detent.errors import Unavailable
from detent.store.pool import Pool
from detent.store.servers import NoConnectionLeft
from tests.support.waiting import until

LONG = 10.0


class Connection:
    def __init__(self) -> None:
        self.closed = False
        self.in_transaction = False
        self.probed = 0

    def is_closed(self) -> bool:
        return self.closed

    def is_in_transaction(self) -> bool:
        return self.in_transaction

    def terminate(self) -> None:
        self.closed = True

    async def close(self, timeout: float) -> None:
        self.closed = True

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        self.probed += 1
        await asyncio.sleep(0)
        yield


class Server:
    """Opens `left` connections and refuses more."""

    def __init__(self, left: int = 100) -> None:
        self.left = left
        self.attempts = 0
        self.error: Exception | None = None

    async def connect(self) -> Any:
        self.attempts += 1
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        if self.left == 0:
            raise NoConnectionLeft("no connection left")
        self.left -= 1
        return Connection()


async def test_no_more_connections_than_the_size_are_opened_and_callers_are_served_in_order() -> None:
    server, order = Server(), []
    pool: Any = Pool(server.connect, 2)
    await pool.open()

    async def use(number: int) -> None:
        connection = await pool.acquire(LONG)
        order.append(number)
        await asyncio.sleep(0)
        pool.release(connection)

    await asyncio.gather(*(use(number) for number in range(20)))
    assert order == list(range(20))
    assert (server.attempts, pool.idle) == (2, 2)
    await pool.close()


async def test_a_refusal_fails_no_caller_while_connections_are_returned_and_is_not_repeated_for_each_of_them() -> None:
    server = Server(left=1)
    pool: Any = Pool(server.connect, 5)
    await pool.open()

    async def use() -> None:
        connection = await pool.acquire(LONG)
        await asyncio.sleep(0)
        pool.release(connection)

    await asyncio.gather(*(use() for _ in range(200)))
    assert server.attempts <= 1 + 5 + 5
    await pool.close()


async def test_once_the_server_has_connections_again_they_are_opened_although_none_is_returned() -> None:
    server = Server(left=1)
    pool: Any = Pool(server.connect, 5)
    first = await pool.acquire(LONG)
    waiting = asyncio.create_task(pool.acquire(LONG))
    await until(lambda: server.attempts >= 3)
    server.left = 1
    pool.release(await waiting)
    pool.release(first)
    await pool.close()


async def test_the_timeout_says_why_there_is_no_connection() -> None:
    refusing = Pool(Server(left=0).connect, 5)
    with pytest.raises(NoConnectionLeft):
        await refusing.acquire(0.05)
    busy = Pool(Server().connect, 1)
    connection = await busy.acquire(LONG)
    with pytest.raises(Unavailable, match="no free connection"):
        await busy.acquire(0.05)
    busy.release(connection)
    assert await busy.acquire(LONG) is connection


async def test_any_other_failure_to_open_is_reported_at_once() -> None:
    server = Server()
    server.error = ConnectionRefusedError("refused")
    pool: Any = Pool(server.connect, 5)
    results = await asyncio.gather(*(pool.acquire(LONG) for _ in range(20)), return_exceptions=True)
    assert {type(result) for result in results} == {ConnectionRefusedError}
    server.error = None
    assert await pool.acquire(LONG)


async def test_a_closed_connection_is_replaced_for_the_callers_that_wait() -> None:
    server = Server()
    pool: Any = Pool(server.connect, 1)
    connection = await pool.acquire(LONG)
    waiting = asyncio.create_task(pool.acquire(LONG))
    await asyncio.sleep(0)
    connection.terminate()
    pool.release(connection)
    other = await waiting
    assert other is not connection
    pool.release(other)
    other.terminate()
    assert not (await pool.acquire(LONG)).is_closed()


async def test_a_caller_cancelled_while_it_is_served_leaves_the_connection_to_the_next() -> None:
    pool: Any = Pool(Server().connect, 1)
    connection = await pool.acquire(LONG)
    leaving = asyncio.create_task(pool.acquire(LONG))
    staying = asyncio.create_task(pool.acquire(LONG))
    await asyncio.sleep(0)
    pool.release(connection)
    leaving.cancel()
    assert await staying is connection
    assert leaving.cancelled()


async def test_a_connection_whose_statement_was_cancelled_is_checked_before_it_is_used_again() -> None:
    pool: Any = Pool(Server().connect, 1)
    connection = await pool.acquire(LONG)
    pool.release(connection, unsettled=True)
    assert await pool.acquire(LONG) is connection
    assert connection.probed == 1
    connection.in_transaction = True
    pool.release(connection)
    assert connection.closed, "its transaction is unknown"


async def test_expired_connections_are_closed_at_once_or_when_they_are_returned() -> None:
    pool: Any = Pool(Server().connect, 2)
    idle, used = await pool.acquire(LONG), await pool.acquire(LONG)
    pool.release(idle)
    pool.expire()
    pool.release(used)
    await until(lambda: idle.closed and used.closed)
    assert await pool.acquire(LONG) not in (idle, used)


async def test_connections_that_are_idle_for_long_are_closed_except_one() -> None:
    pool: Any = Pool(Server().connect, 3, idle_seconds=0.05)
    three = [await pool.acquire(LONG) for _ in range(3)]
    for each in three:
        pool.release(each)
    await until(lambda: [each.closed for each in three] == [True, True, False])
    assert await pool.acquire(LONG) is three[2]


async def test_closing_waits_for_connections_in_use_and_refuses_new_callers() -> None:
    pool: Any = Pool(Server().connect, 1)
    connection = await pool.acquire(LONG)
    waiting = asyncio.create_task(pool.acquire(LONG))
    await asyncio.sleep(0)
    closing = asyncio.create_task(pool.close())
    with pytest.raises(Unavailable, match="is closed"):
        await waiting
    with pytest.raises(Unavailable, match="is closed"):
        await pool.acquire(LONG)
    assert not closing.done()
    pool.release(connection)
    await closing
    assert connection.closed
