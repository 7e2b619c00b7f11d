"""Scheduler, worker and store together in one process, on a real database."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from detent.domain.identity import RunKey
from detent.domain.run import Call, Failed, Outcome, Succeeded
from detent.store import Store
from tests.support import factories
from tests.support.waiting import until

HTTP = {"type": "http", "url": "http://127.0.0.1:9/"}


def document(**fields: Any) -> dict[str, Any]:
    return {"schedule": "every 1h", "target": HTTP, "retry_base_seconds": 0, **fields}


async def soon(look: Any, seconds: float = 0.3) -> datetime:
    at: datetime = await look.fetchval("SELECT date_trunc('milliseconds', now() + make_interval(secs => $1))", seconds)
    return at


async def finished(look: Any, job: int, count: int = 1) -> list[Any]:
    async def rows() -> list[Any] | None:
        found = await look.fetch("SELECT * FROM run_history WHERE job = $1 ORDER BY scheduled_at, serial", job)
        return found if len(found) >= count else None

    return list(await until(rows, what="finished runs"))


async def test_a_tick_becomes_one_run_that_starts_no_earlier_than_its_time(look: Any, start: Any) -> None:
    tick = await soon(look)
    job = await factories.add_job(look, tick)
    calls: list[Call] = []

    async def remember(call: Call) -> Outcome:
        calls.append(call)
        return Succeeded()

    await start(remember)
    (run,) = await finished(look, job)
    assert (run["scheduled_at"], run["status"], run["attempt"]) == (tick, 1, 1)
    assert [(call.window_start, call.scheduled_at) for call in calls] == [(tick - timedelta(hours=1), tick)]
    assert run["started_at"] >= tick
    assert await look.fetchval("SELECT next_tick FROM cursors WHERE job = $1", job) == tick + timedelta(hours=1)
    assert await look.fetchval("SELECT count(*) FROM live_runs") == 0


async def test_a_failing_run_is_tried_again_with_the_same_key_and_a_higher_token(look: Any, start: Any) -> None:
    calls: list[Call] = []

    async def fails_twice(call: Call) -> Outcome:
        calls.append(call)
        return Failed("not yet") if call.attempt < 3 else Succeeded()

    job = await factories.add_job(look, await soon(look), definition=document(max_retries=3))
    await start(fails_twice)
    (run,) = await finished(look, job)
    assert (run["status"], run["attempt"]) == (1, 3)
    assert len({call.idempotency_key for call in calls}) == 1
    assert [call.token for call in calls] == sorted({call.token for call in calls})
    outcomes = await look.fetch("SELECT outcome, error FROM attempts WHERE job = $1 ORDER BY attempt", job)
    assert [tuple(row) for row in outcomes] == [("failed", "not yet"), ("failed", "not yet"), ("succeeded", None)]


async def test_a_run_is_dead_after_its_last_retry_and_says_why(look: Any, start: Any) -> None:
    async def fails(_call: Call) -> Outcome:
        return Failed("broken")

    job = await factories.add_job(look, await soon(look), definition=document(max_retries=1))
    await start(fails)
    (run,) = await finished(look, job)
    assert (run["status"], run["attempt"], run["reason"]) == (2, 2, "retries exhausted")


async def test_a_handler_over_its_time_limit_is_a_timeout(look: Any, start: Any) -> None:
    async def hangs(_call: Call) -> Outcome:
        await asyncio.Event().wait()
        return Succeeded()

    job = await factories.add_job(look, await soon(look), definition=document(max_retries=0, timeout_seconds=0.2))
    await start(hangs)
    (run,) = await finished(look, job)
    assert run["status"] == 2
    assert await look.fetchval("SELECT outcome FROM attempts WHERE job = $1", job) == "timeout"


async def test_a_running_run_that_is_cancelled_stops_and_is_recorded(look: Any, start: Any, store: Store) -> None:
    started = asyncio.Event()

    async def hangs(_call: Call) -> Outcome:
        started.set()
        await asyncio.Event().wait()
        return Succeeded()

    tick = await soon(look)
    job = await factories.add_job(look, tick)
    session = await start(hangs)
    await asyncio.wait_for(started.wait(), 10)
    await store.live_runs.cancel([RunKey(job, tick)])
    session.worker.reconciler.loop.wake()
    (run,) = await finished(look, job)
    assert (run["status"], run["reason"]) == (3, "cancelled while it ran")


async def test_closing_gives_back_what_waits_and_finishes_what_runs(look: Any, start: Any) -> None:
    release = asyncio.Event()
    running: list[str] = []

    async def waits(call: Call) -> Outcome:
        running.append(call.run_id)
        await release.wait()
        return Succeeded()

    tick = await soon(look)
    for _ in range(3):
        await factories.add_job(look, tick)
    session = await start(waits, concurrency=2)
    await until(lambda: len(running) == 2)
    closing = asyncio.create_task(session.close(10))
    await until(lambda: session.worker.free_capacity == 0)
    release.set()
    await closing
    assert await look.fetchval("SELECT count(*) FROM run_history WHERE status = 1") == 2
    left = await look.fetch("SELECT owner, attempt, crashes FROM live_runs")
    assert [tuple(row) for row in left] == [(None, 1, 0)]
    assert await look.fetchval("SELECT count(*) FROM nodes") == 0


async def test_a_run_that_is_unfinished_at_the_drain_timeout_is_returned(look: Any, start: Any) -> None:
    started = asyncio.Event()

    async def hangs(_call: Call) -> Outcome:
        started.set()
        await asyncio.Event().wait()
        return Succeeded()

    await factories.add_job(look, await soon(look))
    session = await start(hangs)
    await asyncio.wait_for(started.wait(), 10)
    await session.close(0)
    row = await look.fetchrow("SELECT owner, crashes FROM live_runs")
    assert tuple(row) == (None, 1)


async def test_the_runs_of_a_dead_node_are_finished_by_another(look: Any, start: Any) -> None:
    tick = await soon(look)
    job = await factories.add_job(look, tick + timedelta(hours=1))
    dead = await factories.add_node(look, 42)
    await factories.add_live_run(look, job, tick, owner=dead)
    await look.execute("UPDATE nodes SET expires_at = now() - interval '1 second' WHERE node = $1", dead)
    await start(lease_ttl_seconds=1.0)
    (run,) = await finished(look, job)
    assert (run["status"], run["attempt"]) == (1, 1)
    assert run["token"] > 1 << 22 | 1
    assert await look.fetchval("SELECT outcome FROM attempts WHERE job = $1 ORDER BY token LIMIT 1", job) == "lost"


@pytest.mark.parametrize("hours", [5, 25])
async def test_ticks_missed_for_hours_run_once_and_the_others_are_recorded(look: Any, start: Any, hours: int) -> None:
    """25 hours always contain a midnight, at which a range of missed ticks is split: how many rows there are depends on
    the time of day, so the test waits for the run, which comes last."""
    now = await look.fetchval("SELECT date_trunc('second', now())")
    first = now - timedelta(hours=hours, minutes=5)
    job = await factories.add_job(look, first, every="every 10m")
    await start()

    async def ran() -> bool:
        return bool(await look.fetchval("SELECT count(*) FROM run_history WHERE job = $1 AND status = 1", job))

    await until(ran, what="the latest missed tick to run")
    rows = await finished(look, job)
    runs = [row for row in rows if row["status"] == 1]
    missed = [row for row in rows if row["status"] == 5]
    assert [run["scheduled_at"] for run in runs] == [first + timedelta(hours=hours)]
    assert {row["reason"] for row in missed} == {"merged"}
    assert sum(row["ticks"] for row in missed) == 6 * hours


async def test_ticks_late_by_seconds_all_run_singly(look: Any, start: Any) -> None:
    now = await look.fetchval("SELECT date_trunc('second', now())")
    job = await factories.add_job(look, now - timedelta(seconds=8), every="every 2s", lanes=10)
    await start()
    expected = {now - timedelta(seconds=8 - 2 * n) for n in range(4)}

    async def all_ran() -> bool:
        rows = await look.fetch("SELECT scheduled_at FROM run_history WHERE job = $1 AND status = 1", job)
        return expected <= {row["scheduled_at"] for row in rows}

    await until(all_ran)
    assert await look.fetchval("SELECT count(*) FROM run_history WHERE status <> 1") == 0


async def test_a_worker_leaves_runs_that_need_a_function_it_lacks(look: Any, start: Any) -> None:
    tick = await soon(look)
    foreign = await factories.add_job(look, tick, needs="python:other:function")
    ours = await factories.add_job(look, tick)
    await start()
    await finished(look, ours)
    row = await look.fetchrow("SELECT owner FROM live_runs WHERE job = $1", foreign)
    assert row is not None
    assert row["owner"] is None


async def test_an_evicted_session_writes_nothing_more(look: Any, start: Any) -> None:
    job = await factories.add_job(look, datetime(2099, 1, 1, tzinfo=UTC))
    session = await start(lease_ttl_seconds=1.0)
    await look.execute("UPDATE nodes SET evicted = true WHERE node = $1", session.membership.node)
    await asyncio.wait_for(session.membership.lost.wait(), 10)
    assert session.membership.loss_reason == "evicted"
    await session.abandon()
    tick = await soon(look, 0)
    await look.execute("UPDATE cursors SET next_tick = $2, fire_at = $2 WHERE job = $1", job, tick)
    assert await look.fetchval("SELECT next_tick FROM cursors WHERE job = $1", job) == tick


async def test_one_bad_job_does_not_stop_its_neighbours(look: Any, start: Any) -> None:
    tick = await soon(look)
    jobs = [await factories.add_job(look, tick) for _ in range(5)]
    # The tick already stands in history, so this job's skipped tick breaks a constraint inside the batch.
    await factories.add_live_run(
        look, jobs[2], tick - timedelta(hours=1), owner=None, not_before=tick + timedelta(days=1)
    )
    await look.execute(
        "INSERT INTO run_history (job, scheduled_at, finished_at, serial, revision, status)"
        " VALUES ($1, $2, now(), 0, 1, 5)",
        jobs[2],
        tick,
    )
    await start()
    for job in (jobs[0], jobs[1], jobs[3], jobs[4]):
        (run,) = await finished(look, job)
        assert run["status"] == 1
    assert await look.fetchval("SELECT next_tick FROM cursors WHERE job = $1", jobs[2]) == tick


async def test_late_ticks_wait_for_the_run_before_them_instead_of_being_skipped(look: Any, start: Any) -> None:
    now = await look.fetchval("SELECT date_trunc('second', now())")
    job = await factories.add_job(look, now - timedelta(seconds=12), definition=document(schedule="every 3s"))

    async def takes_a_moment(_call: Call) -> Outcome:
        await asyncio.sleep(0.05)
        return Succeeded()

    await start(takes_a_moment)
    runs = await finished(look, job, 4)
    assert {run["status"] for run in runs} == {1}


async def test_a_late_tick_is_skipped_when_the_run_before_it_takes_longer_than_their_distance(
    look: Any, start: Any
) -> None:
    now = await look.fetchval("SELECT date_trunc('second', now())")
    job = await factories.add_job(look, now - timedelta(seconds=4), definition=document(schedule="every 1s"))
    release = asyncio.Event()

    async def hangs(_call: Call) -> Outcome:
        await release.wait()
        return Succeeded()

    await start(hangs)
    (skipped,) = (await finished(look, job))[:1]
    release.set()
    assert (skipped["status"], skipped["reason"]) == (4, "overlap")
