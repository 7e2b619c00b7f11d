"""APScheduler 3 with its SQLAlchemy job store on PostgreSQL: jobs that are all due are run by one scheduler.

It has no call for many jobs at once, and keeps no record of what ran: a recurring job's row is moved on, that is all.
"""

from __future__ import annotations

import asyncio
import os
import time
from datetime import UTC, datetime, timedelta

import apscheduler_task
from apscheduler.events import EVENT_JOB_EXECUTED
from apscheduler.executors.asyncio import AsyncIOExecutor
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from protocol import Asked, Counter, Work, main

RECURRING = os.environ.get("PEER_RECURRING", "1") == "1"


def scheduler(asked: Asked) -> AsyncIOScheduler:
    store = SQLAlchemyJobStore(url=asked.url.replace("postgresql://", "postgresql+psycopg://", 1))
    # Without the grace limit lifted, it drops what is more than a second late.
    defaults = {"misfire_grace_time": None, "coalesce": True}
    return AsyncIOScheduler(
        jobstores={"default": store}, executors={"default": AsyncIOExecutor()}, job_defaults=defaults, timezone=UTC
    )


async def fill(asked: Asked) -> None:
    made = scheduler(asked)
    made.start(paused=True)
    due = datetime.now(UTC) - timedelta(seconds=1)
    for _ in range(asked.jobs):
        if RECURRING:
            made.add_job(apscheduler_task.noop, "interval", hours=1, next_run_time=due)
        else:
            made.add_job(apscheduler_task.noop, "date", run_date=due)
    made.shutdown()


async def work(asked: Asked) -> Work:
    made = scheduler(asked)
    ended, counter = asyncio.Event(), Counter()

    def executed(_event: object) -> None:
        counter.hit()
        if counter.runs == asked.jobs:
            ended.set()

    made.add_listener(executed, EVENT_JOB_EXECUTED)
    began = await asked.started()
    made.start()
    await ended.wait()
    finished = time.time()
    left = [job for job in made.get_jobs() if job.next_run_time <= datetime.now(UTC)]
    made.shutdown()
    return Work(began, finished, counter.runs, asked.jobs - len(left))


if __name__ == "__main__":
    main(fill, work=work)
