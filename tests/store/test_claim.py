"""Claim and start: which runs a worker gets, under which token, and which it may call."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from detent.domain.run import Claim
from detent.runtime import failpoints
from detent.runtime.wakeups import Wakeups
from detent.store import Store
from detent.store.db import OutcomeUnknown
from detent.worker.queues.book import QueueBook
from tests.support.factories import LONG_AGO, add_live_run, add_node, add_queue
from tests.support.waiting import until

NODE, OTHER = 11, 12
SECOND = timedelta(seconds=1)
FIRST_TOKEN = 1 << 22 | 1


@pytest.fixture(autouse=True)
async def node(look: Any) -> int:
    return await add_node(look, NODE)


async def test_a_claimed_run_is_the_nodes_own_under_a_higher_token(look: Any, verbs: Store) -> None:
    await add_live_run(look, 1, LONG_AGO, attempt=2, crashes=1, once=True, serial=4, revision=6, cancel=True)
    (claim,) = await verbs.live_runs.claim(NODE, 1, [1], 10)
    assert claim == Claim(1, 0, LONG_AGO, 4, FIRST_TOKEN + 1, 6, 2, 1, True, True, 1)
    row = await look.fetchrow("SELECT owner, token, started_at FROM live_runs")
    assert tuple(row) == (NODE, FIRST_TOKEN + 1, None)
    assert await verbs.live_runs.claim(NODE, 1, [1], 10) == []
    assert await verbs.live_runs.reconcile(NODE) == [claim]


async def test_a_new_incarnation_gives_tokens_above_all_of_the_last(look: Any, verbs: Store) -> None:
    await add_live_run(look, 1, token=(1 << 22) + 900)
    (claim,) = await verbs.live_runs.claim(NODE, 3, [1], 1)
    assert claim.token == (3 << 22) + 1


async def test_an_evicted_or_unknown_node_claims_nothing(look: Any, verbs: Store) -> None:
    await add_live_run(look, 1)
    await add_node(look, OTHER, evicted=True)
    assert await verbs.live_runs.claim(OTHER, 1, [1], 10) == []
    assert await verbs.live_runs.claim(99, 1, [1], 10) == []
    assert await look.fetchval("SELECT owner FROM live_runs") is None


async def test_the_highest_priority_goes_first_then_the_oldest(look: Any, verbs: Store) -> None:
    order = [(100, 9), (10, 8), (9, 3), (9, 5), (5, 1), (5, 2), (0, 0), (-1, 0), (-100, 0)]
    for job, (priority, age) in enumerate(reversed(order)):
        await add_live_run(look, job, LONG_AGO, priority=priority, not_before=LONG_AGO + age * SECOND)
    claimed = [claim.job for _ in order for claim in await verbs.live_runs.claim(NODE, 1, [1], 1)]
    assert claimed == list(reversed(range(len(order))))


async def test_runs_that_are_claimed_together_come_in_the_order_in_which_they_should_start(
    look: Any, verbs: Store
) -> None:
    for job, priority, age in ((1, 3, 9), (2, 9, 1), (3, 9, 7), (4, 5, 5), (5, 9, 4)):
        await add_live_run(look, job, LONG_AGO - age * SECOND, priority=priority)
    assert [claim.job for claim in await verbs.live_runs.claim(NODE, 1, [1], 10)] == [3, 5, 2, 4, 1]


@pytest.mark.parametrize("queues", [2, 20])
async def test_the_highest_priority_goes_first_on_whichever_queue_it_is(look: Any, verbs: Store, queues: int) -> None:
    numbers = [await add_queue(look, f"queue-{n}") for n in range(queues)]
    for job in range(queues * 3):
        await add_live_run(look, job, priority=job % 10, queue=numbers[job % queues])
    claimed: list[int] = []
    while found := await verbs.live_runs.claim(NODE, 1, numbers, 1):
        claimed += [claim.job % 10 for claim in found]
    assert claimed == sorted((job % 10 for job in range(queues * 3)), reverse=True)


async def test_a_backlog_on_one_queue_does_not_starve_the_others(look: Any, verbs: Store) -> None:
    busy, quiet = await add_queue(look, "busy"), await add_queue(look, "quiet")
    for job in range(100):
        await add_live_run(look, job, queue=busy)
    await add_live_run(look, 100, queue=quiet)
    order = [claim.job for _ in range(101) for claim in await verbs.live_runs.claim(NODE, 1, [busy, quiet], 1)]
    assert order.index(100) < 50, "the quiet queue waited for half the backlog: one in 2 ** 50 if the order is fair"


async def test_a_claim_made_evenly_takes_every_priority_in_its_turn(look: Any, verbs: Store) -> None:
    """Which is what keeps the lowest from starving behind a backlog of the others."""
    first: set[int] = set()
    for _ in range(200):
        await look.execute("DELETE FROM live_runs")
        for job, priority in enumerate((0, 0, 5, 5, 9, 9), 1):
            await add_live_run(look, job, priority=priority)
        taken = await verbs.live_runs.claim(NODE, 1, [1], 2, evenly=True)
        rows = await look.fetch("SELECT priority FROM live_runs WHERE job = ANY ($1)", [claim.job for claim in taken])
        (priority,) = {row["priority"] for row in rows}
        first.add(priority)
        if first == {0, 5, 9}:
            return
    raise AssertionError(f"only {first} came first")


async def test_retries_that_wait_hide_no_other_priority(look: Any, verbs: Store) -> None:
    for job, priority in enumerate((50, 0, -50), 1):
        await add_live_run(look, job, priority=priority)
        await add_live_run(look, 10 + job, priority=priority + 1, not_before=datetime.now(UTC) + timedelta(hours=1))
        await add_live_run(look, 20 + job, priority=priority, not_before=datetime.now(UTC) + timedelta(hours=1))
    assert [claim.job for claim in await verbs.live_runs.claim(NODE, 1, [1], 10)] == [1, 2, 3]


async def test_only_served_queues_are_claimed(look: Any, verbs: Store) -> None:
    mine, theirs = await add_queue(look, "mine"), await add_queue(look, "theirs")
    await add_live_run(look, 1, queue=theirs)
    await add_live_run(look, 2, queue=mine)
    assert [claim.job for claim in await verbs.live_runs.claim(NODE, 1, [mine], 10)] == [2]
    assert await verbs.live_runs.claim(NODE, 1, [], 10) == []


async def test_a_worker_serves_the_queues_whose_name_and_needs_it_has(look: Any, verbs: Store) -> None:
    plain = await add_queue(look, "mail")
    shell = await add_queue(look, "mail", "shell")
    function = await add_queue(look, "mail", "python:send")
    await add_queue(look, "mail", "python:other")
    await add_queue(look, "letters")
    book = QueueBook(verbs, Wakeups())
    await book.refresh()
    assert set(book.served_by(["mail"], [""])) == {plain}
    assert set(book.served_by(["mail"], ["", "shell", "python:send"])) == {plain, shell, function}
    assert not book.served_by(["mail"], [])


async def test_a_run_is_not_claimed_before_its_time(look: Any, verbs: Store) -> None:
    await add_live_run(look, 1, not_before=await look.fetchval("SELECT now() + '1 hour'::interval"), attempt=2)
    assert await verbs.live_runs.claim(NODE, 1, [1], 10) == []
    await look.execute("UPDATE live_runs SET not_before = now()")
    assert len(await verbs.live_runs.claim(NODE, 1, [1], 10)) == 1


async def test_a_run_that_another_session_holds_is_not_claimed(look: Any, verbs: Store) -> None:
    await add_live_run(look, 1, owner=OTHER)
    assert await verbs.live_runs.claim(NODE, 1, [1], 10) == []


async def test_a_run_that_waits_for_its_turn_is_not_claimed(look: Any, verbs: Store) -> None:
    await add_live_run(look, 1, lane=-1)
    assert await verbs.live_runs.claim(NODE, 1, [1], 10) == []


async def test_a_claim_takes_no_more_than_its_limit(look: Any, verbs: Store) -> None:
    for job in range(5):
        await add_live_run(look, job, priority=job)
    assert len(await verbs.live_runs.claim(NODE, 1, [1], 3)) == 3
    assert len(await verbs.live_runs.claim(NODE, 1, [1], 3)) == 2


async def test_two_workers_never_get_the_same_run_and_do_not_wait(look: Any, verbs: Store, another: Any) -> None:
    await add_node(look, OTHER)
    for job in range(4):
        await add_live_run(look, job)
    async with another.transaction():
        held = await another.fetch("SELECT job FROM live_runs WHERE job < 2 FOR UPDATE")
        claimed = await verbs.live_runs.claim(NODE, 1, [1], 10)
        assert {row["job"] for row in held} | {claim.job for claim in claimed} == {0, 1, 2, 3}
        assert len(claimed) == 2


async def test_a_claim_waits_for_an_eviction_and_then_gets_nothing(look: Any, verbs: Store, another: Any) -> None:
    await add_live_run(look, 1)
    async with another.transaction():
        await another.execute("UPDATE nodes SET evicted = true WHERE node = $1", NODE)
        claiming = asyncio.create_task(verbs.live_runs.claim(NODE, 1, [1], 1))
        await until(lambda: look.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"), what="the claim to wait")
    assert await claiming == []


async def test_a_claim_whose_reply_is_dropped_is_of_unknown_outcome(look: Any, verbs: Store) -> None:
    await add_live_run(look, 1)
    failpoints.arm("W2=drop")
    try:
        with pytest.raises(OutcomeUnknown):
            await verbs.live_runs.claim(NODE, 1, [1], 1)
    finally:
        failpoints.arm("")
    assert [claim.token for claim in await verbs.live_runs.reconcile(NODE)] == [FIRST_TOKEN + 1]


# --- start ---


async def claimed(look: Any, verbs: Store, **columns: Any) -> Claim:
    await add_live_run(look, 1, **columns)
    (claim,) = await verbs.live_runs.claim(NODE, 1, [1], 1)
    return claim


async def test_a_start_is_noted_for_a_run_that_is_still_held(look: Any, verbs: Store) -> None:
    claim = await claimed(look, verbs, once=True)
    assert await verbs.live_runs.start(NODE, [claim]) == {(1, 0): "go"}
    assert await look.fetchval("SELECT started_at IS NOT NULL FROM live_runs")


@pytest.mark.parametrize(
    "change",
    [{"token": FIRST_TOKEN}, {"scheduled_at": LONG_AGO + SECOND}, {"serial": 1}, {"lane": 1}, {"job": 2}],
    ids=str,
)
async def test_a_start_of_what_is_not_held_is_not_allowed(look: Any, verbs: Store, change: dict[str, Any]) -> None:
    claim = await claimed(look, verbs)
    assert await verbs.live_runs.start(NODE, [claim._replace(**change)]) == {}
    assert await verbs.live_runs.start(OTHER, [claim]) == {}
    assert await look.fetchval("SELECT started_at FROM live_runs") is None


async def test_a_run_that_was_asked_to_stop_may_not_start(look: Any, verbs: Store) -> None:
    claim = await claimed(look, verbs)
    await verbs.live_runs.cancel([claim.key])
    assert await verbs.live_runs.start(NODE, [claim]) == {(1, 0): "cancel"}


async def test_starts_are_answered_one_by_one(look: Any, verbs: Store) -> None:
    for job in range(3):
        await add_live_run(look, job)
    claims = await verbs.live_runs.claim(NODE, 1, [1], 10)
    stale = [claim._replace(token=claim.token - 1) if claim.job == 1 else claim for claim in claims]
    assert await verbs.live_runs.start(NODE, stale) == {(0, 0): "go", (2, 0): "go"}
