"""PgQueuer: `Queries.enqueue` on the caller's own asyncpg connection, with values or with lists."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version

import asyncpg
from enqueue_asyncpg import AsyncpgClient, AsyncpgPeer
from enqueue_protocol import CONNECTIONS, main
from pgqueuer import AsyncpgDriver, Queries

from detent.devtools.bench.enqueue_columns import CREATE_ORDERS, Payload, encode


class PgQueuerClient(AsyncpgClient):
    def __init__(self, connection: asyncpg.Connection) -> None:
        super().__init__(connection)
        self._queries = Queries(AsyncpgDriver(connection))

    async def single(self, payload: Payload) -> None:
        await self._queries.enqueue("noop", encode(payload).encode())

    async def batch(self, payloads: Sequence[Payload]) -> None:
        count = len(payloads)
        await self._queries.enqueue(["noop"] * count, [encode(each).encode() for each in payloads], [0] * count)


async def open_peer(url: str) -> AsyncpgPeer:
    connections = [await asyncpg.connect(url) for _ in range(CONNECTIONS)]
    await Queries(AsyncpgDriver(connections[0])).install()
    await connections[0].execute(CREATE_ORDERS)
    return AsyncpgPeer(version("pgqueuer"), "pgqueuer", [PgQueuerClient(each) for each in connections])


if __name__ == "__main__":
    main(open_peer)
