"""A connection that listens for notifications. A lost notification is harmless.

LISTEN does not work through a pooler: `feed.py` reads a table instead."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any, Protocol

from detent.store import sql
from detent.store.connection import Connection
from detent.store.db import Database, connect, translate
from detent.store.feed import Feed

LISTENING_CHECKED_EVERY = 5.0
ASKED_EVERY = 20.0
ANSWER_SECONDS = 3.0


class Hearing(Protocol):
    """Passes notifications on. `ensure` is to be called again after `every` seconds."""

    every: float

    async def ensure(self) -> bool: ...
    async def close(self) -> None: ...


def hearing(database: Database, channels: Mapping[str, Callable[[str], None]]) -> Hearing:
    return Feed(database, channels) if database.pooled else Listener(database, channels)


class Listener:
    """An idle connection does not detect that the server is gone, or is no longer the primary: it is therefore checked
    with a statement at intervals."""

    every = LISTENING_CHECKED_EVERY

    def __init__(self, database: Database, channels: Mapping[str, Callable[[str], None]]) -> None:
        self._database = database
        self._channels = channels
        self._generation = 0
        self._ask_next = 0.0
        self._connection: Connection | None = None

    async def ensure(self) -> bool:
        """True if a new connection was opened, so that notifications may have been missed."""
        if await self._hears():
            return False
        await self.close()
        self._generation = self._database.servers.generation
        connection = await connect(self._database.url, self._database.schema)
        try:
            for channel in self._channels:
                await connection.add_listener(channel, self._receive)
        except BaseException as error:
            connection.terminate()  # a connection that listens on some channels only would go unnoticed
            if (meaning := translate(error)) is not None:  # the server ended during the statement
                raise meaning from error
            raise
        self._connection = connection
        self._ask_next = monotonic() + ASKED_EVERY
        return True

    async def _hears(self) -> bool:
        connection = self._connection
        if connection is None or connection.is_closed():
            return False
        if self._generation != self._database.servers.generation:  # it may lead to a former primary
            return False
        return monotonic() < self._ask_next or await self._answers(connection)

    async def _answers(self, connection: Connection) -> bool:
        self._ask_next = monotonic() + ASKED_EVERY
        try:
            await connection.fetchval(sql.database.CLOCK.text, timeout=ANSWER_SECONDS)
        except Exception as error:
            if translate(error) is None:
                raise
            return False
        return True

    def _receive(self, _connection: Connection, _process: int, channel: str, payload: Any) -> None:
        self._channels[channel](str(payload))

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None
