"""pg-scheduler: one-off jobs put in with its bulk call, all due, then done by one scheduler."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from datetime import UTC, datetime, timedelta

import asyncpg
from pg_scheduler import JobSpec, PollingConfig, Scheduler
from protocol import Asked, Counter, Work, main

CONCURRENCY = int(os.environ.get("PEER_CONCURRENCY", "200"))
CONNECTIONS = int(os.environ.get("PEER_CONNECTIONS", "10"))
BATCH = int(os.environ.get("PEER_BATCH", "100"))
logging.disable(logging.INFO)

counter = Counter()


async def noop() -> None:
    counter.hit()


def scheduler(pool: asyncpg.Pool) -> Scheduler:
    # Its pauses are for many workers that poll; a worker alone that never waits is its fastest.
    eager = PollingConfig(min_interval=0, idle_start_interval=0.05, semaphore_full_interval=0.005, jitter=False)
    return Scheduler(
        pool,
        max_concurrent_jobs=CONCURRENCY,
        batch_claim_limit=BATCH,
        misfire_grace_time=None,
        vacuum_enabled=False,
        polling_config=eager,
    )


async def fill(asked: Asked) -> None:
    async with asyncpg.create_pool(asked.url, min_size=2, max_size=2) as pool:
        made = scheduler(pool)
        await made.initialize_db()
        due = datetime.now(UTC) - timedelta(seconds=1)
        await made.schedule_bulk([JobSpec(func=noop, execution_time=due) for _ in range(asked.jobs)])


async def work(asked: Asked) -> Work:
    """It begins after a random pause of up to a second, which is not counted: its first call is its beginning."""
    async with asyncpg.create_pool(asked.url, min_size=CONNECTIONS, max_size=CONNECTIONS) as pool:
        made = scheduler(pool)
        made.task_map["noop"] = noop
        await asked.started()
        await made.start()
        while await _open_jobs(pool, made):
            await asyncio.sleep(0.02)
        finished = time.time()
        await made.shutdown()
        recorded = await pool.fetchval("SELECT count(*) FROM scheduled_jobs WHERE status = 'completed'")
        return Work(counter.first, finished, counter.runs, recorded)


async def _open_jobs(pool: asyncpg.Pool, made: Scheduler) -> bool:
    """The table is asked only when this worker has nothing under way."""
    if made.active_jobs:
        return True
    return bool(await pool.fetchval("SELECT EXISTS (SELECT FROM scheduled_jobs WHERE status <> 'completed')"))


if __name__ == "__main__":
    main(fill, work=work)
