"""PgQueuer: jobs put into its queue in batches, then drained. It claims and finishes in batches of BATCH."""

from __future__ import annotations

import asyncio
import os
import time
from datetime import timedelta

import asyncpg
from pgqueuer import AsyncpgPoolDriver, Queries, QueueManager
from pgqueuer.types import QueueExecutionMode
from protocol import Asked, Counter, Work, main

BATCH = int(os.environ.get("PEER_BATCH", "1000"))
CONNECTIONS = int(os.environ.get("PEER_CONNECTIONS", "4"))
AT_ONCE = 5_000


async def fill(asked: Asked) -> None:
    async with asyncpg.create_pool(asked.url, min_size=1, max_size=2) as pool:
        queries = Queries(AsyncpgPoolDriver(pool))
        await queries.install()
        await _put_in(queries, asked.jobs)


async def _put_in(queries: Queries, jobs: int) -> None:
    for first in range(0, jobs, AT_ONCE):
        count = min(AT_ONCE, jobs - first)
        await queries.enqueue(["noop"] * count, [None] * count, [0] * count)


def _manager(pool: asyncpg.Pool, counter: Counter) -> QueueManager:
    manager = QueueManager(Queries(AsyncpgPoolDriver(pool)))

    @manager.entrypoint("noop")
    async def noop(_job: object) -> None:
        counter.hit()

    return manager


async def flow(asked: Asked) -> Work:
    counter = Counter(asked.jobs)
    async with asyncpg.create_pool(asked.url, min_size=CONNECTIONS, max_size=CONNECTIONS) as pool:
        manager = _manager(pool, counter)
        counter.reached = manager.shutdown.set
        began = await asked.started()
        await asyncio.gather(_put_in(manager.queries, asked.jobs), manager.run(batch_size=BATCH))
        ended = time.time()
    return Work(began, ended, counter.runs, await _recorded(asked.url))


async def work(asked: Asked) -> Work:
    counter = Counter()
    async with asyncpg.create_pool(asked.url, min_size=CONNECTIONS, max_size=CONNECTIONS) as pool:
        manager = _manager(pool, counter)
        began = await asked.started()
        # A drain that finds jobs still under way waits for this long before it looks again, so it must be short.
        soon = timedelta(milliseconds=20)
        await manager.run(dequeue_timeout=soon, batch_size=BATCH, mode=QueueExecutionMode.drain)
        ended = time.time()
    return Work(began, ended, counter.runs, await _recorded(asked.url))


async def _recorded(url: str) -> int:
    connection = await asyncpg.connect(url)
    done = "SELECT count(*) FROM pgqueuer_log WHERE status = 'successful'"
    recorded: int = await connection.fetchval(f"{done} AND NOT EXISTS (SELECT FROM pgqueuer)")
    await connection.close()
    return recorded


if __name__ == "__main__":
    main(fill, work=work, flow=flow)
