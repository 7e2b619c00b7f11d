"""A handler's own transactions: one that also settles its run, and one that also marks an effect as done, so that
effects in this database happen exactly once. And the steps of its run.

The handler's statements use the search path of its own role, so that a table `jobs` of the user is not ours. Our schema
comes first only for the settle at the end of the transaction. Behind a pooler the role has our settings, so the
transaction begins by resetting them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from time import monotonic
from typing import Any
from weakref import WeakValueDictionary

import asyncpg

from detent.domain.effects import NewStep, OnceKey
from detent.domain.run import Claim, ended
from detent.errors import OwnershipLost, Unavailable
from detent.store import sql
from detent.store.connection_settings import network_settings
from detent.store.db import MissingHistoryPartition, keep, translate
from detent.store.limits import StatementLimits, milliseconds
from detent.store.pooler import HandlerConnection, role_settings
from detent.store.servers import NoConnectionLeft, servers_of
from detent.store.settlements import settle_statements
from detent.store.statement import Statement

# How long a handler waits if the server has no free connection.
CONNECTION_SECONDS = 10.0
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 1.0
HANDLER_CONNECTIONS = 10
STEP_CONNECTIONS = 2
# The longest that PostgreSQL can wait, 2^31 ms, in seconds.
LONGEST_IDLE = 2_147_483.0


@asynccontextmanager
async def _acquired(pool: Any) -> AsyncIterator[Any]:
    """A connection of the driver's pool. The pool fails as soon as the server refuses a new connection, although one
    of its own may become free a moment later, so this retries."""
    connection = await _acquire(pool)
    try:
        yield connection
    finally:
        await pool.release(connection)


async def _acquire(pool: Any) -> Any:
    pause, deadline = FIRST_PAUSE, monotonic() + CONNECTION_SECONDS
    while True:
        try:
            return await pool.acquire()
        except NoConnectionLeft:
            if monotonic() + pause > deadline:
                raise
        await asyncio.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


@contextmanager
def _explained() -> Iterator[None]:
    """The driver's errors in statements of ours, not of the handler, as errors of ours."""
    try:
        yield
    except Exception as error:
        meaning = translate(error)
        if meaning is None:
            raise
        raise meaning from error


def _held(node: int, claim: Claim) -> tuple[object, ...]:
    return node, claim.job, claim.lane, claim.scheduled_at, claim.serial, claim.token


