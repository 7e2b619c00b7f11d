"""Concurrency keys: never more running runs of a key than its limit, starts at its rate, and none is forgotten."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from detent.domain.run import Claim
from detent.store import Store, sql
from tests.store.on_demand import (
    NODE,
    OTHER,
    claim,
    count,
    database_time,
    end,
    enqueue,
    enqueue_many,
    heads,
    key_of,
    retry,
    settle,
    waiting,
)
from tests.support.factories import add_node, add_task
from tests.support.waiting import until

LIMIT = 2
SECOND = timedelta(seconds=1)


@pytest.fixture(autouse=True)
async def task(look: Any) -> int:
    await add_node(look, NODE)
    await add_node(look, OTHER)
    return await add_task(look, name="mail", key_text="{{payload.c}}", key_limit=LIMIT)


async def running(look: Any) -> Counter[str]:
    rows = await look.fetch("SELECT key FROM live_runs WHERE owner IS NOT NULL")
    return Counter(row["key"] for row in rows)


async def parked(look: Any) -> Counter[str]:
    return Counter(row["key"] for row in await waiting(look) if row["parked"])


async def test_a_claim_takes_as_many_runs_of_a_key_as_may_run_and_parks_the_others(look: Any, verbs: Store) -> None:
    await enqueue_many(look, *({"payload": {"c": f"c{n % 3}"}} for n in range(15)))
    claims = await claim(verbs, keyed=True)
    assert Counter(run.concurrency_key for run in claims) == {"c0": 2, "c1": 2, "c2": 2}
    assert [run.key.scheduled_at for run in claims] == sorted(run.key.scheduled_at for run in claims)
    assert await running(look) == {"c0": 2, "c1": 2, "c2": 2}
    assert await parked(look) == {"c0": 3, "c1": 3, "c2": 3}
    assert await heads(verbs, keyed=True) == []


async def test_a_claim_that_only_puts_runs_off_says_where(look: Any, verbs: Store, task: int) -> None:
    """Others may be ready behind them: the worker must not take such a head for an empty one."""
    await enqueue_many(look, *({"payload": {"c": "hot"}} for _ in range(9)), {"payload": {"c": "other"}})
    (head,) = await heads(verbs, keyed=True)
    assert [len((await verbs.tasks.claim(NODE, 1, [head], 3)).runs) for _ in range(2)] == [2, 0]
    third = await verbs.tasks.claim(NODE, 1, [head], 3)
    assert (third.runs, third.put_off) == ([], frozenset({(task, head.queue)}))
    last = await verbs.tasks.claim(NODE, 1, [head], 3)
    assert ([run.concurrency_key for run in last.runs], last.put_off) == (["other"], frozenset())


async def test_a_key_without_a_limit_means_one_at_a_time(look: Any, verbs: Store) -> None:
    await add_task(look, name="plain")
    await enqueue_many(look, *[{"concurrency_key": "k"}] * 3, {"concurrency_key": "l"}, task="plain")
    assert Counter(run.concurrency_key for run in await claim(verbs, keyed=True)) == {"k": 1, "l": 1}


async def test_a_limit_without_a_key_holds_for_the_whole_job(look: Any, verbs: Store) -> None:
    await add_task(look, name="whole", key_limit=3)
    await enqueue_many(look, *({"payload": {"c": n}} for n in range(9)), task="whole")
    assert len(await claim(verbs, keyed=True)) == 3


async def test_a_run_that_has_ended_leaves_its_place_to_one_that_is_unparked(
    look: Any, verbs: Store, task: int
) -> None:
    await enqueue_many(look, *({"payload": {"c": "k"}, "priority": n} for n in range(5)))
    claims = await claim(verbs, keyed=True)
    assert await verbs.tasks.unpark([(task, "k")]) == set()
    await settle(verbs, claims[:1])
    assert await verbs.tasks.unpark([(task, "k"), (task, "other")]) == {task}
    (row,) = [row for row in await waiting(look) if not row["parked"]]
    assert row["priority"] == 2, "of those that wait, the one with the highest priority"
    assert [run.serial for run in await claim(verbs, keyed=True)] == [row["serial"]]
    assert await running(look) == {"k": LIMIT}


async def test_an_unparked_run_that_finds_no_place_is_parked_again(look: Any, verbs: Store, task: int) -> None:
    await enqueue_many(look, *({"payload": {"c": "k"}} for _ in range(5)))
    await claim(verbs, keyed=True)
    await look.execute("UPDATE backlog SET parked = false")
    assert await claim(verbs, keyed=True) == []
    assert await parked(look) == {"k": 3}


async def test_a_retry_gives_its_place_up_and_waits_for_one_again(look: Any, verbs: Store, task: int) -> None:
    await enqueue_many(look, *({"payload": {"c": "k"}} for _ in range(3)))
    claims = await claim(verbs, keyed=True)
    await retry(verbs, claims[:1])
    assert await verbs.tasks.unpark([(task, "k")]) == {task}
    assert len(await claim(verbs, keyed=True)) == 1
    assert await running(look) == {"k": LIMIT}
    assert await count(look, "backlog") == 1


async def test_a_run_that_a_node_lost_or_gave_back_keeps_its_place(look: Any, verbs: Store, task: int) -> None:
    await enqueue_many(look, *({"payload": {"c": "k"}} for _ in range(4)))
    claims = await claim(verbs, keyed=True)
    await verbs.live_runs.give_back(NODE, claims[:1])
    await verbs.nodes.leave(NODE)
    await verbs.nodes.rescue(NODE)
    assert await verbs.tasks.unpark([(task, "k")]) == set()
    (queue,) = {run.queue for run in claims}
    assert {run.key for run in await verbs.live_runs.claim(OTHER, 1, [queue], 10)} == {run.key for run in claims}


async def test_keys_that_runs_wait_for_are_listed_page_by_page(look: Any, verbs: Store, task: int) -> None:
    await enqueue_many(look, *({"payload": {"c": f"c{n % 7}"}} for n in range(35)))
    await claim(verbs, keyed=True)
    found, after = [], (0, "")
    while page := await verbs.tasks.parked_keys(after, 3):
        found += page
        after = page[-1]
    assert found == [(task, f"c{n}") for n in range(7)]


# --- shared keys ---


async def test_jobs_that_share_keys_have_one_limit_together(look: Any, verbs: Store) -> None:
    jobs = [
        await add_task(look, name=name, key_text="{{payload.c}}", key_limit=LIMIT, key_shared=True)
        for name in ("a", "b")
    ]
    for name in ("a", "b"):
        await enqueue_many(look, *({"payload": {"c": "k"}} for _ in range(4)), task=name)
    claims = await claim(verbs, keyed=True)
    assert len(claims) == LIMIT
    assert {row["scope"] for row in await look.fetch("SELECT scope FROM key_places")} == {-1}
    while claims:
        assert (await running(look))["k"] <= LIMIT
        await settle(verbs, claims)
        freed = await verbs.tasks.unpark([(claims[0].job, "k")])
        assert freed <= set(jobs)
        claims = await claim(verbs, keyed=True)
    assert await count(look, "backlog") == 0


async def test_a_key_of_one_tenant_is_not_that_of_another(look: Any, verbs: Store) -> None:
    if await verbs.tenants.number("acme") is None:
        await verbs.tenants.add("acme")
    number = await verbs.tenants.number("acme")
    assert number is not None
    options: dict[str, Any] = {"key_text": "k", "key_limit": 1, "key_shared": True}
    for name, tenant in (("ours", 1), ("theirs", number)):
        await add_task(look, name=name, tenant=tenant, **options)
    await enqueue_many(look, {}, {}, task="ours")
    await enqueue_many(look, {}, {}, task="theirs", tenant="acme")
    assert len({run.job for run in await claim(verbs, keyed=True)}) == 2
    assert await running(look) == {"k": 2}


# --- rates ---


async def test_runs_of_a_key_start_at_its_rate(look: Any, verbs: Store) -> None:
    await add_task(look, name="paced", key_text="{{payload.c}}", key_rate=4)
    await enqueue_many(look, *({"payload": {"c": "k"}} for _ in range(6)), {"payload": {"c": "l"}}, task="paced")
    claims = await claim(verbs, keyed=True)
    assert Counter(run.concurrency_key for run in claims) == {"k": 1, "l": 1}, "the first of each starts at once"
    times = sorted(row["not_before"] for row in await waiting(look))
    assert [later - before for before, later in itertools.pairwise(times)] == [SECOND / 4] * 4
    assert times[0] > await database_time(look) - SECOND / 4
    assert {(row["paced"], row["parked"]) for row in await waiting(look)} == {(True, False)}


async def test_a_time_that_the_rate_has_given_is_kept_and_the_next_follow_it(look: Any, verbs: Store) -> None:
    await add_task(look, name="paced", key_text="{{payload.c}}", key_rate=1)
    await enqueue_many(look, *({"payload": {"c": "k"}} for _ in range(3)), task="paced")
    await claim(verbs, keyed=True)
    given = [row["not_before"] for row in await waiting(look)]
    await enqueue_many(look, {"payload": {"c": "k"}}, task="paced")
    assert await claim(verbs, keyed=True) == []
    times = [row["not_before"] for row in await waiting(look)]
    assert times[:2] == given
    assert times[2] == given[-1] + SECOND
    await look.execute("UPDATE backlog SET not_before = now() - interval '1 second' WHERE not_before < $1", times[2])
    assert len(await claim(verbs, keyed=True)) == 2, "their time has come: the rate does not delay them again"


async def test_a_rate_that_was_not_used_is_not_saved_up(look: Any, verbs: Store) -> None:
    await add_task(look, name="paced", key_text="k", key_rate=2)
    await enqueue(look, "paced")
    assert len(await claim(verbs, keyed=True)) == 1
    await look.execute("UPDATE key_rates SET next_at = now() - interval '1 hour'")
    await enqueue_many(look, *[{}] * 3, task="paced")
    assert len(await claim(verbs, keyed=True)) == 1


async def test_a_limit_and_a_rate_hold_together(look: Any, verbs: Store, task: int) -> None:
    await look.execute("UPDATE cursors SET key_rate = 1000, key_limit = 1 WHERE job = $1", task)
    await enqueue_many(look, *({"payload": {"c": "k"}} for _ in range(3)))
    assert len(await claim(verbs, keyed=True)) == 1
    await look.execute("UPDATE backlog SET not_before = now()")
    assert await claim(verbs, keyed=True) == []
    assert await parked(look) == {"k": 2}


# --- several at once ---


async def claim_on(connection: Any, found: Any, node: int) -> list[Any]:
    columns = zip(*((head.job, head.queue, head.priority) for head in found), strict=True)
    rows = await connection.fetch(sql.task.CLAIM_KEYED.text, node, 1, *columns, 100, False, 2000, 1)
    return [row for row in rows if row["claimed"]]


@pytest.mark.parametrize("commits", [True, False])
async def test_of_two_claims_of_one_key_the_second_waits_for_the_first(
    look: Any, verbs: Store, another: Any, task: int, commits: bool
) -> None:
    """Each takes another run; the places are the same."""
    await look.execute("UPDATE cursors SET key_limit = 1 WHERE job = $1", task)
    await enqueue_many(look, {"payload": {"c": "k"}}, {"payload": {"c": "k"}})
    found = await heads(verbs, keyed=True)
    first = another.transaction()
    await first.start()
    assert len(await claim_on(another, found, NODE)) == 1
    second = asyncio.create_task(verbs.tasks.claim(OTHER, 1, found, 100))
    await until(
        lambda: look.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
    )
    await (first.commit() if commits else first.rollback())
    assert len((await second).runs) == (0 if commits else 1)
    assert await running(look) == {"k": 1}
    assert await parked(look) == ({"k": 1} if commits else {})
    assert await count(look, "key_places") == 1


async def test_competing_claims_never_exceed_the_limit_and_every_run_runs(look: Any, verbs: Store, task: int) -> None:
    chance = random.Random(11)
    rows = await enqueue_many(look, *({"payload": {"c": f"c{n % 6}"}} for n in range(240)))
    done: list[Claim] = []
    looking = asyncio.Lock()
    most: Counter[str] = Counter()

    async def work(node: int) -> None:
        while len(done) < len(rows):
            found = await heads(verbs, keyed=True)
            claims = (await verbs.tasks.claim(node, 1, found, chance.randint(1, 9))).runs if found else []
            async with looking:
                for key, number in (await running(look)).items():
                    most[key] = max(most[key], number)
            if claims:
                assert await verbs.live_runs.settle(node, end(claims)) == []
                done.extend(claims)
            keys = {(run.job, run.concurrency_key or "") for run in claims} or {
                *await verbs.tasks.parked_keys((0, ""), 9)
            }
            if keys and chance.random() < 0.5:
                got, _ = await verbs.tasks.claim_parked(node, 1, sorted(keys), [queue], 5)
                done.extend(got)
                assert await verbs.live_runs.settle(node, end(got)) == [] if got else True
            elif keys:
                await verbs.tasks.unpark(sorted(keys))

    queue = await look.fetchval("SELECT queue FROM cursors WHERE job = $1", task)
    async with asyncio.timeout(60):
        await asyncio.gather(work(NODE), work(OTHER), work(NODE))
    assert max(most.values()) <= LIMIT
    assert sorted(run.key for run in done) == sorted(key_of(row) for row in rows)
    assert await count(look, "run_history") == len(rows)


# --- straight from the end of one run to the next ---


async def test_a_freed_place_is_claimed_in_one_statement(look: Any, verbs: Store, task: int) -> None:
    await enqueue_many(
        look, *({"payload": {"c": "k"}, "priority": n} for n in range(5)), *({"payload": {"c": "l"}} for _ in range(4))
    )
    claims = await claim(verbs, keyed=True)
    queues = sorted({run.queue for run in claims})
    got, ready = await verbs.tasks.claim_parked(NODE, 1, [(task, "k")], queues, 10)
    assert (got, ready) == ([], set()), "no place is free"
    await settle(verbs, [run for run in claims if run.concurrency_key == "k"])
    got, ready = await verbs.tasks.claim_parked(NODE, 1, [(task, "k"), (task, "l")], queues, 10)
    assert (len(got), {run.concurrency_key for run in got}, ready) == (2, {"k"}, set())
    assert await running(look) == {"k": 2, "l": 2}
    rows = await look.fetch("SELECT priority FROM live_runs WHERE key = 'k' ORDER BY priority")
    assert [row["priority"] for row in rows] == [1, 2]


@pytest.mark.parametrize("why", ["capacity", "queue", "paused", "evicted"])
async def test_a_freed_place_that_is_not_claimed_here_makes_a_run_ready(
    look: Any, verbs: Store, task: int, why: str
) -> None:
    await enqueue_many(look, *({"payload": {"c": "k"}} for _ in range(4)))
    claims = await claim(verbs, keyed=True)
    queues = [] if why == "queue" else [claims[0].queue]
    await settle(verbs, claims)
    if why == "paused":
        await look.execute("UPDATE jobs SET status = 'paused' WHERE job = $1", task)
    if why == "evicted":
        await look.execute("UPDATE nodes SET evicted = true")
    got, ready = await verbs.tasks.claim_parked(NODE, 1, [(task, "k")], queues, 1 if why == "capacity" else 10)
    assert len(got) == (1 if why == "capacity" else 0)
    assert ready == {task}
    assert await parked(look) == {}
    assert await count(look, "backlog") == 2 - len(got)
