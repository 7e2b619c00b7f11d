"""`detent demo`: registers the jobs of the demo and writes a month of history for them."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import NamedTuple

from detent.devtools.demo.database import DemoDatabase, DemoRows
from detent.devtools.demo.history import HistoryWriter, Month, elections
from detent.devtools.demo.incidents import IncidentRow, incidents
from detent.devtools.demo.jobs import demo_jobs
from detent.domain.counts import plural
from detent.domain.documents import MAX_PAYLOAD_BYTES
from detent.errors import Conflict
from detent.jobs.lifecycle import JobLifecycle
from detent.store import Store
from detent.store.tallies import MINUTES_KEPT_FOR
from detent.telemetry.metrics import LATENESS

SEED = 20
EVERYTHING = 1 << 60
MINUTE = timedelta(minutes=1)


class Filled(NamedTuple):
    jobs: int
    runs: int
    dead: int


async def fill(store: Store, days: int, echo_url: str, *, beside: bool) -> Filled:
    """`beside`: even if the database already has jobs."""
    database = DemoDatabase(store.database)
    there = await database.jobs()
    if there and not beside:
        raise Conflict(
            f"This database already has {plural(there, 'job')}: use an empty one, or add the demo with --beside."
        )
    now = await store.upkeep.now()
    chance = random.Random(SEED)
    month = Month.before(now, days, chance)
    jobs = demo_jobs(now, echo_url)
    registered = await database.register([job.spec for job in jobs], month.since, MAX_PAYLOAD_BYTES)
    runs, attempts, last_ticks = [], [], []
    missed: list[IncidentRow] = []
    for job, (prepared, _) in zip(jobs, registered, strict=True):
        writer = HistoryWriter(month, job, prepared.number, prepared.partition, chance)
        rows = list(writer.rows(prepared.schedule))
        runs += rows
        attempts += writer.attempts
        missed += incidents(job.spec, rows, now)
        last_ticks += [(prepared.number, max(row.until or row.scheduled_at for row in rows))] if rows else []
    over = [prepared.number for job, (prepared, _) in zip(jobs, registered, strict=True) if job.over]
    await database.write(DemoRows(runs, attempts, elections(month), missed), last_ticks, over)
    lifecycle = JobLifecycle(store)
    for job, (_, job_id) in zip(jobs, registered, strict=True):
        if job.paused is not None:
            await lifecycle.pause(job_id, job.paused, by="anna")
    await _tally(store)
    return Filled(len(jobs), len(runs), sum(row.reason == "retries exhausted" for row in runs))


async def _tally(store: Store) -> None:
    """Write the figures that upkeep would have folded all along."""
    mark = await store.tallies.mark()
    end = mark.now.replace(second=0, microsecond=0) + MINUTE
    await store.tallies.leap(mark, mark.now)
    await store.tallies.amend(end - MINUTES_KEPT_FOR, end, mark, LATENESS, EVERYTHING)
    await store.tallies.count_jobs()
