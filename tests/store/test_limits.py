"""Claims between tenants and under limits: shares, places, rates, and that a limit holds across nodes."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from detent.domain.run import Claim
from detent.store import Store
from detent.store.queues import QueueRow, ReadyQueue, RunLimits
from tests.support.ends import ended_run
from tests.support.factories import LONG_AGO, add_live_run, add_node, add_queue

NODE, OTHER = 11, 12
NOTHING = RunLimits(None, None)


@pytest.fixture(autouse=True)
async def nodes(look: Any) -> None:
    await look.execute("DELETE FROM limits; DELETE FROM queues WHERE tenant > 1")
    await look.execute("DELETE FROM tenant_jobs WHERE tenant > 1; DELETE FROM tenants WHERE tenant > 1")
    await add_node(look, NODE)
    await add_node(look, OTHER)


async def tenant_with_queue(verbs: Store, look: Any, name: str, queue: str = "default") -> tuple[int, int]:
    await verbs.tenants.add(name)
    tenant = await verbs.tenants.number(name)
    assert tenant is not None
    return tenant, await add_queue(look, queue, tenant=tenant)


async def add_runs(look: Any, queue: int, count: int, first: int = 0, **columns: Any) -> None:
    for number in range(count):
        await add_live_run(look, queue * 10_000 + first + number, queue=queue, **columns)


async def row_of(verbs: Store, queue: int) -> QueueRow:
    return next(row for row in await verbs.queues.rows() if row.queue == queue)


async def claim(verbs: Store, queue: int, limit: int = 100, node: int = NODE) -> list[Claim]:
    limits = (await row_of(verbs, queue)).limits
    return (await verbs.queues.claim_limited(node, 1, limits, [queue], limit)).claims


async def settle(verbs: Store, claims: list[Claim], node: int = NODE) -> None:
    assert await verbs.live_runs.settle(node, [ended_run(each, LONG_AGO, LONG_AGO, 1) for each in claims]) == []


# --- between tenants ---


async def test_only_queues_and_priorities_with_something_to_start_are_ready(look: Any, verbs: Store) -> None:
    mine, theirs, empty = [await add_queue(look, name) for name in ("mine", "theirs", "empty")]
    later = await look.fetchval("SELECT now() + interval '1 hour'")
    await add_runs(look, mine, 3, priority=5)
    await add_runs(look, mine, 1, first=10, priority=9)
    await add_runs(look, mine, 1, first=20, priority=1, not_before=later)
    await add_runs(look, theirs, 2)
    await add_runs(look, theirs, 1, first=10, priority=7, owner=NODE)
    assert await verbs.queues.ready([mine, empty]) == [ReadyQueue(mine, 5), ReadyQueue(mine, 9)]
    assert await verbs.queues.ready([mine, theirs]) == [ReadyQueue(mine, 5), ReadyQueue(mine, 9), ReadyQueue(theirs, 5)]
    assert await verbs.queues.ready([]) == []


async def test_each_tenant_gets_its_share_by_priority_and_age(look: Any, verbs: Store) -> None:
    flood, quiet = await add_queue(look, "flood"), await add_queue(look, "quiet")
    await add_runs(look, flood, 50, priority=9)
    await add_runs(look, quiet, 3, priority=0)
    await add_runs(look, quiet, 2, first=100, priority=4)
    places = [(1, ReadyQueue(flood, 9)), (2, ReadyQueue(quiet, 0)), (2, ReadyQueue(quiet, 4))]
    claims = await verbs.queues.claim_shares(NODE, 1, {1: 4, 2: 3}, places)
    assert Counter(each.queue for each in claims) == {flood: 4, quiet: 3}
    assert {quiet * 10_000 + 100, quiet * 10_000 + 101} < {each.job for each in claims if each.queue == quiet}
    held = await look.fetch("SELECT job, token FROM live_runs WHERE owner = $1", NODE)
    assert {(row["job"], row["token"]) for row in held} == {(each.job, each.token) for each in claims}


async def test_an_evicted_node_gets_no_share(look: Any, verbs: Store) -> None:
    queue = await add_queue(look, "flood")
    await add_runs(look, queue, 2)
    await look.execute("UPDATE nodes SET evicted = true WHERE node = $1", NODE)
    assert await verbs.queues.claim_shares(NODE, 1, {1: 5}, [(1, ReadyQueue(queue, 5))]) == []


async def test_two_nodes_never_share_a_run(look: Any, verbs: Store) -> None:
    queue = await add_queue(look, "flood")
    await add_runs(look, queue, 40)
    taken = await asyncio.gather(
        *(
            verbs.queues.claim_shares(node, 1, {1: 15}, [(1, ReadyQueue(queue, 5))])
            for node in (NODE, OTHER, NODE, OTHER)
        )
    )
    jobs = [each.job for claims in taken for each in claims]
    assert len(jobs) == len(set(jobs)) <= 40


# --- how many at once ---


async def test_no_more_than_the_limit_are_under_way_and_an_end_makes_room(look: Any, verbs: Store) -> None:
    queue = await add_queue(look, "narrow")
    await verbs.queues.limit("narrow", RunLimits(3, None), tenant=1)
    await add_runs(look, queue, 10)
    first = await claim(verbs, queue, 2)
    assert len(first) == 2
    assert len(await claim(verbs, queue)) == 1
    limits = (await row_of(verbs, queue)).limits
    full = await verbs.queues.claim_limited(OTHER, 1, limits, [queue], 5)
    assert (full.claims, full.full, full.wait) == ([], True, None)
    await settle(verbs, first)
    assert len(await claim(verbs, queue, node=OTHER)) == 2


@pytest.mark.parametrize("waits", ["retrying", "given back", "rescued"])
async def test_a_run_that_no_node_holds_takes_no_place(look: Any, verbs: Store, waits: str) -> None:
    queue = await add_queue(look, "narrow")
    await verbs.queues.limit("narrow", RunLimits(1, None), tenant=1)
    await add_runs(look, queue, 2)
    (held,) = await claim(verbs, queue, 1)
    if waits == "retrying":
        await look.execute(
            "UPDATE live_runs SET owner = NULL, not_before = now() + interval '1 hour' WHERE job = $1", held.job
        )
    elif waits == "given back":
        await verbs.live_runs.give_back(NODE, [held])
    else:
        await verbs.nodes.leave(NODE)
        await verbs.nodes.rescue(NODE)
    assert len(await claim(verbs, queue, node=OTHER)) == 1
    assert await claim(verbs, queue, node=OTHER) == []


async def test_a_limit_holds_while_many_nodes_claim_at_once(look: Any, verbs: Store) -> None:
    queue = await add_queue(look, "narrow")
    await verbs.queues.limit("narrow", RunLimits(5, None), tenant=1)
    await add_runs(look, queue, 60)
    most = 0
    for _ in range(15):
        await asyncio.gather(*(claim(verbs, queue, 3, node) for node in (NODE, OTHER) * 3))
        await claim(verbs, queue, 3, NODE)  # where the first kept all others away
        under_way = await look.fetchval("SELECT count(*) FROM live_runs WHERE owner IS NOT NULL")
        most = max(most, under_way)
        assert under_way <= 5
        await look.execute(
            "DELETE FROM live_runs WHERE job IN (SELECT job FROM live_runs WHERE owner IS NOT NULL LIMIT 3)"
        )
    assert most == 5


async def test_a_claim_that_meets_another_under_the_same_limit_does_not_wait_for_it(
    look: Any, verbs: Store, another: Any
) -> None:
    queue = await add_queue(look, "narrow")
    await verbs.queues.limit("narrow", RunLimits(5, None), tenant=1)
    await add_runs(look, queue, 1)
    async with another.transaction():
        await another.execute("SELECT FROM limits FOR NO KEY UPDATE")
        got = await verbs.queues.claim_limited(NODE, 1, (await row_of(verbs, queue)).limits, [queue], 1)
        assert (got.busy, got.claims) == (True, [])
    assert len(await claim(verbs, queue)) == 1


async def test_runs_that_are_under_way_when_a_limit_is_set_count(look: Any, verbs: Store) -> None:
    queue = await add_queue(look, "narrow")
    await add_runs(look, queue, 6)
    before = await verbs.live_runs.claim(NODE, 1, [queue], 4)
    await verbs.queues.limit("narrow", RunLimits(5, None), tenant=1)
    assert len(await claim(verbs, queue)) == 1
    await settle(verbs, before)
    assert len(await claim(verbs, queue)) == 1


async def test_what_a_node_took_before_it_knew_of_a_limit_counts_once_it_does(look: Any, verbs: Store) -> None:
    queue = await add_queue(look, "narrow")
    await verbs.queues.limit("narrow", RunLimits(2, None), tenant=1)
    await add_runs(look, queue, 6)
    await verbs.live_runs.claim(NODE, 1, [queue], 1)
    await verbs.queues.mark_limited(NODE, [queue])
    assert len(await claim(verbs, queue, node=OTHER)) == 1


async def test_a_limit_of_nothing_stops_a_queue_and_taking_it_away_opens_it(look: Any, verbs: Store) -> None:
    queue = await add_queue(look, "narrow")
    await verbs.queues.limit("narrow", RunLimits(0, None), tenant=1)
    await add_runs(look, queue, 1)
    assert await claim(verbs, queue) == []
    await verbs.queues.limit("narrow", NOTHING, tenant=1)
    assert (await row_of(verbs, queue)).limits == ()


async def test_a_queue_is_limited_under_whatever_it_needs_and_a_tenant_in_all_its_queues(
    look: Any, verbs: Store
) -> None:
    tenant, mail = await tenant_with_queue(verbs, look, "acme", "mail")
    shell, files = await add_queue(look, "mail", "shell", tenant), await add_queue(look, "files", tenant=tenant)
    await verbs.queues.limit("mail", RunLimits(3, None), tenant=tenant)
    await verbs.tenants.change("acme", {"max_concurrent": 4})
    for queue in (mail, shell, files):
        await add_runs(look, queue, 10)
    limits = (await row_of(verbs, mail)).limits
    assert len(limits) == 2 and (await row_of(verbs, shell)).limits == limits
    assert len(await claim(verbs, mail, 2)) == 2
    assert len(await claim(verbs, shell)) == 1
    assert len(await claim(verbs, files)) == 1
    assert await claim(verbs, mail) == await claim(verbs, files) == []


async def test_the_queue_of_another_tenant_has_no_part_in_it(look: Any, verbs: Store) -> None:
    tenant, theirs = await tenant_with_queue(verbs, look, "acme", "narrow")
    mine = await add_queue(look, "narrow")
    await verbs.queues.limit("narrow", RunLimits(1, None), tenant=tenant)
    await add_runs(look, mine, 5)
    await add_runs(look, theirs, 5)
    assert (await row_of(verbs, mine)).limits == ()
    assert len(await claim(verbs, theirs)) == 1


# --- how many in a second ---


async def test_no_more_start_than_the_rate_allows(look: Any, verbs: Store) -> None:
    queue = await add_queue(look, "steady")
    await verbs.queues.limit("steady", RunLimits(None, 10), tenant=1)
    await add_runs(look, queue, 200)
    await look.execute("UPDATE limits SET filled_at = now() - interval '1 hour'")
    assert len(await claim(verbs, queue)) == 10
    limits = (await row_of(verbs, queue)).limits
    await look.execute("UPDATE limits SET tokens = 0.25, filled_at = clock_timestamp()")
    dry = await verbs.queues.claim_limited(NODE, 1, limits, [queue], 5)
    assert dry.claims == [] and dry.full and dry.wait is not None and 0 < dry.wait <= 0.075
    await look.execute("UPDATE limits SET filled_at = filled_at - interval '0.3 seconds'")
    assert 3 <= len(await claim(verbs, queue)) <= 10


async def test_a_slow_rate_starts_one_at_a_time(look: Any, verbs: Store) -> None:
    queue = await add_queue(look, "steady")
    await verbs.queues.limit("steady", RunLimits(None, 0.1), tenant=1)
    await add_runs(look, queue, 5)
    assert await claim(verbs, queue) == []
    await look.execute("UPDATE limits SET filled_at = now() - interval '1 day'")
    assert len(await claim(verbs, queue)) == 1
    assert await claim(verbs, queue) == []


async def test_a_clock_that_stepped_back_does_not_stop_a_queue(look: Any, verbs: Store) -> None:
    queue = await add_queue(look, "steady")
    await verbs.queues.limit("steady", RunLimits(None, 4), tenant=1)
    await add_runs(look, queue, 20)
    await look.execute("UPDATE limits SET filled_at = now() + interval '1 day', tokens = 0")
    assert len(await claim(verbs, queue)) == 4
    assert await look.fetchval("SELECT filled_at < clock_timestamp() + interval '1 second' FROM limits")
    await look.execute("UPDATE limits SET filled_at = now() - interval '1 second'")
    assert len(await claim(verbs, queue)) == 4


async def test_what_is_not_claimed_is_not_spent(look: Any, verbs: Store) -> None:
    queue = await add_queue(look, "steady")
    await verbs.queues.limit("steady", RunLimits(None, 2), tenant=1)
    await look.execute("UPDATE limits SET filled_at = now() - interval '1 minute'")
    for _ in range(5):
        assert await claim(verbs, queue) == []
    await add_runs(look, queue, 5)
    assert len(await claim(verbs, queue)) == 2


# --- as people see them ---


async def test_queues_are_listed_with_limits_and_what_is_in_them(look: Any, verbs: Store) -> None:
    queue = await add_queue(look, "mail")
    await add_queue(look, "mail", "shell")
    await add_runs(look, queue, 3)
    await add_runs(look, queue, 1, first=50, owner=NODE)
    await add_runs(
        look, queue, 1, first=60, not_before=await look.fetchval("SELECT now() + $1::interval", timedelta(hours=1))
    )
    await add_runs(look, queue, 1, first=70, lane=-1)
    await add_runs(look, queue, 1, first=80)
    await look.execute("UPDATE live_runs SET not_before = 'infinity' WHERE job = $1", queue * 10_000 + 80)
    await verbs.queues.limit("planned", RunLimits(2, 0.5), tenant=1)
    found = {each.name: each for each in await verbs.queues.list(tenant=1)}
    assert set(found) == {"default", "mail", "planned"}
    assert (found["mail"].waiting, found["mail"].running) == (6, 1)
    assert (found["mail"].ready, found["mail"].oldest_ready_at) == (3, LONG_AGO)
    assert (found["planned"].ready, found["planned"].oldest_ready_seconds) == (0, 0.0)
    assert [each.needs for each in found["mail"].channels] == ["", "shell"]
    assert (found["mail"].max_concurrent, found["mail"].rate_per_second) == (None, None)
    assert (found["planned"].max_concurrent, found["planned"].rate_per_second, found["planned"].waiting) == (2, 0.5, 0)
