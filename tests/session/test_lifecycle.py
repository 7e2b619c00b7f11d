"""What happens to jobs by themselves, with a scheduler and a worker that really run."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from detent.domain.job import HttpTarget, JobSpec
from detent.domain.run import Call, Failed, Outcome, Succeeded
from detent.jobs import JobOperations
from detent.runtime.wakeups import Wakeups
from detent.scheduler.lifecycle import LifecycleLoop
from detent.store import Store
from detent.store.db import Rejected
from tests.support.waiting import until

HTTP = HttpTarget(url="http://127.0.0.1:9/")
SECOND = timedelta(seconds=1)


def spec(**fields: Any) -> JobSpec:
    return JobSpec(**{"schedule": "every 1s", "target": HTTP, "max_retries": 0, **fields})


async def database_time(look: Any) -> datetime:
    moment: datetime = await look.fetchval("SELECT clock_timestamp()")
    return moment


async def test_a_job_whose_runs_all_die_is_paused_and_says_why(store: Store, look: Any, start: Any) -> None:
    async def breaks(call: Call) -> Outcome:
        return Failed("broken")

    (job,) = await JobOperations(store).registration.add([spec(auto_pause_after=2)])
    await start(breaks)

    async def paused() -> bool:
        found = await store.jobs.get(job.id)
        return found is not None and found.status == "paused"

    await until(paused, 20, "the job to be paused")
    found = await store.jobs.get(job.id)
    assert found is not None
    assert (found.paused_reason, found.paused_by) == ("the last 2 runs were dead", "detent")
    assert await look.fetchval("SELECT count(*) FROM run_history WHERE status = 2") in (2, 3)


async def test_a_pause_that_ends_lets_the_first_tick_from_then_on_fire_in_time(
    store: Store, look: Any, start: Any
) -> None:
    (job,) = await JobOperations(store).registration.add([spec()])
    end = (await database_time(look) + 2 * SECOND).replace(microsecond=0)
    await JobOperations(store).lifecycle.pause(job.id, until=end)
    await start()

    async def ran() -> Any:
        return await look.fetchrow("SELECT * FROM run_history WHERE status = 1 ORDER BY scheduled_at LIMIT 1")

    first = await until(ran, 20, "a run after the pause")
    assert end <= first["scheduled_at"] < end + SECOND
    now = await database_time(look)
    ((_, _, account),), _ = await JobOperations(store).audit.audit((now - timedelta(hours=1), now))
    assert account.clean, account
    assert account.accounted["skipped: paused"] >= 1


async def test_a_tick_that_is_to_be_skipped_is_passed_over_and_the_next_one_runs(
    store: Store, look: Any, start: Any
) -> None:
    called: list[datetime] = []

    async def notes(call: Call) -> Outcome:
        called.append(call.scheduled_at)
        return Succeeded()

    (job,) = await JobOperations(store).registration.add([spec()])
    await start(notes)
    found = await store.jobs.get(job.id)
    assert found is not None and found.next_run_at is not None
    overdue = max(await database_time(look) - found.next_run_at, timedelta())
    skipped = found.next_run_at + (overdue // SECOND + 3) * SECOND
    await JobOperations(store).lifecycle.skip(job.id, skipped, "not this one")
    await until(lambda: any(tick > skipped for tick in called), 20, "the tick behind the skipped one")
    assert skipped not in called
    assert skipped - SECOND in called
    assert skipped + SECOND in called
    assert await look.fetchval("SELECT reason FROM run_history WHERE scheduled_at = $1", skipped) == "by request"


async def test_a_triggered_run_gives_its_payload_to_every_try(store: Store, look: Any, start: Any) -> None:
    given: list[Any] = []

    async def fails_once(call: Call) -> Outcome:
        given.append(call.payload)
        return Failed("once more") if call.attempt == 1 else Succeeded()

    (job,) = await JobOperations(store).registration.add(
        [spec(schedule="@yearly", payload="its own", max_retries=1, retry_base_seconds=0)]
    )
    await start(fails_once)
    key = await JobOperations(store).lifecycle.trigger(job.id, {"n": 1})

    async def over() -> bool:
        run = await store.runs.get(key)
        return run is not None and run.status == "succeeded"

    await until(over, 20, "the run to succeed")
    told, listed = await store.runs.get(key), (await store.runs.list(job=job.id))[0]
    assert told is not None
    assert told.payload == {"n": 1}
    assert [run.payload for run in listed] == [msgspec.UNSET]
    again = await JobOperations(store).runs.retry(key)
    await until(lambda: len(given) >= 3, 20, "the repeat")
    assert given[:3] == [{"n": 1}] * 3
    assert again.on_demand and again != key


async def test_what_fails_for_one_job_keeps_no_pause_from_ending(store: Store, look: Any) -> None:
    """Here the history that tells whether a job is to be paused cannot be read."""
    (failing, paused) = await JobOperations(store).registration.add(
        [spec(name="failing", auto_pause_after=1), spec(name="paused")]
    )
    await JobOperations(store).lifecycle.pause(paused.id, until=await database_time(look) + timedelta(hours=1))
    await look.execute("UPDATE jobs SET paused_until = now() WHERE name = 'paused'")
    await look.execute(
        "UPDATE jobs SET definition = definition || '{\"auto_pause_after\": \"x\"}' WHERE name = 'failing'"
    )
    wakeups = Wakeups()
    lifecycle = LifecycleLoop(JobOperations(store), wakeups, schedules=True)
    wakeups.runs_died({await look.fetchval("SELECT job FROM jobs WHERE id = $1", failing.id)})
    with pytest.raises(Rejected):
        await lifecycle.tick()
    resumed = await store.jobs.get(paused.id)
    assert resumed is not None
    assert resumed.status == "active"
