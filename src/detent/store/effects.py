"""A handler's transaction that also settles its run: effects in this database happen exactly once.

The handler's statements use the search path of its own role, so that a table `jobs` of the user is not ours. Our schema
comes first only for the settle at the end of the transaction. Behind a pooler the role has our settings, so the
transaction begins by resetting them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any

import asyncpg

from detent.errors import OwnershipLost, Unavailable
from detent.store import sql
from detent.store.connection_settings import network_settings
from detent.store.db import MissingHistoryPartition, keep, translate
from detent.store.limits import StatementLimits, milliseconds
from detent.store.live_runs import Settlement, settle_columns
from detent.store.pooler import HandlerConnection, role_settings
from detent.store.servers import NoConnectionLeft, servers_of

# How long a handler waits if the server has no free connection.
CONNECTION_SECONDS = 10.0
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 1.0


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


class EffectPool:
    """Connections for handlers, opened on the handlers' loop at the first use."""

    def __init__(self, url: str, schema: str, limits: StatementLimits, *, size: int = 10, pooled: bool = False) -> None:
        """`limits` apply from the settle on."""
        self._url = url
        self._schema = schema
        self._limits = limits
        self._size = size
        self._pooled = pooled
        self._servers = servers_of(url)
        self._generation = self._servers.generation
        self._pool: Any = None
        self._making: asyncio.Lock | None = None

    @asynccontextmanager
    async def transaction(self, node: int, settlement: Callable[[Any], Settlement]) -> AsyncIterator[Any]:
        """`settlement` is called when the block has ended, with the database's time."""
        pool = await self._open()
        try:
            async with self._settling(pool, node, settlement) as connection:
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
    async def _settling(self, pool: Any, node: int, settlement: Callable[[Any], Settlement]) -> AsyncIterator[Any]:
        async with _acquired(pool) as connection, connection.transaction():
            if self._pooled:
                await connection.execute(sql.database.USE_HANDLER_SETTINGS.text, self._handed_back())
            yield connection
            await connection.execute(
                sql.database.USE_SETTLE_SETTINGS.text, self._schema, milliseconds(self._limits.lock)
            )
            now = await connection.fetchval("SELECT clock_timestamp()")
            unsettled = await connection.fetch(sql.run.SETTLE.text, node, *settle_columns([settlement(now)]))
            if unsettled:
                raise OwnershipLost("This run was cancelled or reassigned before it could commit: nothing was written.")

    async def _open(self) -> Any:
        if self._making is None:
            self._making = asyncio.Lock()
        async with self._making:
            if self._pool is None:
                self._pool = await asyncpg.create_pool(
                    self._url,
                    min_size=0,
                    max_size=self._size,
                    timeout=10,
                    connect=self._servers.connector(node=True),
                    **self._options(),
                )
            if self._generation != self._servers.generation:  # they may lead to a former primary
                self._generation = self._servers.generation
                await self._pool.expire_connections()
        return self._pool

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

    async def close(self) -> None:
        self.terminate()
