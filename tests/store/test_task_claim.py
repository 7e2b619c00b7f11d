"""Claims of on-demand runs: from the backlog into live_runs, under the fence of their node, each once."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from detent.domain.identity import RunKey
from detent.store import Store
from detent.store.tasks import TaskHead
from tests.store.on_demand import (
    NODE,
    OTHER,
    TOKEN,
    claim,
    count,
    enqueue,
    enqueue_many,
    heads,
    key_of,
    waiting,
)
from tests.support.factories import add_job, add_live_run, add_node, add_task

HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
async def task(look: Any) -> int:
    await add_node(look, NODE)
    await add_node(look, OTHER)
    return await add_task(look, name="mail")


# --- where runs wait ---


async def test_a_head_is_a_job_queue_and_priority_with_the_time_of_its_first_run(
    look: Any, verbs: Store, task: int
) -> None:
    job = await add_job(look, None, name="report")
    await enqueue_many(look, {"delay_seconds": 60}, {}, {"priority": -7}, {"queue": "bulk"}, {"concurrency_key": "k"})
    await enqueue_many(look, {}, {}, task="report")
    rows = await waiting(look, "job, queue, keyed, priority, not_before")
    found = {head[:5]: (head.laned, head.wait <= 0) for head in await verbs.tasks.heads(None)}
    assert found == {tuple(row): (row["job"] == job, True) for row in rows[1:6]}
    assert {head.job for head in await verbs.tasks.heads(None, [job])} == {job}
    assert await verbs.tasks.heads(None, [job + 1]) == []
    assert {head.queue for head in await verbs.tasks.heads([rows[3]["queue"]])} == {rows[3]["queue"]}
    assert task in {head.job for head in await verbs.tasks.heads(None, [task, job])}


async def test_parked_runs_are_no_heads(look: Any, verbs: Store) -> None:
    await enqueue(look, concurrency_key="k")
    await look.execute("UPDATE backlog SET parked = true")
    assert await verbs.tasks.heads(None) == []


@pytest.mark.parametrize(
    ("change", "task_starts", "job_starts"),
    [
        ("UPDATE jobs SET status = 'paused'", False, True),
        ("UPDATE jobs SET status = 'completed'", False, True),
        ("UPDATE jobs SET status = 'deleted'", False, False),
        ("UPDATE cluster SET held_at = now(), held_by = 'me', held_reason = 'why'", False, False),
        ("INSERT INTO suspended_queues SELECT queue FROM queues", False, False),
    ],
)
async def test_what_must_not_start_is_no_head_and_is_not_claimed(
    look: Any, verbs: Store, change: str, task_starts: bool, job_starts: bool
) -> None:
    await add_job(look, None, name="report")
    await enqueue(look)
    await enqueue(look, "report")
    remembered = await verbs.tasks.heads(None)
    assert len(remembered) == 2
    try:
        await look.execute(change)
        # While the cluster is held, a trigger may still run: its job stays a head, and only a worker releases nothing.
        laned = job_starts or "held_at" in change
        assert sorted(head.laned for head in await verbs.tasks.heads(None)) == [False] * task_starts + [True] * laned
        ours = [head for head in remembered if not head.laned]
        assert len((await verbs.tasks.claim(NODE, 1, ours, 10)).runs) == task_starts
        assert (await verbs.tasks.release(ours)).counts.total() == task_starts
        assert await verbs.tasks.release_laned([head for head in remembered if head.laned]) == job_starts
        assert await count(look, "live_runs") == task_starts + job_starts
    finally:
        await look.execute("DELETE FROM suspended_queues")


# --- claims ---


async def test_a_claimed_run_leaves_the_backlog_with_all_it_was_given(look: Any, verbs: Store, task: int) -> None:
    run = await enqueue(look, payload={"to": "a"}, priority=-100)
    await enqueue(look, priority=100)
    await look.execute("UPDATE backlog SET lost_alone = 2, attempt = 3, crashes = 1, once = true WHERE priority < 0")
    first, second = await claim(verbs)
    key = key_of(run)
    assert second == (task, key.serial, *key[1:], TOKEN + 1, 1, 3, 1, True, False, second.queue, '{"to": "a"}', None)
    assert (first.payload, first.attempt, first.token) == ("", 1, TOKEN + 1)
    row = await look.fetchrow("SELECT * FROM live_runs WHERE priority < 0")
    assert (row["owner"], row["lane"], row["serial"], row["lost_alone"]) == (NODE, key.serial, key.serial, 2)
    assert (row["payload"], row["not_before"], row["started_at"]) == ('{"to": "a"}', key.scheduled_at, None)
    assert await count(look, "backlog") == 0


async def test_a_claim_of_a_later_incarnation_has_a_higher_token(look: Any, verbs: Store) -> None:
    await enqueue(look)
    (run,) = (await verbs.tasks.claim(NODE, 5, await heads(verbs), 1)).runs
    assert run.token == (5 << 22) + 1


@pytest.mark.parametrize("node", [NODE, 99])
async def test_an_evicted_or_unknown_node_gets_nothing(look: Any, verbs: Store, node: int) -> None:
    await enqueue(look)
    await enqueue(look, concurrency_key="k")
    await look.execute("UPDATE nodes SET evicted = true WHERE node = $1", NODE)
    assert await claim(verbs, node=node) == await claim(verbs, node=node, keyed=True) == []
    assert await count(look, "key_places") == 0
    assert [row["parked"] for row in await waiting(look)] == [False, False]


async def test_a_run_is_claimed_when_it_is_due_and_not_before(look: Any, verbs: Store) -> None:
    await enqueue_many(look, {"delay_seconds": 3600}, {"payload": 1})
    assert [run.payload for run in await claim(verbs)] == ["1"]
    assert await claim(verbs) == []
    await look.execute("UPDATE backlog SET not_before = now()")
    assert len(await claim(verbs)) == 1


async def test_higher_priorities_and_then_older_runs_come_first(look: Any, verbs: Store) -> None:
    priorities = [5, -100, 100, 0, 5, 100, -1]
    await enqueue_many(look, *({"priority": p, "payload": n} for n, p in enumerate(priorities)))
    await look.execute("UPDATE backlog SET not_before = now() - serial % 1000 * interval '1 second'")
    expected = [
        row["payload"] for row in await look.fetch("SELECT payload FROM backlog ORDER BY priority DESC, not_before")
    ]
    got = [run.payload for run in await claim(verbs, 3)] + [run.payload for run in await claim(verbs)]
    assert got == expected


async def test_no_head_gives_more_than_its_share(look: Any, verbs: Store) -> None:
    for name in ("a", "b"):
        await add_task(look, name=name)
    await enqueue_many(look, *[{}] * 50)
    for name in ("a", "b"):
        await enqueue_many(look, *[{}] * 3, task=name)
    claims = await claim(verbs, 12, each=4)
    jobs = [run.job for run in claims]
    assert sorted(jobs.count(job) for job in set(jobs)) == [3, 3, 4]


async def test_an_even_claim_ignores_priorities(look: Any, verbs: Store) -> None:
    await enqueue_many(look, *({"priority": n % 10} for n in range(100)))
    for _ in range(20):
        assert len(await claim(verbs, 1, evenly=True)) == 1
    rows = await look.fetch("SELECT DISTINCT priority FROM live_runs")
    assert len(rows) > 1


async def test_a_run_whose_lane_is_taken_stays_where_it_is(look: Any, verbs: Store, task: int) -> None:
    """After 67 million runs the same serial comes again."""
    blocked, free = await enqueue_many(look, {}, {})
    serial = key_of(blocked).serial
    await add_live_run(look, task, lane=serial, serial=serial, owner=OTHER)
    assert [run.key for run in await claim(verbs)] == [key_of(free)]
    assert [row["serial"] for row in await waiting(look)] == [serial]
    await look.execute("DELETE FROM live_runs WHERE owner = $1", OTHER)
    assert [run.key for run in await claim(verbs)] == [key_of(blocked)]


async def test_the_same_serial_of_two_jobs_is_two_runs(look: Any, verbs: Store) -> None:
    other = await add_task(look, name="other")
    run = key_of(await enqueue(look))
    await enqueue(look, "other")
    await look.execute("UPDATE backlog SET serial = $1", run.serial)
    keys = {each.key for each in await claim(verbs, 1)} | {each.key for each in await claim(verbs, 1)}
    assert {key.job for key in keys} == {run.job, other}
    assert await count(look, "backlog") == 0


async def test_two_claims_at_the_same_time_take_different_runs(look: Any, verbs: Store, another: Any) -> None:
    await enqueue_many(look, *[{}] * 100)
    found = await heads(verbs)
    async with another.transaction():
        await another.execute("SELECT FROM backlog ORDER BY not_before, serial LIMIT 40 FOR UPDATE")
        assert len((await verbs.tasks.claim(NODE, 1, found, 100)).runs) == 60, "locked runs are left to the other claim"
    assert len((await verbs.tasks.claim(NODE, 1, found, 100)).runs) == 40


async def test_every_run_is_claimed_once_by_competing_nodes(look: Any, verbs: Store) -> None:
    rows = await enqueue_many(look, *({"priority": n % 3} for n in range(600)))
    found = await heads(verbs)
    claimed: list[RunKey] = []

    async def compete(node: int, each: list[TaskHead]) -> None:
        misses = 0
        while misses < 3:
            got = (await verbs.tasks.claim(node, 1, each, 37)).runs
            misses = 0 if got else misses + 1
            claimed.extend(run.key for run in got)

    await asyncio.gather(*(compete(node, found) for node in (NODE, OTHER, NODE, OTHER)))
    assert sorted(claimed) == sorted(key_of(row) for row in rows)


# --- releases ---


async def test_a_release_makes_pending_runs_that_any_worker_may_claim(look: Any, verbs: Store, task: int) -> None:
    run = key_of(await enqueue(look, payload=1))
    (head,) = await verbs.tasks.heads(None)
    assert (await verbs.tasks.release([head])).counts == {(task, head.queue): 1}
    row = await look.fetchrow("SELECT * FROM live_runs")
    assert (row["owner"], row["lane"], row["token"], row["payload"]) == (None, run.serial, TOKEN + 1, "1")
    assert await count(look, "backlog") == 0
    (claimed,) = await verbs.live_runs.claim(NODE, 1, [head.queue], 10)
    assert (claimed.key, claimed.lane, claimed.payload, claimed.token) == (run, run.serial, "1", TOKEN + 2)


async def test_a_release_leaves_a_bounded_number_of_ready_runs_of_a_queue_and_priority(look: Any, verbs: Store) -> None:
    await enqueue_many(look, *({"priority": n % 2} for n in range(60)))
    found = await verbs.tasks.heads(None)
    assert (await verbs.tasks.release(found, most=10)).counts.total() == 20
    assert not (await verbs.tasks.release(found, most=10)).counts
    claims = await verbs.live_runs.claim(NODE, 1, [found[0].queue], 4)
    assert len(claims) == 4
    assert (await verbs.tasks.release(found, most=10)).counts.total() == 4
    rows = await look.fetch("SELECT priority, count(*) FROM live_runs WHERE owner IS NULL GROUP BY 1 ORDER BY 1")
    assert [tuple(row) for row in rows] == [(0, 10), (1, 10)]


async def test_runs_that_wait_for_a_retry_do_not_count_against_the_bound(look: Any, verbs: Store, task: int) -> None:
    await enqueue_many(look, *[{}] * 5)
    (head,) = await verbs.tasks.heads(None)
    later = await look.fetchval("SELECT now() + interval '1 hour'")
    for lane in range(10):
        await add_live_run(look, task, lane=lane, queue=head.queue, not_before=later)
    assert (await verbs.tasks.release([head], most=3)).counts.total() == 3
