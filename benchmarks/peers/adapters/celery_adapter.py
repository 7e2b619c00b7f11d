"""Celery alone: tasks sent to Redis, then drained by a worker that records each result in Redis."""

from __future__ import annotations

import os
import time

from celery_processes import CHILDREN, results, until, worker
from protocol import Asked, Work, main


async def fill(asked: Asked) -> None:
    os.environ["PEER_REDIS"] = asked.url
    from celery_application import app, noop

    with app.producer_pool.acquire(block=True) as producer:
        for _ in range(asked.jobs):
            noop.apply_async(producer=producer)


async def work(asked: Asked) -> Work:
    """Starting the worker is not counted: the time begins with the first results, and they are not counted either."""
    with worker(asked.url, CHILDREN):
        await until(lambda: results(asked.url) > 0)
        before, began = results(asked.url), time.time()
        await until(lambda: results(asked.url) >= asked.jobs)
        share = (asked.jobs - before) / asked.jobs
        ended = time.time()
        recorded = results(asked.url)
    return Work(began, began + (ended - began) / share, recorded, recorded)


if __name__ == "__main__":
    main(fill, work=work)
