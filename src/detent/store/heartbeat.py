"""The reserved connection of the heartbeat: one statement, its own limits, opened again whenever it was lost."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any, NamedTuple

from detent.store.db import connect, statement
from detent.store.limits import beat_limits


class Beat(NamedTuple):
    remaining: float
    incarnation: int
    at: datetime


class HeartbeatConnection:
    def __init__(self, url: str, schema: str, seconds: float, *, pooled: bool = False) -> None:
        self._url = url
        self._schema = schema
        self._seconds = seconds
        self._pooled = pooled
        self._connection: Any = None

    async def beat(self, node: int, offset: float) -> Beat | None:
        """Renew the node's row; None when the node has been evicted. Connecting counts against the same short limit."""
        try:
            async with asyncio.timeout(self._seconds):
                row = await self._renew(node, offset)
        except BaseException:
            await self.close()
            raise
        if row is None:
            return None
        return Beat(row["remaining"].total_seconds(), row["incarnation"], row["at"])

    async def _renew(self, node: int, offset: float) -> Any:
        if self._connection is None or self._connection.is_closed():
            limits = beat_limits(self._seconds)
            self._connection = await connect(self._url, self._schema, limits, pooled=self._pooled)
        return await self._connection.fetchrow(statement("beat"), node, offset)

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None
