"""What the peers on asyncpg have in common: the caller's INSERT in a transaction, and how rows are counted."""

from __future__ import annotations

import asyncpg
from enqueue_protocol import INSERT_ORDER

from detent.devtools.bench.enqueue_columns import Payload

ORDER = INSERT_ORDER.format("$1", "$2")


class AsyncpgClient:
    def __init__(self, connection: asyncpg.Connection) -> None:
        self.connection = connection

    async def single(self, payload: Payload) -> None:
        raise NotImplementedError

    async def transaction(self, payload: Payload) -> None:
        async with self.connection.transaction():
            await self.connection.execute(ORDER, payload["customer"], payload["amount"])
            await self.single(payload)

    async def insert(self, payload: Payload) -> None:
        async with self.connection.transaction():
            await self.connection.execute(ORDER, payload["customer"], payload["amount"])


class AsyncpgPeer:
    driver = "asyncpg"

    def __init__(self, version: str, table: str, clients: list) -> None:
        self.version = version
        self.clients = clients
        self._table = table
        self._connection = clients[0].connection

    async def clear(self) -> None:
        await self._connection.execute(f"TRUNCATE {self._table}, orders")

    async def count(self) -> tuple[int, int]:
        found = await self._connection.fetchrow(
            f"SELECT (SELECT count(*) FROM {self._table}) AS runs, (SELECT count(*) FROM orders) AS orders"
        )
        return found["runs"], found["orders"]