class EffectPool:
    """Connections for handlers, opened on the handlers' loop at the first use."""

    def __init__(
        self, url: str, schema: str, limits: StatementLimits, *, size: int = HANDLER_CONNECTIONS, pooled: bool = False
    ) -> None:
        """`limits` apply from the settle on."""
        self._url = url
        self._schema = schema
        self._limits = limits
        self._size = size
        self._pooled = pooled
        self._servers = servers_of(url)
        self._generation = self._servers.generation
        self._pool: Any = None
        self._steps: Any = None
        self._making: asyncio.Lock | None = None
        self._turns: WeakValueDictionary[tuple[int, str], asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def transaction(self, node: int, claim: Claim, started: float) -> AsyncIterator[Any]:
        """When the block has ended, the run has, too: it succeeded, at the time of the database."""
        pool = await self._open()
        try:
            async with self._settling(pool, node, claim, started) as connection:
                yield connection
        except asyncpg.CheckViolationError as error:
            meaning = translate(error)
            if not isinstance(meaning, MissingHistoryPartition):
                raise
            await self._add_partition(pool, meaning)
            raise Unavailable("History had no partition for this run; it exists now. Nothing was written.") from error

    async def _add_partition(self, pool: Any, missing: MissingHistoryPartition) -> None:
        async with _acquired(pool) as connection, connection.transaction():
            await connection.execute(
                sql.database.USE_SETTLE_SETTINGS.text, self._schema, milliseconds(self._limits.lock)
            )
            await connection.fetch(sql.history.ADD_PARTITION.text, missing.at)

    @asynccontextmanager
    async def _settling(self, pool: Any, node: int, claim: Claim, started: float) -> AsyncIterator[Any]:
        async with _acquired(pool) as connection, connection.transaction():
            if self._pooled:
                await connection.execute(sql.database.USE_HANDLER_SETTINGS.text, self._handed_back())
            yield connection
            await connection.execute(
                sql.database.USE_SETTLE_SETTINGS.text, self._schema, milliseconds(self._limits.lock)
            )
            now = await connection.fetchval("SELECT clock_timestamp()")
            [(statement, arguments)] = settle_statements([ended(claim, started, now.timestamp())])
            if await connection.fetch(statement.text, node, *arguments):
                raise OwnershipLost("This run was cancelled or reassigned before it could commit: nothing was written.")

    # -- the ledger: steps of runs, and effects that happen once

    @asynccontextmanager
    async def once(self, node: int, claim: Claim, once: OnceKey) -> AsyncIterator[Any]:
        """A transaction in which this effect and its mark commit together: yields its connection, or None if the effect
        has happened before. Waits for another transaction that does the same effect now."""
        held = _held(node, claim)
        async with AsyncExitStack() as stack:
            async with self._turn(claim, once):
                with _explained():
                    connection, row = await self._mark(stack, held, once)
            if not row["held"]:
                raise OwnershipLost("This run was cancelled or taken over: the effect has not happened.")
            if not row["first"]:
                await stack.aclose()  # the handler may go on for long
                yield None
                return
            yield connection
            with _explained():
                await connection.execute(
                    sql.database.USE_SETTLE_SETTINGS.text, self._schema, milliseconds(self._limits.lock)
                )
                verified = await connection.fetch(sql.effect.VERIFY_HOLD.text, *held)
            if not verified:
                raise OwnershipLost("This run was cancelled or reassigned before it could commit: nothing was written.")

    def _turn(self, claim: Claim, once: OnceKey) -> asyncio.Lock:
        """Of the callers that wait for one key, one waits on a connection: all together would hold the connections of
        handlers that do other effects."""
        owner = -once.tenant if once.shared else claim.job
        return self._turns.setdefault((owner, once.key), asyncio.Lock())

    async def _mark(self, stack: AsyncExitStack, held: tuple[object, ...], once: OnceKey) -> tuple[Any, Any]:
        """Begin a transaction and mark the effect in it: returns its connection, and the row of the statement."""
        connection = await stack.enter_async_context(_acquired(await self._open()))
        await stack.enter_async_context(connection.transaction(isolation="read_committed"))
        if self._pooled:
            await connection.execute(sql.database.USE_HANDLER_SETTINGS.text, self._handed_back())
        idle = milliseconds(min(once.timeout.total_seconds(), LONGEST_IDLE))
        key = once.key, once.shared, once.kept_for
        return connection, await connection.fetchrow(self._inside(sql.effect.MARK), *held, *key, idle)

    async def steps(self, claim: Claim) -> dict[str, str | None]:
        """The stored steps of a run, by name: their results as JSON."""
        async with self._stepping() as connection:
            rows = await connection.fetch(self._inside(sql.effect.LIST_STEPS), *claim.key)
        return {row["name"]: row["result"] for row in rows}

    async def add_step(self, node: int, claim: Claim, step: NewStep) -> None:
        """Store a step of a run that this node holds, else OwnershipLost."""
        values = (step.name, claim.attempt, step.took, step.result)
        async with self._stepping() as connection:
            stored = await connection.fetch(self._inside(sql.effect.ADD_STEP), *_held(node, claim), *values)
        if not stored:
            raise OwnershipLost(f"This run was cancelled or taken over: its step {step.name!r} was not stored.")

    @asynccontextmanager
    async def _stepping(self) -> AsyncIterator[Any]:
        """A connection for one statement, from a pool of its own: handlers that hold the connections of the other pool
        in their transactions may wait for a step. Through a pooler, the statement needs a transaction, so that it is
        not split over two sessions."""
        await self._open()
        with _explained():
            async with _acquired(self._steps) as connection:
                if self._pooled:
                    async with connection.transaction():
                        yield connection
                else:
                    yield connection

    def _inside(self, statement: Statement) -> str:
        """A statement on a connection that has the search path of the handler's role."""
        return statement.text.format(schema=self._schema)

    async def _open(self) -> Any:
        if self._making is None:
            self._making = asyncio.Lock()
        async with self._making:
            if self._pool is None:
                self._pool, self._steps = await self._make(self._size), await self._make(STEP_CONNECTIONS)
            if self._generation != self._servers.generation:  # they may lead to a former primary
                self._generation = self._servers.generation
                await self._pool.expire_connections()
                await self._steps.expire_connections()
        return self._pool

    async def _make(self, size: int) -> Any:
        """No connection is opened before it is used."""
        connect = self._servers.connector(node=True)
        return await asyncpg.create_pool(
            self._url, min_size=0, max_size=size, timeout=10, connect=connect, **self._options()
        )

    def _handed_back(self) -> list[str]:
        """Our settings, which a handler's transaction must not see, except jit. The driver turns jit off while it reads
        types, and on again if it was on, for the rest of the session, which others use next: it has to stay off."""
        return [name for name in role_settings(self._schema) if name != "jit"]

    def _options(self) -> dict[str, Any]:
        if not self._pooled:
            return {"server_settings": network_settings()}
        return {"statement_cache_size": 0, "connection_class": HandlerConnection, "reset": keep}

    def terminate(self) -> None:
        """Close all connections at once. Call this on the handlers' loop."""
        if self._pool is not None:
            self._pool.terminate()
            self._steps.terminate()

    async def close(self) -> None:
        self.terminate()
