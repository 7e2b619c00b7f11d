"""A suspended tenant: nothing of it fires, from the commit on, and its ticks are recorded as skipped."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from detent.domain.misfire import SUSPENDED, MissedRange
from detent.domain.schedule import Schedule
from detent.errors import Conflict
from detent.scheduler.planning import TickPlanner
from detent.store import Store
from detent.store.cursors import Advance, Cursor, DelayLook, Exceptional, Leap
from tests.support.factories import LONG_AGO, add_job, add_node, add_queue
from tests.support.ticks import advance_of
from tests.support.waiting import until

NODE = 11
HOUR = timedelta(hours=1)
NEXT = LONG_AGO + HOUR


@pytest.fixture(autouse=True)
async def node(look: Any) -> int:
    return await add_node(look, NODE)


@pytest.fixture
async def queue(verbs: Store, look: Any) -> int:
    """One of a tenant that can be suspended."""
    if await verbs.tenants.number("acme") is None:
        await verbs.tenants.add("acme")
    await verbs.tenant_lifecycle.resume("acme")
    number = await verbs.tenants.number("acme")
    assert number is not None
    return await add_queue(look, tenant=number)


def advance(job: int) -> Advance:
    return advance_of(job, LONG_AGO, 1, NEXT, None)


def leap(read: Any, reason: str, *, suspended: bool) -> Leap:
    fields = {name: read[name] for name in Cursor._fields if name != "bounded"}
    missed = [MissedRange(LONG_AGO, LONG_AGO, 1, reason)]
    return Leap(Cursor(**fields, bounded=False), NEXT, NEXT, LONG_AGO, missed, suspended=suspended)


async def cursor(look: Any, job: int) -> Any:
    return await look.fetchrow("SELECT * FROM cursors WHERE job = $1", job)


@pytest.mark.parametrize("careful", [False, True], ids=["plain", "careful"])
async def test_no_tick_of_a_suspended_tenant_fires_and_those_of_others_do(
    look: Any, verbs: Store, queue: int, careful: bool
) -> None:
    theirs, other = await add_job(look, queue=queue), await add_job(look)
    await verbs.tenant_lifecycle.suspend("acme", None, "ada")
    fired = await verbs.cursors.fire(NODE, 1, False, [advance(theirs), advance(other)], careful=careful)
    assert fired == [Exceptional(theirs, None, "refused")]
    assert (await cursor(look, theirs))["next_tick"] == LONG_AGO
    assert [row["job"] for row in await look.fetch("SELECT job FROM live_runs")] == [other]
    await verbs.tenant_lifecycle.resume("acme")
    assert await verbs.cursors.fire(NODE, 1, False, [advance(theirs)], careful=careful) == []


async def test_its_ticks_are_skipped_and_only_as_long_as_it_is_suspended(look: Any, verbs: Store, queue: int) -> None:
    """A node may hear late of a suspension or of its end: neither a miss nor a skip is written then."""
    job = await add_job(look, queue=queue)
    read = await cursor(look, job)
    skip, miss = leap(read, SUSPENDED, suspended=True), leap(read, "policy", suspended=False)
    assert await verbs.cursors.miss(NODE, [skip], suspended=True) == set()
    await verbs.tenant_lifecycle.suspend("acme", "unpaid", "ada")
    assert await verbs.cursors.miss(NODE, [miss]) == set()
    assert await verbs.cursors.miss(NODE, [skip], suspended=True) == {job}
    (row,) = await look.fetch("SELECT * FROM run_history WHERE job = $1", job)
    assert (row["status"], row["reason"], row["ticks"]) == (4, "tenant suspended", 1)
    assert (await cursor(look, job))["next_tick"] == NEXT


async def test_missed_ticks_that_are_to_run_wait_for_the_end_of_the_suspension(
    look: Any, verbs: Store, queue: int
) -> None:
    job = await add_job(look, None, queue=queue)
    partition = (await cursor(look, job))["partition"]
    await look.execute(
        "INSERT INTO catchups (job, partition, kind, schedule, since, until, next_tick, left_over)"
        " SELECT job, partition, 'backfill', schedule, $2, $2, $2, 1 FROM cursors WHERE job = $1",
        job,
        LONG_AGO,
    )
    assert [due.job for due in await verbs.catchups.due({partition: 0}, 10)] == [job]
    await verbs.tenant_lifecycle.suspend("acme", None, "ada")
    assert await verbs.catchups.due({partition: 0}, 10) == []
    await verbs.tenant_lifecycle.resume("acme")
    assert [due.job for due in await verbs.catchups.due({partition: 0}, 10)] == [job]


async def test_a_suspension_says_who_and_why_and_its_queues_are_known_to_nodes(verbs: Store, queue: int) -> None:
    await verbs.tenant_lifecycle.suspend("acme", "unpaid", "ada")
    await verbs.tenant_lifecycle.suspend("acme", "unpaid", "bob")
    found = await verbs.tenants.get("acme")
    assert found.suspended_at is not None
    assert (found.suspended_by, found.suspended_reason) == ("ada", "unpaid")
    assert {row.queue for row in await verbs.queues.rows() if row.suspended} == {queue}
    assert {rule.name for rule in (await verbs.tenants.rules()).values() if rule.suspended} == {"acme"}
    await verbs.tenant_lifecycle.resume("acme")
    assert (await verbs.tenants.get("acme")).suspended_at is None
    assert await verbs.tenants.rules() == {}


async def test_a_queue_that_a_registration_adds_during_a_suspension_is_suspended_too(
    look: Any, another: Any, verbs: Store, queue: int
) -> None:
    """The registration began first: the suspension waits for it, and suspends its queue as well."""
    tenant = await verbs.tenants.number("acme")
    assert tenant is not None
    async with look.transaction():
        first = await add_queue(look, "first", tenant=tenant)
        suspension = asyncio.create_task(verbs.tenant_lifecycle.suspend("acme", None, "ada"))
        await until(lambda: waits_for_a_lock(another), 20, "the suspension to wait")
    await suspension
    second = await add_queue(look, "second", tenant=tenant)
    rows = await look.fetch("SELECT queue FROM suspended_queues ORDER BY queue")
    assert [row["queue"] for row in rows] == sorted([queue, first, second])
    await verbs.tenant_lifecycle.resume("acme")
    assert await look.fetchval("SELECT count(*) FROM suspended_queues") == 0


async def waits_for_a_lock(connection: Any) -> bool:
    query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    return bool(await connection.fetchval(query))


async def test_the_default_tenant_is_neither_suspended_nor_deleted(verbs: Store) -> None:
    with pytest.raises(Conflict, match="cannot be suspended"):
        await verbs.tenant_lifecycle.suspend("default", None, None)
    with pytest.raises(Conflict, match="cannot be deleted"):
        await verbs.tenant_lifecycle.begin_deletion("default", None)


async def test_a_delay_counts_from_a_run_that_ended_during_the_suspension(look: Any, verbs: Store, queue: int) -> None:
    schedule = Schedule.parse({"every": "1h", "after": "finish"})
    tick = await look.fetchval("SELECT date_trunc('second', now())")
    began = tick - HOUR
    definition = {"schedule": {"every": "1h", "after": "finish"}, "target": {"type": "http", "url": "http://[::1]:9/"}}
    job = await add_job(look, tick, definition=definition, last_tick=began, queue=queue)
    fields = {name: (await cursor(look, job))[name] for name in Cursor._fields if name != "bounded"}
    skip = TickPlanner().skip(Cursor(**fields, bounded=False), schedule, tick)
    await verbs.tenant_lifecycle.suspend("acme", None, "ada")
    assert await verbs.cursors.miss(NODE, [skip], suspended=True) == {job}
    after = await cursor(look, job)
    assert (after["next_tick"], after["last_tick"]) == (tick + HOUR, began)
    assert await look.fetchval("SELECT reason FROM run_history WHERE scheduled_at = $1", tick) == SUSPENDED

    await verbs.tenant_lifecycle.resume("acme")
    await look.execute(
        "INSERT INTO run_history (job, scheduled_at, started_at, finished_at, serial, revision, status, token, node,"
        " attempt) VALUES ($1, $2, $2, now(), 0, 1, 1, 1 << 22 | 1, $3, 1)",
        job, began, NODE,
    )  # fmt: skip
    # With a longer delay, because the run cannot have ended in the future.
    due = (await verbs.cursors.look_at_delays(NODE, [DelayLook(job, tick + HOUR, 1, 2 * HOUR, HOUR, None)])).moved[job]
    assert due is not None and due > tick + HOUR
