"""Nodes and partitions: joining, beating, evicting, taking over, handing over; and the upkeep of history."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from detent.domain.misfire import MissedRange
from detent.store import Database, Store, sql
from detent.store.cursors import Leap
from detent.store.db import connect
from detent.store.heartbeat import HeartbeatConnection
from detent.store.nodes import NodeInfo
from tests.support.factories import LONG_AGO, add_job, add_live_run, add_node
from tests.support.waiting import until

NODE, OTHER, THIRD = 11, 12, 13
TTL = timedelta(seconds=30)
DAY = timedelta(days=1)


@pytest.fixture
async def heart(shared_url: str, look: Any) -> AsyncIterator[HeartbeatConnection]:
    connection = HeartbeatConnection(shared_url, "detent", 2.0)
    yield connection
    await connection.close()


def info(node: int) -> NodeInfo:
    return NodeInfo(node, "a host", 4321, ("scheduler", "worker"), "1.2", "2026a")


async def row(look: Any, node: int) -> Any:
    return await look.fetchrow("SELECT *, expires_at - now() AS remaining FROM nodes WHERE node = $1", node)


async def partition(look: Any, number: int) -> tuple[Any, ...]:
    return tuple(await look.fetchrow("SELECT holder, term FROM partitions WHERE partition = $1", number))


# --- one's own row ---


async def test_a_node_that_joins_says_who_it_is_and_for_how_long(look: Any, verbs: Store) -> None:
    await verbs.nodes.join(info(NODE), TTL)
    joined = await row(look, NODE)
    assert (joined["host"], joined["pid"], joined["roles"]) == ("a host", 4321, ["scheduler", "worker"])
    assert (joined["version"], joined["tzdata"], joined["evicted"]) == ("1.2", "2026a", False)
    assert timedelta(seconds=20) < joined["remaining"] <= TTL


async def test_a_heartbeat_renews_the_row_and_brings_the_databases_time(
    look: Any, verbs: Store, heart: HeartbeatConnection
) -> None:
    await verbs.nodes.join(info(NODE), TTL)
    await look.execute("UPDATE nodes SET expires_at = now() + '1 s'::interval")
    beat = await heart.beat(NODE, 0.25)
    assert beat is not None
    assert 20 < beat.remaining <= 30
    assert beat.incarnation == (await verbs.upkeep.cluster()).incarnation == 1
    assert beat.at <= await look.fetchval("SELECT clock_timestamp()")
    renewed = await row(look, NODE)
    assert renewed["remaining"] > timedelta(seconds=20)
    assert renewed["clock_offset"] == 0.25


async def test_an_evicted_node_cannot_beat_again(look: Any, verbs: Store, heart: HeartbeatConnection) -> None:
    await verbs.nodes.join(info(NODE), TTL)
    await verbs.nodes.leave(NODE)
    assert await heart.beat(NODE, 0) is None
    assert await heart.beat(99, 0) is None


async def test_an_expired_node_that_is_not_evicted_may_still_renew(
    look: Any, verbs: Store, heart: HeartbeatConnection
) -> None:
    await verbs.nodes.join(info(NODE), TTL)
    await look.execute("UPDATE nodes SET expires_at = now() - '1 s'::interval")
    assert await heart.beat(NODE, 0) is not None
    assert await verbs.nodes.evict_expired() == []


# --- eviction ---


async def test_nodes_whose_time_ran_out_are_evicted_and_others_are_not(look: Any, verbs: Store) -> None:
    for node in (NODE, OTHER, THIRD):
        await verbs.nodes.join(info(node), TTL)
    await look.execute("UPDATE nodes SET expires_at = now() - '1 ms'::interval WHERE node = $1", NODE)
    assert await verbs.nodes.evict_expired() == [NODE]
    assert await verbs.nodes.evict_expired() == []
    assert (await verbs.nodes.share(OTHER)).evicted == [NODE]


async def test_an_end_too_far_ahead_is_void_because_the_clock_stepped_back(look: Any, verbs: Store) -> None:
    await verbs.nodes.join(info(NODE), TTL)
    await verbs.nodes.join(info(OTHER), TTL)
    await look.execute("UPDATE nodes SET expires_at = now() + 3 * ttl WHERE node = $1", NODE)
    assert await verbs.nodes.evict_expired() == [NODE]


async def test_a_long_time_to_live_of_one_node_is_not_too_far_ahead_for_another(look: Any, verbs: Store) -> None:
    await verbs.nodes.join(info(NODE), TTL)
    await verbs.nodes.join(info(OTHER), TTL * 100)
    assert await verbs.nodes.evict_expired() == []


async def test_an_eviction_waits_for_the_fires_and_claims_of_its_node(look: Any, verbs: Store, another: Any) -> None:
    await verbs.nodes.join(info(NODE), TTL)
    await look.execute("UPDATE nodes SET expires_at = now() - '1 s'::interval")
    async with another.transaction():
        await another.execute("SELECT FROM nodes WHERE node = $1 AND NOT evicted FOR KEY SHARE", NODE)
        evicting = asyncio.create_task(verbs.nodes.evict_expired())
        await until(lambda: look.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"), what="the wait")
    assert await evicting == [NODE]


async def test_a_node_that_beats_while_its_eviction_waits_is_spared(look: Any, verbs: Store, another: Any) -> None:
    await verbs.nodes.join(info(NODE), TTL)
    await look.execute("UPDATE nodes SET expires_at = now() - '1 s'::interval")
    async with another.transaction():
        await another.execute("UPDATE nodes SET expires_at = now() + ttl")
        evicting = asyncio.create_task(verbs.nodes.evict_expired())
        await until(lambda: look.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"), what="the wait")
    assert await evicting == []


# --- partitions ---


async def test_partitions_that_no_node_holds_are_taken_with_a_higher_term(look: Any, verbs: Store) -> None:
    await add_node(look, NODE)
    assert await verbs.nodes.take(NODE, 1, dict.fromkeys([3, 4])) == {3: (1 << 22) + 1, 4: (1 << 22) + 1}
    assert await partition(look, 3) == (NODE, (1 << 22) + 1)
    assert await partition(look, 5) == (None, 0)
    await add_node(look, OTHER)
    assert await verbs.nodes.take(OTHER, 1, dict.fromkeys([3, 4])) == {}, "they are held, by a node that is alive"


async def test_a_node_that_missed_the_answer_takes_its_partitions_again(look: Any, verbs: Store) -> None:
    await add_node(look, NODE)
    first = await verbs.nodes.take(NODE, 1, dict.fromkeys([3]))
    second = await verbs.nodes.take(NODE, 1, dict.fromkeys([3]))
    assert second[3] > first[3]


async def test_terms_grow_with_each_take_over_and_each_incarnation(look: Any, verbs: Store) -> None:
    for node in (NODE, OTHER, THIRD):
        await add_node(look, node)
    first = await verbs.nodes.take(NODE, 1, dict.fromkeys([3]))
    await verbs.nodes.leave(NODE)
    second = await verbs.nodes.take(OTHER, 1, dict.fromkeys([3]))
    await verbs.nodes.leave(OTHER)
    third = await verbs.nodes.take(THIRD, 2, dict.fromkeys([3]))
    assert first[3] < second[3] < third[3]
    assert third[3] == (2 << 22) + 1


async def test_partitions_are_taken_only_from_no_holder_the_evicted_and_the_vanished(look: Any, verbs: Store) -> None:
    await add_node(look, NODE)
    await add_node(look, OTHER)
    await add_node(look, THIRD, evicted=True)
    for number, holder in enumerate((None, NODE, THIRD, 99)):
        await look.execute("UPDATE partitions SET holder = $2, term = 7 WHERE partition = $1", number, holder)
    assert set(await verbs.nodes.take(OTHER, 1, dict.fromkeys([0, 1, 2, 3]))) == {0, 2, 3}
    assert await partition(look, 1) == (NODE, 7)


async def test_a_nomination_takes_a_partition_from_a_node_that_is_alive_if_it_is_newer(look: Any, verbs: Store) -> None:
    await add_node(look, NODE)
    await add_node(look, OTHER)
    first = await verbs.nodes.take(NODE, 1, {3: 10})
    second = await verbs.nodes.take(OTHER, 1, {3: 11})
    assert second[3] > first[3]
    assert (await partition(look, 3))[0] == OTHER


async def test_a_nomination_that_comes_late_is_refused_even_when_no_node_holds_the_partition(
    look: Any, verbs: Store
) -> None:
    await add_node(look, NODE)
    await add_node(look, OTHER)
    await verbs.nodes.take(OTHER, 1, {3: 11})
    assert await verbs.nodes.take(NODE, 1, {3: 10}) == {}
    await verbs.nodes.release(OTHER, [3])
    assert await verbs.nodes.take(NODE, 1, {3: 10}) == {}
    assert set(await verbs.nodes.take(OTHER, 1, {3: 11})) == {3}, "the last one accepted may take it up again"


async def test_the_same_nomination_does_not_take_a_partition_from_another_holder(look: Any, verbs: Store) -> None:
    await add_node(look, NODE)
    await add_node(look, OTHER)
    await verbs.nodes.take(OTHER, 1, {3: 11})
    assert await verbs.nodes.take(NODE, 1, {3: 11}) == {}


async def test_every_take_over_is_on_record_with_its_term_and_nomination(look: Any, verbs: Store) -> None:
    await add_node(look, NODE)
    await add_node(look, OTHER)
    first = await verbs.nodes.take(NODE, 1, {3: None, 4: 10})
    second = await verbs.nodes.take(OTHER, 1, {4: 12})
    rows = await look.fetch("SELECT partition, term, node, nomination FROM elections ORDER BY partition, term")
    assert [tuple(row) for row in rows] == [(3, first[3], NODE, 0), (4, first[4], NODE, 10), (4, second[4], OTHER, 12)]


async def test_a_draining_node_is_no_longer_among_those_who_share(look: Any, verbs: Store) -> None:
    await verbs.nodes.join(info(NODE), TTL)
    await verbs.nodes.join(info(OTHER), TTL)
    await look.execute("UPDATE nodes SET draining = true WHERE node = $1", NODE)
    assert (await verbs.nodes.share(NODE)).schedulers == [OTHER]


async def test_the_share_contains_what_is_held_what_is_free_and_when_to_check_again(look: Any, verbs: Store) -> None:
    for node in (NODE, OTHER, THIRD):
        await verbs.nodes.join(info(node), TTL)
    await verbs.nodes.take(NODE, 1, {3: None})
    await verbs.nodes.take(OTHER, 1, {4: None})
    await verbs.nodes.take(THIRD, 1, {5: None})
    await verbs.nodes.leave(THIRD)
    view = await verbs.nodes.share(NODE)
    assert (view.held, view.evicted, view.expired) == ([3], [THIRD], False)
    assert 5 in view.free and not {3, 4} & set(view.free)
    assert view.first_expiry is not None and 0 < view.first_expiry <= TTL.total_seconds()
    await look.execute("UPDATE nodes SET expires_at = now() - '1 s'::interval WHERE node = $1", OTHER)
    assert (await verbs.nodes.share(NODE)).expired


async def test_an_evicted_node_takes_nothing(look: Any, verbs: Store) -> None:
    await add_node(look, NODE, evicted=True)
    assert await verbs.nodes.take(NODE, 1, dict.fromkeys([0])) == {}
    assert await verbs.nodes.take(99, 1, dict.fromkeys([0])) == {}


async def test_of_two_nodes_that_take_at_once_the_later_gets_nothing(look: Any, verbs: Store, another: Any) -> None:
    await add_node(look, NODE)
    await add_node(look, OTHER)
    async with another.transaction():
        first = await another.fetch(sql.partition.TAKE.text, NODE, 1, [3, 4], [None, None])
        taking = asyncio.create_task(verbs.nodes.take(OTHER, 1, dict.fromkeys([3, 4, 5])))
        await until(lambda: look.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"), what="the wait")
    assert len(first) == 2
    assert set(await taking) == {5}, "it waited, and then took from a node that is alive"
    assert await partition(look, 3) == (NODE, first[0]["term"])


async def test_partitions_are_handed_over_by_their_holder_alone(look: Any, verbs: Store) -> None:
    await add_node(look, NODE)
    await add_node(look, OTHER)
    terms = await verbs.nodes.take(NODE, 1, dict.fromkeys([3, 4, 5]))
    assert await verbs.nodes.release(OTHER, [3, 4]) == []
    assert await verbs.nodes.release(NODE, [3, 4, 9]) == [3, 4]
    assert await partition(look, 3) == (None, terms[3]), "the term stays, so that the next one is higher"
    assert set(await verbs.nodes.take(OTHER, 1, dict.fromkeys([3, 4, 5]))) == {3, 4}


# --- the end of a node ---


async def test_a_node_is_deleted_when_it_is_evicted_and_owns_nothing(look: Any, verbs: Store) -> None:
    await add_node(look, NODE)
    assert not await verbs.nodes.delete(NODE), "it is alive"
    await verbs.nodes.take(NODE, 1, dict.fromkeys([3]))
    await add_live_run(look, 1, owner=NODE)
    await verbs.nodes.leave(NODE)
    assert not await verbs.nodes.delete(NODE), "it has a partition and a run"
    await look.execute("UPDATE partitions SET holder = NULL")
    assert not await verbs.nodes.delete(NODE), "it has a run"
    await verbs.nodes.rescue(NODE)
    assert await verbs.nodes.delete(NODE)
    assert not await verbs.nodes.delete(NODE)
    assert await row(look, NODE) is None


# --- history ---


@pytest.fixture
async def history(database_url: str) -> AsyncIterator[Any]:
    """A database of its own, since partitions stay."""
    database = Database(database_url)
    await database.open()
    connection = await connect(database_url, "detent")
    store = Store(database)
    await store.upkeep.make_history_days(7)  # midnight may have passed since this database was made
    yield store, connection
    await connection.close()
    await database.close()


async def days(look: Any, parent: str = "run_history") -> list[str]:
    rows = await look.fetch(
        "SELECT inhrelid::regclass::text AS name FROM pg_inherits WHERE inhparent = $1::text::regclass ORDER BY 1",
        parent,
    )
    return [row["name"].removeprefix(f"{parent}_") for row in rows]


async def test_history_has_partitions_for_a_week_ahead_and_more_when_asked(history: Any) -> None:
    store, look = history
    before = await days(look)
    assert await store.upkeep.make_history_days(7) == 0
    assert await store.upkeep.make_history_days(9) == 2
    assert len(await days(look)) == len(before) + 2
    assert await days(look) == await days(look, "attempts") == await days(look, "run_logs")


async def test_a_tick_of_long_ago_and_one_of_next_week_have_a_partition(history: Any) -> None:
    _, look = history
    for at in (LONG_AGO - 20_000 * DAY, await look.fetchval("SELECT now() + '7 days'::interval")):
        await look.execute(
            "INSERT INTO run_history (job, scheduled_at, finished_at, serial, revision, status, reason)"
            " VALUES (1, $1, now(), 0, 1, 4, 'overlap')",
            at,
        )
    assert await look.fetchval("SELECT count(*) FROM run_history") == 2


async def drop_partitions_after(look: Any, day: str) -> None:
    """As if the last day made ahead had been this one."""
    for parent in ("run_history", "attempts", "run_logs"):
        first, *others = await days(look, parent)
        for other in others:
            await look.execute(f"DROP TABLE {parent}_{other}")
        await look.execute(f"ALTER TABLE {parent} DETACH PARTITION {parent}_{first}")
        await look.execute(f"ALTER TABLE {parent}_{first} RENAME TO {parent}_{day}")
        await look.execute(
            f"ALTER TABLE {parent} ATTACH PARTITION {parent}_{day} FOR VALUES FROM (MINVALUE) TO ('{day}'::date + 1)"
        )


async def test_days_for_which_no_node_made_a_partition_get_one_later(history: Any) -> None:
    """Down for longer than the days made ahead: the ticks missed meanwhile must still be recorded."""
    store, look = history
    await drop_partitions_after(look, "20260101")
    await add_node(look, NODE)
    job = await add_job(look, LONG_AGO)
    now = await look.fetchval("SELECT date_trunc('day', now())")
    await store.upkeep.make_history_days(7)
    missed = [MissedRange(at, at, 1, "merged") for at in (LONG_AGO, now - 10 * DAY, now - DAY)]
    (cursor,) = await store.cursors.load([job])
    assert await store.cursors.miss(NODE, [Leap(cursor, now, now, missed[-1].last, missed)]) == {job}
    assert await look.fetchval("SELECT sum(ticks) FROM run_history") == 3
    assert len(await days(look)) == 9, "one table for the whole gap"


async def test_two_nodes_may_make_the_same_days_at_once(history: Any) -> None:
    store, _ = history
    made = await asyncio.gather(*(store.upkeep.make_history_days(12) for _ in range(3)))
    assert sorted(made) == [0, 0, 5]
