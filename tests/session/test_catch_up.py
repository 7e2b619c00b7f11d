"""Missed ticks that are made up for while live ones go on, in one process on a real database."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from detent.contract.tick import BackfillRequest
from detent.domain.identity import RunKey
from detent.domain.job import HttpTarget, JobSpec
from detent.domain.misfire import RUN_ALL, SKIP
from detent.domain.run import Call, Outcome, Succeeded
from detent.jobs import JobOperations
from detent.store import Store
from tests.support import factories
from tests.support.waiting import until

HTTP = {"type": "http", "url": "http://127.0.0.1:9/"}
MINUTE = timedelta(minutes=1)
LONG_AGO = factories.LONG_AGO
FAST = {"catchup_rate": 1000.0}


async def minutes_ago(look: Any, minutes: float) -> datetime:
    ago: datetime = await look.fetchval(
        "SELECT date_trunc('second', now()) - make_interval(secs => $1)", 60.0 * minutes
    )
    return ago


def document(**fields: Any) -> dict[str, Any]:
    return {"schedule": "every 1m", "target": HTTP, "retry_base_seconds": 0, **fields}


async def history(look: Any, job: int) -> list[Any]:
    return list(await look.fetch("SELECT * FROM run_history WHERE job = $1 ORDER BY scheduled_at, serial", job))


def past(hours: int, **fields: Any) -> BackfillRequest:
    return BackfillRequest(from_=LONG_AGO, to=LONG_AGO + timedelta(hours=hours), **fields)


class Recorder:
    """A target that writes down which ticks it was called for, in order."""

    def __init__(self) -> None:
        self.ticks: list[datetime] = []
        self.most = 0
        self._now = 0

    async def __call__(self, call: Call) -> Outcome:
        self._now += 1
        self.most = max(self.most, self._now)
        self.ticks.append(call.scheduled_at)
        await asyncio.sleep(0)
        self._now -= 1
        return Succeeded()


async def test_all_missed_ticks_inside_the_grace_run_once_oldest_first_and_one_at_a_time(look: Any, start: Any) -> None:
    first = await minutes_ago(look, 10.5)
    job = await factories.add_job(look, first, definition=document(), missed=RUN_ALL, partition=3)
    seen = Recorder()
    await start(seen, **FAST)
    missed = [first + number * MINUTE for number in range(10)]
    await until(lambda: len(seen.ticks) >= 11, what="ten missed ticks and the one that is merely late")
    assert [tick for tick in seen.ticks if tick in missed] == missed
    assert seen.most == 1
    assert len(set(seen.ticks)) == len(seen.ticks)
    assert await look.fetchval("SELECT count(*) FROM catchups") == 0
    assert await look.fetchval("SELECT next_tick FROM cursors WHERE job = $1", job) > missed[-1]


async def test_under_skip_nothing_missed_runs_and_the_ledger_says_so(look: Any, start: Any) -> None:
    first = await minutes_ago(look, 10.5)
    job = await factories.add_job(look, first, definition=document(), missed=SKIP)
    seen = Recorder()
    await start(seen)
    await until(lambda: seen.ticks, what="the tick that is merely late")
    assert seen.ticks == [first + 10 * MINUTE]

    async def told() -> Any:
        rows = await history(look, job)
        return rows if rows and rows[-1]["status"] == 1 else None

    *missed, _ = await until(told)
    assert {(row["status"], row["reason"]) for row in missed} == {(5, "policy")}
    assert sum(row["ticks"] for row in missed) == 10, "in one range, or in two where midnight is between them"


async def test_more_than_max_missed_are_not_made_up_for(look: Any, start: Any) -> None:
    first = await minutes_ago(look, 20.5)
    job = await factories.add_job(look, first, definition=document(), missed=RUN_ALL, max_missed=5)
    seen = Recorder()
    await start(seen, **FAST)
    await until(lambda: len(seen.ticks) >= 6)
    assert sorted(seen.ticks)[:5] == [first + number * MINUTE for number in range(5)]
    missed = [row for row in await history(look, job) if row["status"] == 5]
    assert ({row["reason"] for row in missed}, sum(row["ticks"] for row in missed)) == ({"limit"}, 15)
    assert missed[0]["scheduled_at"] == first + 5 * MINUTE


async def test_a_live_tick_is_not_skipped_for_a_run_that_makes_up_for_a_missed_one(look: Any, start: Any) -> None:
    """It waits for that run, and goes before the next of them."""
    first = await minutes_ago(look, 30)
    job = await factories.add_job(look, first, every="every 1m", definition=document(), missed=RUN_ALL)
    release = asyncio.Event()
    seen: list[datetime] = []

    async def waits(call: Call) -> Outcome:
        seen.append(call.scheduled_at)
        if len(seen) == 2:
            await release.wait()
        return Succeeded()

    session = await start(waits, **FAST)
    await until(lambda: len(seen) == 2, what="a run that makes up for something")
    assert seen[1] < first + 29 * MINUTE, "the first to run was the one that is merely late"
    live: datetime = await look.fetchval(
        "UPDATE cursors SET next_tick = date_trunc('milliseconds', now()), fire_at = date_trunc('milliseconds', now()),"
        " generation = generation + 1 WHERE job = $1 RETURNING next_tick",
        job,
    )
    session.scheduler.jobs_changed({job})
    await until(
        lambda: not session.scheduler._ticks.under_way(job) and job in session.scheduler.firing._patience._blocked
    )
    release.set()
    await until(lambda: live in seen)
    assert seen.index(live) == 2, "before the others that wait"
    assert not [row for row in await history(look, job) if row["status"] == 4]


async def test_a_live_tick_is_not_skipped_for_the_last_run_that_makes_up_for_something(look: Any, start: Any) -> None:
    """As after every resumption with `once`."""
    owed, now = await minutes_ago(look, 5), await minutes_ago(look, 0)
    job = await factories.add_job(look, now + 55 * MINUTE, definition=document(schedule="every 1h"), last_tick=owed)
    await look.execute(
        "INSERT INTO catchups (job, partition, kind, schedule, since, until, next_tick, left_over)"
        " SELECT job, partition, 'missed', schedule, $2, $2, $2, 1 FROM cursors WHERE job = $1",
        job,
        owed,
    )
    release = asyncio.Event()
    seen: list[datetime] = []

    async def waits(call: Call) -> Outcome:
        seen.append(call.scheduled_at)
        if call.scheduled_at == owed:
            await release.wait()
        return Succeeded()

    session = await start(waits, **FAST)
    await until(lambda: owed in seen, what="the tick that is made up for")
    releaser = session.scheduler.releaser
    await until(lambda: not releaser._jobs.known, what="the look that finds nothing left of the range")
    live: datetime = await look.fetchval(
        "UPDATE cursors SET next_tick = date_trunc('milliseconds', now()), fire_at = date_trunc('milliseconds', now()),"
        " generation = generation + 1 WHERE job = $1 RETURNING next_tick",
        job,
    )
    session.scheduler.jobs_changed({job})
    await until(
        lambda: not session.scheduler._ticks.under_way(job) and job in session.scheduler.firing._patience._blocked
    )
    release.set()
    await until(lambda: live in seen)
    assert not [row for row in await history(look, job) if row["status"] == 4]
    await until(lambda: not releaser._jobs.pending(job), what="the next one that meets a run overlaps with it, as ever")


async def test_what_a_deleted_job_has_missed_is_written_off(look: Any, start: Any, store: Store) -> None:
    first = await minutes_ago(look, 10.5)
    job = await factories.add_job(look, first, definition=document(), missed=RUN_ALL)
    hold = asyncio.Event()

    async def waits(_call: Call) -> Outcome:
        await hold.wait()
        return Succeeded()

    await start(waits, **FAST)
    await until(lambda: look.fetchval("SELECT count(*) FROM catchups"))
    await until(lambda: look.fetchval("SELECT count(*) FROM live_runs"))
    job_id: UUID = await look.fetchval("SELECT id FROM jobs WHERE job = $1", job)
    await JobOperations(store).lifecycle.delete(job_id)

    async def written_off() -> bool:
        return not await look.fetchval("SELECT count(*) FROM catchups")

    await until(written_off)
    missed = [row for row in await history(look, job) if row["status"] == 5]
    assert {row["reason"] for row in missed} == {"deleted"}
    ran = await look.fetchval("SELECT count(*) FROM live_runs") + len(await history(look, job)) - len(missed)
    assert sum(row["ticks"] for row in missed) + ran == 11
    hold.set()  # only now: a run that ends between two looks would be counted twice


async def test_what_a_paused_job_has_missed_waits_for_its_resumption(look: Any, start: Any, store: Store) -> None:
    first = await minutes_ago(look, 10.5)
    job = await factories.add_job(look, first, definition=document(), missed=RUN_ALL)
    turns = asyncio.Semaphore(3)
    seen: list[datetime] = []

    async def three_then_waits(call: Call) -> Outcome:
        seen.append(call.scheduled_at)
        await turns.acquire()
        return Succeeded()

    await start(three_then_waits, **FAST)
    await until(lambda: len(seen) == 4)
    job_id: UUID = await look.fetchval("SELECT id FROM jobs WHERE job = $1", job)
    await JobOperations(store).lifecycle.pause(job_id)
    for _ in range(20):
        turns.release()
    await until(lambda: look.fetchval("SELECT NOT EXISTS (SELECT FROM live_runs)"))
    left = await look.fetchval("SELECT left_over FROM catchups WHERE job = $1", job)
    assert len(seen) == 4
    assert left == 7
    await JobOperations(store).lifecycle.resume(job_id)
    await until(lambda: look.fetchval("SELECT NOT EXISTS (SELECT FROM catchups)"))
    await until(lambda: len(seen) == 11)
    assert len(set(seen)) == 11


async def test_another_node_goes_on_with_what_a_lost_one_had_begun(look: Any, start: Any) -> None:
    first = await minutes_ago(look, 30.5)
    job = await factories.add_job(look, first, definition=document(), missed=RUN_ALL)
    seen = Recorder()
    begun = await start(seen, catchup_rate=20.0, lease_ttl_seconds=1.0)
    await until(lambda: len(seen.ticks) >= 5)
    await begun.abandon()
    await start(seen, catchup_rate=1000.0, lease_ttl_seconds=1.0)

    async def over() -> Any:
        rows = await history(look, job)
        return rows if len(rows) >= 31 else None

    rows = await until(over, timeout=20)
    keys = [RunKey(job, row["scheduled_at"], row["serial"]) for row in rows]
    assert len(set(keys)) == len(keys)
    assert {row["status"] for row in rows} == {1}
    assert [row["scheduled_at"] for row in rows][:30] == [first + number * MINUTE for number in range(30)]


async def test_a_backfill_runs_the_past_in_its_order_and_again_only_where_that_is_asked_for(
    look: Any, start: Any, store: Store
) -> None:
    definition = {"schedule": "0 * * * *", "target": HTTP}
    job = await factories.add_job(look, LONG_AGO.replace(year=2100), every="0 * * * *", definition=definition)
    job_id: UUID = await look.fetchval("SELECT id FROM jobs WHERE job = $1", job)
    seen = Recorder()
    await start(seen, **FAST)
    hours = [LONG_AGO + timedelta(hours=number) for number in range(5)]

    async def runs(count: int) -> Any:
        rows = await history(look, job)
        return rows if len(rows) == count else None

    assert (await JobOperations(store).backfills.add(job_id, past(2))).ticks == 3
    await until(lambda: runs(3))
    assert seen.ticks == hours[:3]
    wider = await JobOperations(store).backfills.add(job_id, past(4, order="newest"))
    assert (wider.ticks, wider.left_out) == (2, 3)
    await until(lambda: runs(5))
    assert seen.ticks[3:] == [hours[4], hours[3]]
    assert (await JobOperations(store).backfills.add(job_id, past(1, reprocess=True))).ticks == 2
    rows = await until(lambda: runs(7))
    assert sorted((row["scheduled_at"], row["serial"]) for row in rows) == sorted(
        [*((hour, 0) for hour in hours), (hours[0], 1), (hours[1], 1)]
    )
    assert seen.most == 1


async def test_no_more_of_a_backfill_run_at_once_than_were_asked_for(look: Any, start: Any, store: Store) -> None:
    definition = {"schedule": "0 * * * *", "target": HTTP, "concurrent_policy": "ALLOW"}
    far = LONG_AGO.replace(year=2100)
    job = await factories.add_job(look, far, every="0 * * * *", definition=definition, lanes=10)
    job_id: UUID = await look.fetchval("SELECT id FROM jobs WHERE job = $1", job)
    release = asyncio.Event()
    now: set[datetime] = set()
    seen: list[datetime] = []

    async def waits(call: Call) -> Outcome:
        seen.append(call.scheduled_at)
        now.add(call.scheduled_at)
        assert len(now) <= 3
        await release.wait()
        now.discard(call.scheduled_at)
        return Succeeded()

    await start(waits, **FAST)
    await JobOperations(store).backfills.add(job_id, past(9, concurrency=3))
    await until(lambda: len(now) == 3)
    assert await look.fetchval("SELECT left_over FROM catchups WHERE job = $1", job) == 7
    release.set()
    await until(lambda: len(seen) == 10)
    await until(lambda: look.fetchval("SELECT NOT EXISTS (SELECT FROM live_runs)"))
    assert {row["status"] for row in await history(look, job)} == {1}


async def test_a_large_backfill_is_reported_as_a_large_catch_up_and_so_is_one_after_a_pause(
    look: Any, start: Any, store: Store
) -> None:
    session = await start(roles=("scheduler",))
    metrics = session._metrics
    (few, many, paused) = await JobOperations(store).registration.add(
        [
            JobSpec(name=name, schedule="every 1m", target=HttpTarget(url=HTTP["url"]))
            for name in ("few", "many", "paused")
        ]
    )
    await JobOperations(store).backfills.add(few.id, past(1))
    await until(lambda: metrics.catch_ups == 1)
    assert metrics.large_catch_ups == 0
    await JobOperations(store).backfills.add(many.id, past(2))
    await until(lambda: metrics.large_catch_ups == 1)
    await JobOperations(store).lifecycle.pause(paused.id)
    await look.execute(
        "UPDATE jobs SET since = now() - interval '3 h', created_at = now() - interval '4 h' WHERE name = 'paused'"
    )
    await JobOperations(store).registration.patch(paused.id, {"max_missed": 1000})
    await JobOperations(store).lifecycle.resume(paused.id, on_resume="all")
    await until(lambda: metrics.large_catch_ups == 2)
    assert metrics.catch_ups == 3
