"""A connection that listens. Which notifications arrive is the server's business; missing some is harmless.

Through a pooler nobody can listen: there is a table to look into instead (`feed.py`)."""

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
    """Whoever passes on what others say. `ensure` is to be called again after `every` seconds."""

    every: float

    async def ensure(self) -> bool: ...
    async def close(self) -> None: ...


def hearing(database: Database, channels: Mapping[str, Callable[[str], None]]) -> Hearing:
    return Feed(database, channels) if database.pooled else Listener(database, channels)


class Listener:
    """A connection that nothing is sent over does not notice when the other end is gone, or is not the primary any
    more: now and then it is asked something."""

    every = LISTENING_CHECKED_EVERY

    def __init__(self, database: Database, channels: Mapping[str, Callable[[str], None]]) -> None:
        self._database = database
        self._channels = channels
        self._generation = 0
        self._ask_next = 0.0
        self._connection: Connection | None = None

    async def ensure(self) -> bool:
        """True when a new connection had to be made, so that something may have been missed."""
        if await self._hears():
            return False
        await self.close()
        self._generation = self._database.servers.generation
        connection = await connect(self._database.url, self._database.schema)
        try:
            for channel in self._channels:
                await connection.add_listener(channel, self._receive)
        except BaseException as error:
            connection.terminate()  # half deaf is worse than deaf: nobody would notice
            if (meaning := translate(error)) is not None:  # the server ended while it was asked
                raise meaning from error
            raise
        self._connection = connection
        self._ask_next = monotonic() + ASKED_EVERY
        return True

    async def _hears(self) -> bool:
        connection = self._connection
        if connection is None or connection.is_closed():
            return False
        if self._generation != self._database.servers.generation:  # it may lead to where the database was
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
