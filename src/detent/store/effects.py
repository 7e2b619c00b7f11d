"""A handler's own transaction, which also settles its run: true exactly once for effects in this database.

The user's statements see the search path of their own role, not ours, so that a table of theirs called `jobs` is
theirs. Only for the settle at the end is our schema put first, until the transaction is over. Through a pooler the role
has our settings, so the transaction begins by going back to what it would have without them.
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
from detent.store.db import MissingHistoryPartition, keep, network_settings, translate
from detent.store.limits import StatementLimits, milliseconds
from detent.store.live import Settlement, settle_columns
from detent.store.pooler import HandlerConnection, role_settings
from detent.store.servers import NoConnectionLeft, servers_of

# How long a handler waits for a connection of a server that has none left.
CONNECTION_SECONDS = 10.0
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 1.0


@asynccontextmanager
async def _acquired(pool: Any) -> AsyncIterator[Any]:
    """A connection of the driver's pool, which fails as soon as the server refuses to open one more, although another
    one may be returned a moment later."""
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
    """Connections for handlers, made on the handlers' loop when the first one asks."""

    def __init__(self, url: str, schema: str, limits: StatementLimits, *, size: int = 10, pooled: bool = False) -> None:
        """`limits` hold from the settle on."""
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
        """`settlement` is asked when the block has ended, with the database's time."""
        pool = await self._open()
        try:
            async with self._settling(pool, node, settlement) as connection:
                yield connection
        except asyncpg.CheckViolationError as error:
            meaning = translate(error)
            if not isinstance(meaning, MissingHistoryPartition):
                raise
            await self._add_partition(pool, meaning)
            raise Unavailable("History had no place for this run, which is made: nothing was written.") from error

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
                raise OwnershipLost("This run was cancelled or taken over before it could commit: nothing was written.")

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
            if self._generation != self._servers.generation:  # they may lead to an old primary
                self._generation = self._servers.generation
                await self._pool.expire_connections()
        return self._pool

    def _handed_back(self) -> list[str]:
        """All but jit: the driver switches that off while it looks up types, and on again where it was on, for good. In
        a session that others use next, it has to stay off."""
        return [name for name in role_settings(self._schema) if name != "jit"]

    def _options(self) -> dict[str, Any]:
        if not self._pooled:
            return {"server_settings": network_settings()}
        return {"statement_cache_size": 0, "connection_class": HandlerConnection, "reset": keep}

    def terminate(self) -> None:
        """On the handlers' loop."""
        if self._pool is not None:
            self._pool.terminate()

    async def close(self) -> None:
        self.terminate()
