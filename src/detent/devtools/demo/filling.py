"""`detent demo`: registers the jobs of the demo and writes their month, at once."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import NamedTuple

from detent.devtools.demo.database import DemonstrationStore, Rows
from detent.devtools.demo.expected import IncidentRow, incidents
from detent.devtools.demo.history import Month, Teller, elections
from detent.devtools.demo.jobs import demo_jobs
from detent.domain.documents import MAX_PAYLOAD_BYTES
from detent.errors import Conflict
from detent.store import Store
from detent.store.tallies import KEPT
from detent.telemetry.metrics import LATENESS

SEED = 20
EVERYTHING = 1 << 60
MINUTE = timedelta(minutes=1)


class Filled(NamedTuple):
    jobs: int
    runs: int
    dead: int


async def fill(store: Store, days: int, echo_url: str, *, beside: bool) -> Filled:
    """`beside`: although there are jobs already."""
    demonstration = DemonstrationStore(store.database)
    there = await demonstration.jobs()
    if there and not beside:
        raise Conflict(
            f"This database has {there} jobs already: name an empty one, or add the demo to them with --beside."
        )
    now = await store.upkeep.now()
    chance = random.Random(SEED)
    month = Month.before(now, days, chance)
    jobs = demo_jobs(now, echo_url)
    registered = await demonstration.register([job.spec for job in jobs], month.since, MAX_PAYLOAD_BYTES)
    runs, attempts, last_ticks = [], [], []
    missed: list[IncidentRow] = []
    for job, (prepared, _) in zip(jobs, registered, strict=True):
        teller = Teller(month, job, prepared.number, prepared.partition, chance)
        rows = list(teller.tell(prepared.schedule))
        runs += rows
        attempts += teller.attempts
        missed += incidents(job.spec, rows, now)
        last_ticks += [(prepared.number, max(row.until or row.scheduled_at for row in rows))] if rows else []
    over = [prepared.number for job, (prepared, _) in zip(jobs, registered, strict=True) if job.over]
    await demonstration.write(Rows(runs, attempts, elections(month), missed), last_ticks, over)
    for job, (_, job_id) in zip(jobs, registered, strict=True):
        if job.paused is not None:
            await store.jobs.pause(job_id, job.paused, by="anna")
    await _tally(store)
    return Filled(len(jobs), len(runs), sum(row.reason == "retries exhausted" for row in runs))


async def _tally(store: Store) -> None:
    """As if somebody had folded all along."""
    mark = await store.tallies.mark()
    end = mark.now.replace(second=0, microsecond=0) + MINUTE
    await store.tallies.leap(mark, mark.now)
    await store.tallies.amend(end - KEPT, end, mark, LATENESS, EVERYTHING)
    await store.tallies.count_jobs()
