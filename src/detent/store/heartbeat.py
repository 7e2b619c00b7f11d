"""The reserved connection of the heartbeat: one statement, its own limits, opened again whenever it was lost."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from detent.store import sql
from detent.store.connection import Connection
from detent.store.db import connect
from detent.store.limits import beat_limits
from detent.store.servers import servers_of
from detent.store.statement import Statement


class ExpectedClock(NamedTuple):
    """The database time that a heartbeat expects, within `limit`. `at` None: any time. `steady_since`: since when this
    process has seen no step."""

    at: datetime | None = None
    limit: timedelta = timedelta()
    steady_since: datetime | None = None


class HeartbeatReply(NamedTuple):
    """`stepped`: the time is not as expected, and nothing was renewed. `held`: no tick fires anywhere."""

    stepped: bool
    remaining: float
    incarnation: int
    timeline: int
    held: bool
    at: datetime


NOTHING_EXPECTED = ExpectedClock()


class HeartbeatConnection:
    def __init__(self, url: str, schema: str, seconds: float, *, pooled: bool = False) -> None:
        self._url = url
        self._schema = schema
        self._seconds = seconds
        self._pooled = pooled
        self._servers = servers_of(url)
        self._generation = 0
        self._connection: Connection | None = None

    async def beat(
        self, node: int, offset: float, expectation: ExpectedClock = NOTHING_EXPECTED
    ) -> HeartbeatReply | None:
        """Renew the node's row; None when the node has been evicted. Connecting counts against the same short limit."""
        row = await self._ask(sql.node.HEARTBEAT, node, offset, *expectation)
        if row["remaining"] is None and not row["stepped"]:
            return None
        remaining = row["remaining"].total_seconds() if row["remaining"] is not None else 0.0
        return HeartbeatReply(row["stepped"], remaining, row["incarnation"], row["timeline"], row["held"], row["at"])

    async def hold_for_clock(self, node: int, reason: str) -> bool:
        """Hold all ticks. True: they are not held, because other nodes have seen no step in the current time."""
        row = await self._ask(sql.cluster.HOLD_FOR_CLOCK, node, reason)
        return bool(row["steady"])

    async def _ask(self, statement: Statement, *arguments: object) -> Any:
        try:
            async with asyncio.timeout(self._seconds):
                return await self._fetch(statement, *arguments)
        except BaseException:
            await self.close()
            raise

    async def _fetch(self, statement: Statement, *arguments: object) -> Any:
        if self._generation != self._servers.generation:
            await self.close()  # it may lead to a former primary
        if self._connection is None or self._connection.is_closed():
            self._generation = self._servers.generation
            limits = beat_limits(self._seconds)
            self._connection = await connect(self._url, self._schema, limits, pooled=self._pooled)
        return await self._connection.fetchrow(statement.text, *arguments)

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None
