"""What once went wrong, or would have: lost replies, runs that look alike, handlers that misbehave."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

from detent.cluster.admission import AdmissionCheck
from detent.cluster.coordinators.coordinator import PostgresCoordinator
from detent.domain.identity import RunKey
from detent.domain.run import Call, Claim, Outcome, Succeeded
from detent.errors import UsageError
from detent.node.session import Session
from detent.scheduler.firing import STATEMENTS
from detent.scheduler.planning import FireMode, Patience
from detent.scheduler.scheduler import LONGEST_WITHOUT_SWEEP, MANY_DUE
from detent.settings.settings import Settings
from detent.store import Store
from detent.store.db import LockTimeout, OutcomeUnknown, connect
from tests.support import factories
from tests.support.waiting import until

FIRST_TOKEN = (1 << 22) | 1
HTTP = {"type": "http", "url": "http://127.0.0.1:9/"}
GIVING_BACK = """
    SELECT count(*) = $1 FROM pg_stat_activity
    WHERE wait_event_type = 'Lock' AND query LIKE '%Return runs that were claimed%'
"""


async def soon(look: Any, seconds: float = 0.3) -> Any:
    return await look.fetchval("SELECT date_trunc('milliseconds', now() + make_interval(secs => $1))", seconds)


async def ended(look: Any, job: int) -> Any:
    return await until(lambda: look.fetchrow("SELECT * FROM run_history WHERE job = $1", job), what="the run's end")


async def test_partitions_whose_taking_was_not_answered_are_taken_again(look: Any, start: Any) -> None:
    session = await start(lease_ttl_seconds=1.0)
    await until(lambda: len(session.leadership.terms) == 256)
    terms = dict(session.leadership.terms)
    session.leadership.terms.clear()
    await until(lambda: len(session.leadership.terms) == 256)
    assert all(session.leadership.terms[partition] > terms[partition] for partition in terms)


async def test_a_node_that_cannot_follow_a_fail_over_yet_is_refused_with_the_reason_and_may_try_again(
    look: Any, store: Store, database_url: str
) -> None:
    await factories.add_job(look)
    await look.execute("UPDATE cluster SET timeline = 0, beat_at = now()")
    guard = AdmissionCheck(store, 0)
    other = await connect(database_url, "detent")
    await other.execute("SET idle_in_transaction_session_timeout = 0")
    async with other.transaction():  # another node follows, and the server does not confirm its commit
        await other.execute("UPDATE cluster SET incarnation = incarnation + 1")
        with pytest.raises(LockTimeout):
            await guard.admit()
    await other.close()
    assert (await guard.admit()).incarnation > 2


async def test_the_settle_of_one_run_does_not_remove_the_next_run_of_its_job(start: Any) -> None:
    session = await start()
    worker = session.worker
    first = Claim(1, 0, factories.LONG_AGO, 0, FIRST_TOKEN, 1)
    second = first._replace(scheduled_at=factories.LONG_AGO + timedelta(hours=1))
    worker.capacity.closed = True  # so that neither is called
    worker._accept([first, second])
    (held,) = [run for run in worker._held if run.claim == first]
    worker._settled([held], ())
    assert [held.claim for held in worker._held] == [second]


async def test_a_job_offered_twice_is_in_one_batch_with_its_newer_cursor(look: Any, store: Store, start: Any) -> None:
    job = await factories.add_job(look, await soon(look, 3600))
    (cursor,) = await store.cursors.load([job])
    scheduler = (await start()).scheduler
    firing, in_flight = scheduler.firing, scheduler._ticks.in_flight
    waits = [asyncio.create_task(asyncio.Event().wait()) for _ in range(STATEMENTS)]
    firing._tasks.update({wait: [] for wait in waits})
    edited = cursor._replace(generation=cursor.generation + 1)
    firing.offer([cursor])
    firing.offer([edited])
    assert firing._due.take(10, in_flight) == [edited]
    firing.offer([edited])
    assert firing._due.take(10, in_flight) == []  # its reply is not there yet
    firing._tasks.clear()
    for wait in waits:
        wait.cancel()


async def test_a_handler_that_cancels_itself_has_failed(look: Any, start: Any) -> None:
    async def cancels_itself(_call: Call) -> Outcome:
        raise asyncio.CancelledError

    document = {"schedule": "every 1h", "target": HTTP, "max_retries": 0}
    job = await factories.add_job(look, await soon(look), definition=document)
    await start(cancels_itself)
    assert (await ended(look, job))["status"] == 2
    assert await look.fetchval("SELECT error FROM attempts WHERE job = $1", job) == "The handler cancelled itself."


async def test_a_run_that_cannot_be_started_is_given_back_when_that_is_possible_again(
    look: Any, start: Any, database_url: str
) -> None:
    session = await start(lease_ttl_seconds=1.0)
    await session.worker.reconciler.loop.stop()  # which would find it too, some time
    other = await connect(database_url, "detent")
    await other.execute("SET idle_in_transaction_session_timeout = 0")
    job = await factories.add_job(look, None)
    async with other.transaction():
        await other.execute("LOCK TABLE job_revisions")  # so that no worker can read the definition
        await factories.add_live_run(look, job)
        await until(lambda: look.fetchval("SELECT owner FROM live_runs"), what="the run to be claimed")
        await other.execute("SELECT FROM live_runs FOR UPDATE")  # so that it cannot be given back
        await until(lambda: look.fetchval(GIVING_BACK, 1), what="the run to be given back")
        await until(lambda: look.fetchval(GIVING_BACK, 0), what="that to fail")
    await other.close()
    assert (await ended(look, job))["status"] == 1


async def test_a_run_cancelled_before_its_first_step_frees_its_slot(look: Any, start: Any, store: Store) -> None:
    called: list[str] = []

    async def notes(call: Call) -> Outcome:
        called.append(call.run_id)
        return Succeeded()

    session = await start(notes, concurrency=1)
    job = await factories.add_job(look, await soon(look, 3600))
    tick = await soon(look, 0)
    await factories.add_live_run(look, job, tick, owner=session.membership.node)
    claim = Claim(job, 0, tick, 0, FIRST_TOKEN, 1)
    await store.live_runs.cancel([RunKey(job, tick)])
    session.worker._accept([claim])
    session.worker.reconciler.stop(session.worker._held.find(claim))
    assert (await ended(look, job))["status"] == 3
    assert called == []
    await until(lambda: session.worker.slots.running == 0 and not session.worker._held)


async def test_one_schedule_that_cannot_be_read_stops_only_its_own_jobs(look: Any, start: Any) -> None:
    tick = await soon(look)
    jobs = [await factories.add_job(look, tick) for _ in range(4)]
    unreadable = await look.fetchval(
        "INSERT INTO schedules (stored, digest) VALUES ('{\"kind\": \"lunar\"}', '\\x01') RETURNING schedule"
    )
    await look.execute("UPDATE cursors SET schedule = $2 WHERE job = $1", jobs[1], unreadable)
    await start()
    for job in (jobs[0], jobs[2], jobs[3]):
        assert (await ended(look, job))["status"] == 1
    assert await look.fetchval("SELECT next_tick FROM cursors WHERE job = $1", jobs[1]) == tick


async def test_capacity_for_runs_that_were_not_fired_is_released(look: Any, start: Any) -> None:
    tick = await soon(look)
    jobs = [await factories.add_job(look, tick) for _ in range(3)]
    await factories.add_live_run(look, jobs[0], tick - timedelta(hours=1), not_before=tick + timedelta(days=1))
    await look.execute(
        "INSERT INTO run_history (job, scheduled_at, finished_at, serial, revision, status)"
        " VALUES ($1, $2, now(), 0, 1, 5)",
        jobs[0],
        tick,
    )
    session = await start()
    for job in jobs[1:]:
        await ended(look, job)
    await until(lambda: session.worker.capacity.reserved == 0 and not session.worker._held)
    assert session.worker.free_capacity == 20


async def test_a_run_that_may_be_called_once_is_not_called_again_when_its_node_lost_track_of_it(
    look: Any, start: Any
) -> None:
    called: list[str] = []

    async def notes(call: Call) -> Outcome:
        called.append(call.run_id)
        return Succeeded()

    session = await start(notes)
    job = await factories.add_job(look, await soon(look, 3600))
    tick = await soon(look, 0)
    await factories.add_live_run(look, job, tick, owner=session.membership.node, once=True, started_at=tick)
    session.worker._accept([Claim(job, 0, tick, 0, FIRST_TOKEN, 1, once=True)])
    assert (await ended(look, job))["status"] == 2
    assert called == []


async def test_a_late_tick_whose_neighbours_are_far_away_does_not_wait_for_a_lane(look: Any, store: Store) -> None:
    job = await factories.add_job(look, await soon(look, -5))
    (cursor,) = await store.cursors.load([job])
    assert cursor.next_tick is not None
    assert Patience().mode(cursor, cursor.next_tick + timedelta(hours=1), await soon(look, 0)) is FireMode.PLAIN


async def test_when_the_databases_clock_steps_back_nothing_counts_as_due(look: Any, start: Any) -> None:
    job = await factories.add_job(look, await soon(look, 30))
    session = await start()
    ticks = session.scheduler._ticks
    await until(lambda: job in ticks._known)
    now = session.clock.milliseconds()
    ticks._wheel.advance(now)
    ticks._wheel._now = now + 600_000
    session.scheduler._offer_due()
    assert ticks._wheel.present <= session.clock.milliseconds()
    assert job in ticks._wheel


async def test_no_sweep_reads_a_flood_again_while_it_is_fired_but_one_comes_in_the_end(start: Any) -> None:
    session = await start()
    scheduler, firing = session.scheduler, session.scheduler.firing
    await until(lambda: scheduler._swept_at)
    firing._closed = True  # so that nothing of the flood is sent
    firing._due._cursors = dict.fromkeys(range(MANY_DUE + 1))
    swept, scheduler._sweep_next = scheduler._swept_at, 0.0
    await scheduler._look_ahead()
    assert scheduler._swept_at == swept
    scheduler._swept_at, scheduler._sweep_next = swept - LONGEST_WITHOUT_SWEEP, 0.0
    await scheduler._look_ahead()
    assert scheduler._swept_at > swept - LONGEST_WITHOUT_SWEEP
    firing._due._cursors = {}


async def test_a_node_that_cannot_open_its_coordinator_leaves_no_heartbeat_behind(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(_: object) -> None:
        raise UsageError("There is no such coordinator.")

    monkeypatch.setattr(PostgresCoordinator, "open", refuse)
    before = set(threading.enumerate())
    session = Session(store, Settings(), ("scheduler",), {}, [])
    with pytest.raises(UsageError):
        await session.open()
    assert [thread.name for thread in set(threading.enumerate()) - before if "heartbeat" in thread.name] == []


async def test_a_claim_whose_reply_is_lost_is_reconciled_immediately(
    store: Store, start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await start()
    worker = session.worker
    await worker.loop.stop()
    await worker.reconciler.loop.stop()
    worker.reconciler.loop._awake.clear()

    async def lost(*_arguments: object, **_named: object) -> list[Claim]:
        raise OutcomeUnknown("the reply was lost")

    monkeypatch.setattr(store.live_runs, "claim", lost)
    with pytest.raises(OutcomeUnknown):
        await worker.tick()
    assert worker.reconciler.loop._awake.is_set()


async def test_a_node_joins_although_a_lock_keeps_it_from_making_days_of_history(
    look: Any, start: Any, database_url: str
) -> None:
    newest = "SELECT max(inhrelid::regclass::text) FROM pg_inherits WHERE inhparent = 'run_history'::regclass"
    day = await look.fetchval(newest)
    await look.execute(f"ALTER TABLE run_history DETACH PARTITION {day}; DROP TABLE {day}")
    other = await connect(database_url, "detent")
    await other.execute("SET idle_in_transaction_session_timeout = 0")
    async with other.transaction():
        await other.execute("LOCK TABLE run_history IN SHARE UPDATE EXCLUSIVE MODE")
        session = await start()
        assert session.membership.trusted
    await other.close()
