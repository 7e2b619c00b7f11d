"""A connection that listens. Which notifications arrive is the server's business; missing some is harmless.

Through a pooler nobody can listen: there is a table to look into instead (`feed.py`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from detent.store.db import Database, connect
from detent.store.feed import Feed

LISTENING_CHECKED_EVERY = 5.0


class Hearing(Protocol):
    """Whoever passes on what others say. `ensure` is to be called again after `every` seconds."""

    every: float

    async def ensure(self) -> bool: ...
    async def close(self) -> None: ...


def hearing(database: Database, channels: Mapping[str, Callable[[str], None]]) -> Hearing:
    return Feed(database, channels) if database.pooled else Listener(database, channels)


class Listener:
    every = LISTENING_CHECKED_EVERY

    def __init__(self, database: Database, channels: Mapping[str, Callable[[str], None]]) -> None:
        self._database = database
        self._channels = channels
        self._connection: Any = None

    async def ensure(self) -> bool:
        """True when a new connection had to be made, so that something may have been missed."""
        if self._connection is not None and not self._connection.is_closed():
            return False
        connection = await connect(self._database.url, self._database.schema)
        try:
            for channel in self._channels:
                await connection.add_listener(channel, self._receive)
        except BaseException:
            connection.terminate()  # half deaf is worse than deaf: nobody would notice
            raise
        self._connection = connection
        return True

    def _receive(self, _connection: Any, _process: int, channel: str, payload: Any) -> None:
        self._channels[channel](str(payload))

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
