"""Oban for Python: `enqueue` and `enqueue_many` on the caller's own psycopg connection."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version

import psycopg
from enqueue_protocol import CONNECTIONS, main
from enqueue_psycopg import PsycopgClient, PsycopgPeer, connect
from oban import Oban, worker
from oban.schema import install

from detent.devtools.bench.enqueue_columns import CREATE_ORDERS, Payload


@worker(queue="default")
class NoOp:
    async def process(self, _job: object) -> None:
        return None


class ObanClient(PsycopgClient):
    def __init__(self, connection: psycopg.AsyncConnection, oban: Oban) -> None:
        super().__init__(connection)
        self._oban = oban

    async def single(self, payload: Payload) -> None:
        await self._oban.enqueue(NoOp.new(dict(payload)), conn=self.connection)

    async def batch(self, payloads: Sequence[Payload]) -> None:
        """Its statements have one row each: without a transaction each would be committed alone."""
        async with self.connection.transaction():
            await self._oban.enqueue_many([NoOp.new(dict(each)) for each in payloads], conn=self.connection)


async def open_peer(url: str) -> PsycopgPeer:
    """The instance is not started: without queues there is nothing that it would do."""
    pool = await Oban.create_pool(dsn=url, min_size=1, max_size=1)
    await install(pool)
    oban = Oban(pool=pool)
    connections = [await connect(url) for _ in range(CONNECTIONS)]
    await connections[0].execute(CREATE_ORDERS)
    return PsycopgPeer(version("oban"), ("oban_jobs",), [ObanClient(each, oban) for each in connections], pool)


if __name__ == "__main__":
    main(open_peer)
