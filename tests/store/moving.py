"""Jobs that were created in the past, whose ticks a test fires and settles itself."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from detent.contract.job import Job
from detent.domain.identity import first_token
from detent.domain.job import HttpTarget, JobSpec
from detent.domain.run import Claim
from detent.domain.schedule import Schedule
from detent.domain.states import CODES, RunStatus
from detent.jobs import JobOperations
from detent.store import Store
from tests.support.ends import ended_run
from tests.support.ticks import advance_of

NODE = 7
HTTP = HttpTarget(url="http://127.0.0.1:9/")
HOURLY = "0 * * * *"
HOUR = timedelta(hours=1)


def spec(**fields: Any) -> JobSpec:
    return JobSpec(**{"schedule": HOURLY, "target": HTTP, **fields})


async def number_of(look: Any, job: Job) -> int:
    number: int = await look.fetchval("SELECT job FROM jobs WHERE id = $1", job.id)
    return number


async def database_time(look: Any) -> datetime:
    now: datetime = await look.fetchval("SELECT now()")
    return now


async def full_hour(look: Any) -> datetime:
    return (await database_time(look)).astimezone(UTC).replace(minute=0, second=0, microsecond=0)


async def job_of_old(verbs: Store, look: Any, age: timedelta, **fields: Any) -> Job:
    """A job that was created `age` ago and has not ticked since."""
    (job,) = await JobOperations(verbs).registration.add([spec(**fields)], by="maker")
    number = await number_of(look, job)
    created = await database_time(look) - age
    await look.execute("UPDATE jobs SET created_at = $2 WHERE job = $1", number, created)
    schedule = Schedule.parse(job.schedule, timezone=job.timezone, anchor=created)
    first = schedule.next_after(created)
    await look.execute("UPDATE cursors SET next_tick = $2, fire_at = $2 WHERE job = $1", number, first)
    return job


async def fire(verbs: Store, look: Any, job: Job, *, careful: bool = False) -> datetime:
    """Fire the tick at the cursor; returns the tick."""
    row = await look.fetchrow("SELECT c.* FROM cursors c JOIN jobs USING (job) WHERE id = $1", job.id)
    following = Schedule.parse(job.schedule, timezone=job.timezone).next_after(row["next_tick"])
    advance = advance_of(row["job"], row["next_tick"], row["generation"], following, None)
    answer = await verbs.cursors.fire(NODE, 1, True, [advance], careful=careful)
    assert all(item.why != "refused" for item in answer), answer
    tick: datetime = row["next_tick"]
    return tick


async def settle(
    verbs: Store, look: Any, job: Job, tick: datetime, status: RunStatus = RunStatus.SUCCEEDED, late: float = 0.004
) -> None:
    started = tick + timedelta(seconds=late)
    claim = Claim(await number_of(look, job), 0, tick, 0, first_token(1), 1)
    reason = None if status is RunStatus.SUCCEEDED else "retries exhausted"
    outcome = "succeeded" if status is RunStatus.SUCCEEDED else "failed"
    error = None if status is RunStatus.SUCCEEDED else "it broke"
    end = ended_run(claim, started, started + timedelta(seconds=1), CODES[status], reason, None, outcome, error)
    assert await verbs.live_runs.settle(NODE, [end]) == []


async def run(verbs: Store, look: Any, job: Job, times: int = 1) -> list[datetime]:
    """Fire and settle the next ticks; returns them."""
    ticks = []
    for _ in range(times):
        tick = await fire(verbs, look, job)
        await settle(verbs, look, job, tick)
        ticks.append(tick)
    return ticks
