"""detent: its SQL functions on the caller's own asyncpg connection, as any program calls them."""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg
from enqueue_asyncpg import AsyncpgClient, AsyncpgPeer
from enqueue_protocol import CONNECTIONS, main

from detent.devtools.bench.enqueue_calls import TASK, as_runs, read_statement
from detent.devtools.bench.enqueue_columns import CREATE_ORDERS, Payload, encode
from detent.version import __version__

ENQUEUE, ENQUEUE_MANY = read_statement("enqueue"), read_statement("enqueue_many")


class DetentClient(AsyncpgClient):
    async def single(self, payload: Payload) -> None:
        await self.connection.fetchrow(ENQUEUE, TASK, encode(payload))

    async def batch(self, payloads: Sequence[Payload]) -> None:
        await self.connection.fetch(ENQUEUE_MANY, TASK, as_runs(payloads))


async def open_peer(url: str) -> AsyncpgPeer:
    """The runner has migrated the database and created the task."""
    connections = [await asyncpg.connect(url) for _ in range(CONNECTIONS)]
    await connections[0].execute(CREATE_ORDERS)
    return AsyncpgPeer(__version__, "detent.backlog", [DetentClient(each) for each in connections])


if __name__ == "__main__":
    main(open_peer)
