"""On-demand runs of jobs with a schedule: they take lanes of their job by its policy, and wait while none is free."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from detent.domain.run import Claim
from detent.store import Store
from detent.store.tasks import trigger
from tests.store.on_demand import NODE, TOKEN, count, end, enqueue_many, key_of, waiting
from tests.support.factories import LONG_AGO, add_job, add_live_run, add_node
from tests.support.ticks import advance_of
from tests.support.waiting import until

HOUR = timedelta(hours=1)
SKIP, QUEUE, REPLACE = 1, -1, -2


@pytest.fixture(autouse=True)
async def node(look: Any) -> int:
    return await add_node(look, NODE)


async def release(verbs: Store) -> bool:
    return await verbs.tasks.release_laned([head for head in await verbs.tasks.heads(None) if head.laned])


async def lanes(look: Any) -> list[int]:
    return [row["lane"] for row in await look.fetch("SELECT lane FROM live_runs ORDER BY lane")]


@pytest.mark.parametrize(
    ("policy", "taken"),
    [(SKIP, [0]), (3, [0, 1, 2]), (7, [2, 3, 4, 5, 6]), (QUEUE, [0]), (REPLACE, [0])],
    ids=["SKIP", "ALLOW 3", "ALLOW 7", "QUEUE", "REPLACE"],
)
async def test_an_idle_job_gives_its_lanes_from_the_highest(
    look: Any, verbs: Store, policy: int, taken: list[int]
) -> None:
    await add_job(look, None, name="mail", lanes=policy)
    rows = await enqueue_many(look, *({"payload": n} for n in range(5)))
    assert await release(verbs)
    assert await lanes(look) == taken
    assert len(await waiting(look)) == 5 - len(taken)
    first = await look.fetchrow("SELECT * FROM live_runs ORDER BY serial LIMIT 1")
    assert (first["serial"], first["payload"], first["owner"]) == (key_of(rows[0]).serial, "0", None)
    assert first["token"] == TOKEN
    assert not await release(verbs) or policy in (QUEUE, REPLACE)


@pytest.mark.parametrize(
    ("policy", "taken"),
    [(SKIP, [0]), (2, [0, 1]), (QUEUE, [-1, 0]), (REPLACE, [-2, 0])],
    ids=["SKIP", "ALLOW 2", "QUEUE", "REPLACE"],
)
async def test_beside_a_running_run_the_policy_decides(look: Any, verbs: Store, policy: int, taken: list[int]) -> None:
    job = await add_job(look, None, name="mail", lanes=policy)
    await add_live_run(look, job, owner=NODE)
    await enqueue_many(look, {}, {}, {})
    assert await release(verbs) == (policy != SKIP)
    assert await lanes(look) == taken
    assert len(await waiting(look)) == 3 - (len(taken) - 1)
    assert await look.fetchval("SELECT cancel FROM live_runs WHERE lane = 0") == (policy == REPLACE)
    assert not await release(verbs), "one waits in the lane, the others in the backlog"


@pytest.mark.parametrize("policy", [SKIP, 2, QUEUE, REPLACE], ids=["SKIP", "ALLOW 2", "QUEUE", "REPLACE"])
async def test_every_run_gets_its_turn_and_never_too_many_run(look: Any, verbs: Store, policy: int) -> None:
    await add_job(look, None, name="mail", lanes=policy)
    rows = await enqueue_many(look, *({"payload": n} for n in range(6)))
    queues = [row["queue"] for row in await look.fetch("SELECT queue FROM queues")]
    done: list[Claim] = []
    for _ in range(30):
        await release(verbs)
        await verbs.live_runs.promote()
        claims = await verbs.live_runs.claim(NODE, 1, queues, 10)
        assert len(claims) <= max(policy, 1)
        assert await verbs.live_runs.settle(NODE, end(claims)) == [] if claims else True
        done += claims
    history = await look.fetch("SELECT serial, status FROM run_history")
    assert {row["serial"] for row in history} == {key_of(row).serial for row in rows}
    assert {row["status"] for row in history} == {1}
    assert sorted(int(run.payload or "") for run in done) == list(range(6))


async def test_a_crowded_job_releases_only_what_its_other_runs_leave(look: Any, verbs: Store) -> None:
    job = await add_job(look, None, name="mail", lanes=3, crowded=True)
    for lane in (4, 7):
        await add_live_run(look, job, lane=lane, owner=NODE)
    await enqueue_many(look, {}, {}, {})
    assert await release(verbs)
    assert await lanes(look) == [2, 4, 7]
    assert not await release(verbs)
    await look.execute("DELETE FROM live_runs WHERE lane = 7")
    assert await release(verbs)
    assert await lanes(look) == [1, 2, 4]


async def test_the_highest_priority_and_then_the_oldest_comes_first_whatever_its_queue_and_key(
    look: Any, verbs: Store
) -> None:
    await add_job(look, None, name="mail", lanes=3)
    runs: list[dict[str, Any]] = [
        {"priority": 1, "payload": 0},
        {"priority": 100, "payload": 1, "delay_seconds": 3600},
        {"priority": 9, "payload": 2, "queue": "bulk"},
        {"priority": 9, "payload": 3},
        {"priority": -100, "payload": 4},
    ]
    await enqueue_many(look, *runs)
    assert await release(verbs)
    rows = await look.fetch("SELECT payload FROM live_runs ORDER BY lane DESC")
    assert [row["payload"] for row in rows] == ["2", "3", "0"]


async def test_two_jobs_do_not_share_lanes(look: Any, verbs: Store) -> None:
    for name in ("mail", "other"):
        await add_job(look, None, name=name)
        await enqueue_many(look, {}, {}, task=name)
    assert await release(verbs)
    assert len({row["job"] for row in await look.fetch("SELECT job FROM live_runs")}) == 2
    assert await count(look, "backlog") == 2


async def test_runs_of_a_paused_job_with_a_schedule_are_released_because_somebody_asked(
    look: Any, verbs: Store
) -> None:
    job = await add_job(look, None, name="mail")
    await look.execute("UPDATE jobs SET status = 'paused' WHERE job = $1", job)
    await enqueue_many(look, {})
    assert await release(verbs)


async def test_a_lane_that_a_fire_takes_meanwhile_leaves_the_run_in_the_backlog(
    look: Any, verbs: Store, another: Any
) -> None:
    job = await add_job(look, name="mail")
    await enqueue_many(look, {})
    async with another.transaction():
        await add_live_run(another, job)
        releasing = asyncio.create_task(release(verbs))
        await until(
            lambda: look.fetchval(
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            )
        )
    assert not await releasing
    assert await count(look, "backlog") == await count(look, "live_runs") == 1


async def test_a_tick_beside_an_on_demand_run_follows_the_policy(look: Any, verbs: Store) -> None:
    job = await add_job(look, name="mail")
    await enqueue_many(look, {})
    assert await release(verbs)
    (exception,) = await verbs.cursors.fire(NODE, 1, False, [advance_of(job, LONG_AGO, 1, LONG_AGO + HOUR, None)])
    assert exception.why == "overlap"


async def test_concurrent_triggers_fill_the_lanes_and_the_others_wait(look: Any, verbs: Store, another: Any) -> None:
    job = await add_job(look, None, name="mail", lanes=3)

    async def start(connection: Any) -> list[bool]:
        waits = []
        for _ in range(4):
            async with connection.transaction():
                started = await trigger(connection, job, None)
            assert started is not None
            waits.append(started[1])
        return waits

    ours, theirs = await asyncio.gather(start(look), start(another))
    assert sorted(ours + theirs) == [False] * 3 + [True] * 5
    assert await lanes(look) == [0, 1, 2]
