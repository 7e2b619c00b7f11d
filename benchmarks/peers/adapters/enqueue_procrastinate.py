"""Procrastinate: `defer_async` and `batch_defer_async` of a task, on the caller's own psycopg connection."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version

import procrastinate
import psycopg
from enqueue_protocol import CONNECTIONS, main
from enqueue_psycopg import PsycopgClient, PsycopgPeer, connect

from detent.devtools.bench.enqueue_columns import CREATE_ORDERS, Payload

TABLES = ("procrastinate_jobs", "procrastinate_events", "procrastinate_periodic_defers")


class ProcrastinateClient(PsycopgClient):
    def __init__(self, connection: psycopg.AsyncConnection, app: procrastinate.App) -> None:
        super().__init__(connection)
        self._task = app.configure_task("noop", connection=connection)

    async def single(self, payload: Payload) -> None:
        await self._task.defer_async(**payload)

    async def batch(self, payloads: Sequence[Payload]) -> None:
        await self._task.batch_defer_async(*payloads)


async def open_peer(url: str) -> PsycopgPeer:
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url, min_size=1, max_size=1))

    @app.task(name="noop")
    async def noop(**_payload: object) -> None:
        return None

    await app.open_async()
    await app.schema_manager.apply_schema_async()
    connections = [await connect(url) for _ in range(CONNECTIONS)]
    await connections[0].execute(CREATE_ORDERS)
    return PsycopgPeer(version("procrastinate"), TABLES, [ProcrastinateClient(each, app) for each in connections], app)


if __name__ == "__main__":
    main(open_peer)
