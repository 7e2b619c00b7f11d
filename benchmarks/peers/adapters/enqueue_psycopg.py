"""What the peers on psycopg have in common: the caller's INSERT in a transaction, and how rows are counted.

The connections commit each statement (autocommit), unless a transaction is begun: the fewest round trips. The pools of
both peers are left out for the same reason: both take a connection of the caller.
"""

from __future__ import annotations

import psycopg
from enqueue_protocol import INSERT_ORDER

from detent.devtools.bench.enqueue_columns import Payload

ORDER = INSERT_ORDER.format("%s", "%s")


class PsycopgClient:
    def __init__(self, connection: psycopg.AsyncConnection) -> None:
        self.connection = connection

    async def single(self, payload: Payload) -> None:
        raise NotImplementedError

    async def transaction(self, payload: Payload) -> None:
        async with self.connection.transaction():
            await self.connection.execute(ORDER, (payload["customer"], payload["amount"]))
            await self.single(payload)

    async def insert(self, payload: Payload) -> None:
        async with self.connection.transaction():
            await self.connection.execute(ORDER, (payload["customer"], payload["amount"]))


class PsycopgPeer:
    driver = "psycopg"

    def __init__(self, version: str, tables: tuple[str, ...], clients: list, keep: object) -> None:
        """The first of `tables` has the runs. `keep` is closed when this is."""
        self.version = version
        self.clients = clients
        self.keep = keep
        self._tables = tables
        self._connection = clients[0].connection

    async def clear(self) -> None:
        await self._connection.execute(f"TRUNCATE {', '.join(self._tables)}, orders")

    async def count(self) -> tuple[int, int]:
        found = await self._connection.execute(
            f"SELECT (SELECT count(*) FROM {self._tables[0]}), (SELECT count(*) FROM orders)"
        )
        return await found.fetchone()


async def connect(url: str) -> psycopg.AsyncConnection:
    return await psycopg.AsyncConnection.connect(url, autocommit=True)
