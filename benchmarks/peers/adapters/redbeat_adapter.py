"""Celery + RedBeat: recurring entries that are all due at one instant are sent by beat and done by a worker."""

from __future__ import annotations

import asyncio
import os
import time
from datetime import UTC, datetime, timedelta

from celery_processes import CHILDREN, beat, results, until, worker
from protocol import Asked, Work, main

EVERY = timedelta(hours=1)
LEAD_SECONDS = 8.0


async def fill(asked: Asked) -> None:
    """The entries are written with their last run in the past; `work` moves it so that they are due together."""
    _write(asked, datetime.now(UTC))


def _write(asked: Asked, last: datetime) -> None:
    os.environ["PEER_REDIS"] = asked.url
    from celery.schedules import schedule
    from celery_application import app
    from redbeat import RedBeatSchedulerEntry

    for number in range(asked.jobs):
        entry = RedBeatSchedulerEntry(f"noop-{number}", "noop", schedule(EVERY, app=app), app=app)
        entry.reschedule(last)
        entry.save()


async def work(asked: Asked) -> Work:
    with worker(asked.url, CHILDREN), beat(asked.url):
        due = datetime.now(UTC) + timedelta(seconds=LEAD_SECONDS + asked.jobs / 500)
        await asyncio.to_thread(_write, asked, due - EVERY)
        began = due.timestamp()
        if time.time() > began:
            raise SystemExit("The entries could not be written before they were due.")
        await until(lambda: results(asked.url) >= asked.jobs)
        ended, recorded = time.time(), results(asked.url)
        return Work(began, ended, recorded, recorded)


if __name__ == "__main__":
    main(fill, work=work)
