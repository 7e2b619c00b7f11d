"""Procrastinate: jobs deferred in batches, then done by a worker that leaves when nothing is left."""

from __future__ import annotations

import asyncio
import os
import time

import procrastinate
from protocol import Asked, Counter, Work, main

CONCURRENCY = int(os.environ.get("PEER_CONCURRENCY", "20"))
CONNECTIONS = int(os.environ.get("PEER_CONNECTIONS", "10"))
AT_ONCE = 1_000


def application(asked: Asked, counter: Counter) -> procrastinate.App:
    connector = procrastinate.PsycopgConnector(conninfo=asked.url, min_size=CONNECTIONS, max_size=CONNECTIONS)
    app = procrastinate.App(connector=connector)

    @app.task(name="noop")
    async def noop() -> None:
        counter.hit()

    return app


async def fill(asked: Asked) -> None:
    app = application(asked, Counter())
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        await _put_in(app, asked.jobs)


async def _put_in(app: procrastinate.App, jobs: int) -> None:
    for first in range(0, jobs, AT_ONCE):
        await app.tasks["noop"].batch_defer_async(*({} for _ in range(min(AT_ONCE, jobs - first))))


async def flow(asked: Asked) -> Work:
    done = asyncio.Event()
    counter = Counter(asked.jobs, done.set)
    app = application(asked, counter)
    async with app.open_async():
        began = await asked.started()
        options = {"concurrency": CONCURRENCY, "install_signal_handlers": False, "fetch_job_polling_interval": 0.05}
        worker = asyncio.create_task(app.run_worker_async(**options))
        await _put_in(app, asked.jobs)
        await done.wait()
        worker.cancel()  # it finishes what is under way
        await asyncio.gather(worker, return_exceptions=True)
        return Work(began, time.time(), counter.runs, await _recorded(app))


async def _recorded(app: procrastinate.App) -> int:
    return len(list(await app.job_manager.list_jobs_async(status="succeeded")))


async def work(asked: Asked) -> Work:
    counter = Counter()
    app = application(asked, counter)
    async with app.open_async():
        began = await asked.started()
        await app.run_worker_async(
            wait=False, concurrency=CONCURRENCY, listen_notify=False, install_signal_handlers=False
        )
        ended = time.time()
        return Work(began, ended, counter.runs, await _recorded(app))


if __name__ == "__main__":
    main(fill, work=work, flow=flow)
