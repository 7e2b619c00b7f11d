"""What all cells of taskiq share: a broker on Redis streams, and its worker in this process."""

import asyncio
import contextlib
import logging
import os

from taskiq.api import run_receiver_task
from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

backend = RedisAsyncResultBackend(os.environ["REDIS_URL"])
broker = RedisStreamBroker(os.environ["REDIS_URL"]).with_result_backend(backend)
logging.getLogger("taskiq").setLevel(logging.CRITICAL)


@contextlib.asynccontextmanager
async def worker():
    broker.is_worker_process = True
    await broker.startup()
    working = asyncio.create_task(run_receiver_task(broker))
    try:
        yield
    finally:
        working.cancel()
        await asyncio.wait([working])
        await broker.shutdown()
