"""How on-demand runs end, are retried, cancelled, run again: history has each once, with what it was given."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest

from detent.domain.identity import RunKey, run_id
from detent.domain.run import Claim
from detent.domain.states import RunStatus
from detent.errors import Conflict
from detent.jobs import JobOperations
from detent.store import Store, sql
from tests.store.on_demand import (
    NODE,
    OTHER,
    TOKEN,
    claim,
    count,
    end,
    enqueue,
    enqueue_many,
    failure,
    heads,
    key_of,
    retry,
    settle,
    waiting,
)
from tests.support.ends import claims_in, ended_run
from tests.support.factories import LONG_AGO, add_live_run, add_node, add_task
from tests.support.waiting import until

HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
async def task(look: Any) -> int:
    await add_node(look, NODE)
    await add_node(look, OTHER)
    return await add_task(look, name="mail")


async def history(look: Any) -> list[Any]:
    return list(await look.fetch("SELECT * FROM run_history ORDER BY scheduled_at, serial"))


# --- settle ---


async def test_runs_of_tasks_and_ticks_are_settled_in_one_call(look: Any, verbs: Store, task: int) -> None:
    await enqueue_many(look, {"payload": {"n": 1}}, {"concurrency_key": "k"}, {})
    now: datetime = await look.fetchval("SELECT date_trunc('hour', now())")
    await add_live_run(look, task, now, owner=NODE)
    tick = Claim(task, 0, now, 0, TOKEN, 1)
    claims = [*await claim(verbs), *await claim(verbs, keyed=True)]
    plain, failed = end([claims[0], tick, claims[2]]), end([claims[1]], RunStatus.DEAD)
    worded = ended_run(claims[2], now, now, 1, result="said")
    assert await verbs.live_runs.settle(NODE, [plain[0], failed[0], plain[1], worded]) == []
    rows = {row["serial"]: row for row in await history(look)}
    assert len(rows) == 4
    assert {serial: row["status"] for serial, row in rows.items()} == {
        0: 1, claims[0].serial: 1, claims[1].serial: 2, claims[2].serial: 1,
    }  # fmt: skip
    assert (rows[claims[0].serial]["payload"], rows[claims[0].serial]["key"]) == ('{"n": 1}', None)
    assert (rows[claims[2].serial]["key"], rows[claims[2].serial]["result"]) == ("k", "said")
    assert (rows[claims[1].serial]["reason"], rows[claims[1].serial]["payload"]) == ("retries exhausted", None)
    assert await count(look, "live_runs") == 0
    assert await look.fetchval("SELECT count(*) FROM attempts") == 1


@pytest.mark.parametrize(
    "change",
    [{"token": 1}, {"scheduled_at": HOUR}, {"serial": 1}, {"job": 1}, {"lane": 1}, {"node": OTHER}],
    ids=lambda change: next(iter(change)),
)
@pytest.mark.parametrize("how", ["succeeded", "dead", "retry", "give back", "put off"])
async def test_what_is_not_held_is_neither_settled_nor_given_back(
    look: Any, verbs: Store, change: dict[str, Any], how: str
) -> None:
    await enqueue_many(look, {}, {})
    first, second = await claim(verbs)
    node = change.get("node", NODE)
    other = {name: getattr(second, name) + value for name, value in change.items() if name != "node"}
    wrong = second._replace(**other)
    if how == "retry":
        assert claims_in(await verbs.live_runs.retry(node, [failure(wrong)])) == [wrong]
    elif how == "give back":
        assert await verbs.live_runs.give_back(node, [wrong]) == set()
    elif how == "put off":
        assert await verbs.live_runs.put_off(node, [(wrong, timedelta(seconds=1))]) == set()
    else:
        batch = end([wrong], RunStatus(how))
        assert await verbs.live_runs.settle(node, batch) == batch
    assert await count(look, "live_runs") == 2
    assert await count(look, "backlog") == await count(look, "run_history") == await count(look, "attempts") == 0
    await settle(verbs, [first, second])


async def test_one_lost_run_does_not_hold_up_its_neighbours(look: Any, verbs: Store) -> None:
    await enqueue_many(look, *[{}] * 5)
    claims = await claim(verbs)
    await look.execute("UPDATE live_runs SET token = token + 1 WHERE lane = $1", claims[2].lane)
    batch = end(claims)
    assert await verbs.live_runs.settle(NODE, batch) == [batch[2]]
    assert await count(look, "run_history") == 4
    assert await verbs.live_runs.committed(claims) == [True, True, False, True, True]


async def test_a_started_run_is_marked_and_one_that_was_cancelled_is_not_called(look: Any, verbs: Store) -> None:
    await enqueue_many(look, {}, {})
    first, second = await claim(verbs)
    await verbs.live_runs.cancel([second.key])
    verdicts = await verbs.live_runs.start(NODE, [first, second])
    assert verdicts == {(first.job, first.lane): "go", (second.job, second.lane): "cancel"}
    assert [row["lane"] for row in await look.fetch("SELECT lane FROM live_runs WHERE started_at IS NOT NULL")] == [
        first.lane
    ]


# --- retries ---


async def test_a_failed_attempt_returns_to_the_backlog_with_all_it_has(look: Any, verbs: Store) -> None:
    run = await enqueue(look, payload=7, priority=-9, queue="bulk", concurrency_key="k")
    await look.execute("UPDATE backlog SET crashes = 2, lost_alone = 1, once = true")
    (first,) = await claim(verbs, keyed=True)
    await retry(verbs, [first], HOUR)
    (row,) = await waiting(look)
    assert (row["serial"], row["scheduled_at"], row["token"]) == (first.serial, run["scheduled_at"], first.token)
    assert (row["attempt"], row["crashes"], row["lost_alone"], row["once"]) == (2, 2, 1, True)
    assert (row["priority"], row["queue"], row["payload"], row["key"]) == (-9, first.queue, "7", "k")
    assert row["not_before"] > await look.fetchval("SELECT now() + interval '59 minutes'")
    assert await count(look, "live_runs") == await count(look, "run_history") == 0
    assert await look.fetchval("SELECT outcome FROM attempts") == "failed"
    assert (await verbs.runs.get(first.key)).status == "retrying"
    await look.execute("UPDATE backlog SET not_before = now()")
    (second,) = await claim(verbs, keyed=True)
    assert (second.key, second.attempt, second.token) == (first.key, 2, first.token + 1)
    await settle(verbs, [second])
    assert [(each["attempt"], each["status"]) for each in await history(look)] == [(2, 1)]


async def test_a_failure_reported_twice_is_counted_once(look: Any, verbs: Store) -> None:
    await enqueue(look)
    (run,) = await claim(verbs)
    await retry(verbs, [run])
    assert claims_in(await verbs.live_runs.retry(NODE, [failure(run)])) == [run]
    assert [row["attempt"] for row in await waiting(look)] == [2]
    assert await verbs.live_runs.committed([run]) == [True]


async def test_a_run_that_was_asked_to_stop_is_not_retried(look: Any, verbs: Store) -> None:
    await enqueue_many(look, {}, {})
    first, second = await claim(verbs)
    assert await verbs.live_runs.cancel([first.key]) == {first.key: NODE}
    await retry(verbs, [first, second])
    assert [(row["serial"], row["status"], row["reason"]) for row in await history(look)] == [
        (first.serial, 3, "cancelled")
    ]
    assert [row["serial"] for row in await waiting(look)] == [second.serial]


async def test_a_lost_run_stays_in_live_runs_for_the_next_worker(look: Any, verbs: Store) -> None:
    await enqueue(look, payload=1)
    (first,) = await claim(verbs)
    await verbs.nodes.leave(NODE)
    await verbs.nodes.rescue(NODE)
    (again,) = await verbs.live_runs.claim(OTHER, 1, [first.queue], 5)
    assert (again.key, again.lane, again.payload, again.crashes) == (first.key, first.lane, "1", 1)
    assert again.token > first.token
    assert claims_in(await verbs.live_runs.settle(NODE, end([first]))) == [first]


# --- put off ---


async def test_a_run_that_is_put_off_returns_to_the_backlog_with_all_it_has(look: Any, verbs: Store) -> None:
    run = await enqueue(look, payload=7, priority=-9, queue="bulk", concurrency_key="k")
    await look.execute("UPDATE backlog SET crashes = 2, lost_alone = 1, once = true")
    (first,) = await claim(verbs, keyed=True)
    assert await verbs.live_runs.put_off(NODE, [(first, HOUR)]) == {(first.job, first.lane)}
    (row,) = await waiting(look)
    assert (row["serial"], row["scheduled_at"], row["token"]) == (first.serial, run["scheduled_at"], first.token)
    assert (row["attempt"], row["crashes"], row["lost_alone"], row["once"]) == (1, 2, 1, True)
    assert (row["priority"], row["queue"], row["payload"], row["key"]) == (-9, first.queue, "7", "k")
    assert row["not_before"] > await look.fetchval("SELECT now() + interval '59 minutes'")
    assert await count(look, "live_runs") == await count(look, "run_history") == await count(look, "attempts") == 0
    assert await verbs.live_runs.put_off(NODE, [(first, HOUR)]) == set()
    await look.execute("UPDATE backlog SET not_before = now()")
    (second,) = await claim(verbs, keyed=True)
    assert (second.key, second.attempt, second.token) == (first.key, 1, first.token + 1)
    await settle(verbs, [second])


async def test_ticks_and_runs_of_tasks_are_put_off_in_one_call(look: Any, verbs: Store, task: int) -> None:
    await enqueue_many(look, {}, {})
    await add_live_run(look, 1, owner=NODE, token=TOKEN)
    tick = Claim(1, 0, LONG_AGO, 0, TOKEN, 1)
    claims = [*await claim(verbs), tick]
    returned = await verbs.live_runs.put_off(NODE, [(each, HOUR) for each in claims])
    assert returned == {(each.job, each.lane) for each in claims}
    assert (await count(look, "backlog"), await count(look, "live_runs")) == (2, 1)


async def test_a_run_that_was_asked_to_stop_is_left_to_its_next_worker(look: Any, verbs: Store) -> None:
    await enqueue(look)
    (first,) = await claim(verbs)
    await verbs.live_runs.cancel([first.key])
    assert await verbs.live_runs.put_off(NODE, [(first, HOUR)]) == {(first.job, first.lane)}
    assert await waiting(look) == []
    (again,) = await verbs.live_runs.claim(NODE, 1, [first.queue], 1)
    assert (again.key, again.cancel) == (first.key, True)


# --- cancel ---


async def test_a_run_in_the_backlog_ends_at_once_and_one_that_runs_is_asked_to_stop(look: Any, verbs: Store) -> None:
    rows = await enqueue_many(look, {"payload": 1}, {"delay_seconds": 60}, {"concurrency_key": "k"})
    keys = [key_of(row) for row in rows]
    (running,) = await claim(verbs)
    await look.execute("UPDATE backlog SET parked = true WHERE keyed")
    found = await verbs.live_runs.cancel(keys)
    assert found == {keys[0]: NODE, keys[1]: None, keys[2]: None}
    assert await count(look, "backlog") == 0
    assert await look.fetchval("SELECT cancel FROM live_runs")
    assert {(row["serial"], row["status"], row["reason"]) for row in await history(look)} == {
        (keys[1].serial, 3, "cancelled"),
        (keys[2].serial, 3, "cancelled"),
    }
    assert await verbs.live_runs.cancel(keys[1:]) == {}
    await settle(verbs, [running], RunStatus.CANCELLED)


async def test_a_cancel_names_its_run_by_all_of_its_key(look: Any, verbs: Store) -> None:
    key = key_of(await enqueue(look))
    wrong = [key._replace(job=key.job + 1), key._replace(serial=key.serial + 1)]
    wrong.append(key._replace(scheduled_at=key.scheduled_at + timedelta(milliseconds=1)))
    assert await verbs.live_runs.cancel(wrong) == {}
    assert await count(look, "backlog") == 1


async def test_a_cancel_waits_for_a_claim_and_then_finds_the_claimed_run(
    look: Any, verbs: Store, another: Any, task: int
) -> None:
    run = key_of(await enqueue(look))
    (head,) = await heads(verbs)
    arguments = (NODE, 1, [task], [head.queue], [head.priority], 10, False, 100, 10)
    async with another.transaction():
        assert len(await another.fetch(sql.task.CLAIM.text, *arguments)) == 1
        cancelling = asyncio.create_task(verbs.live_runs.cancel([run]))
        await until(lambda: look.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"))
    assert await cancelling == {run: NODE}
    assert await count(look, "run_history") == 0


# --- again ---


async def test_dead_runs_return_to_the_backlog_under_a_higher_token(look: Any, verbs: Store, task: int) -> None:
    await enqueue_many(look, {"payload": 1}, {"concurrency_key": "k"}, {})
    claims = [*await claim(verbs), *await claim(verbs, keyed=True)]
    await settle(verbs, claims[1:], RunStatus.DEAD)
    await settle(verbs, claims[:1])
    await look.execute("UPDATE cursors SET revision = 4, priority = 77 WHERE job = $1", task)
    redriven = await verbs.reruns.redrive([run.key for run in claims])
    assert set(redriven.runs) == {run.key for run in claims[1:]}
    rows = await waiting(look)
    assert {(row["serial"], row["token"]) for row in rows} == {(run.serial, run.token + 1) for run in claims[1:]}
    assert {(row["revision"], row["priority"], row["attempt"], row["crashes"]) for row in rows} == {(4, 77, 1, 0)}
    assert {row["key"] for row in rows} == {None, "k"}
    assert [row["status"] for row in await history(look)] == [1]
    again = await claim(verbs) + await claim(verbs, keyed=True)
    assert {run.key for run in again} == set(redriven.runs)
    assert all(run.token > TOKEN + 2 for run in again)
    await settle(verbs, again)


async def test_a_finished_run_is_enqueued_again_as_a_run_of_its_own(look: Any, verbs: Store, task: int) -> None:
    await enqueue(look, payload={"n": 1}, concurrency_key="k", delay=HOUR)
    await look.execute("UPDATE backlog SET not_before = now()")
    (first,) = await claim(verbs, keyed=True)
    with pytest.raises(Conflict, match="still running"):
        await JobOperations(verbs).runs.retry(first.key)
    await settle(verbs, [first])
    again = await JobOperations(verbs).runs.retry(first.key)
    assert again.on_demand and again != first.key and again.scheduled_at < first.scheduled_at
    (row,) = await waiting(look)
    assert (row["payload"], row["key"], row["serial"], row["attempt"]) == ('{"n": 1}', "k", again.serial, 1)
    assert [each["status"] for each in await history(look)] == [1]
    run = await verbs.runs.get(again)
    assert run is not None and run.id == run_id(again)
    await look.execute("UPDATE jobs SET status = 'deleted' WHERE job = $1", task)
    with pytest.raises(Conflict, match="is deleted"):
        await JobOperations(verbs).runs.retry(first.key)


# --- deleted jobs ---


async def test_the_runs_of_a_deleted_task_end_in_batches_and_those_of_others_stay(
    look: Any, verbs: Store, task: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("detent.store.tasks.END_BATCH", 7)
    await add_task(look, name="other")
    await enqueue_many(look, *({"payload": n, "delay_seconds": n * 86400} for n in range(20)))
    await enqueue_many(look, {}, task="other")
    job_id = await look.fetchval("SELECT id FROM jobs WHERE job = $1", task)
    await JobOperations(verbs).lifecycle.delete(job_id)
    assert await claim(verbs, node=NODE) != [] and await count(look, "live_runs") == 1
    ended = []
    while number := await verbs.tasks.end_of_deleted_jobs():
        ended.append(number)
    assert max(ended) <= 7
    rows = await history(look)
    assert {(row["status"], row["reason"]) for row in rows} == {(3, "job deleted")}
    assert sorted(int(row["payload"]) for row in rows) == list(range(20))
    assert await count(look, "backlog") == 0


async def test_a_retry_of_a_run_whose_task_was_deleted_ends_there(look: Any, verbs: Store, task: int) -> None:
    await enqueue(look)
    (run,) = await claim(verbs)
    await look.execute("UPDATE jobs SET status = 'deleted' WHERE job = $1", task)
    await retry(verbs, [run])
    assert await heads(verbs) == []
    assert await verbs.tasks.end_of_deleted_jobs() == 1
    assert [(row["status"], row["attempt"]) for row in await history(look)] == [(3, 2)]
    assert await verbs.runs.get(RunKey(task, run.scheduled_at, run.serial)) is not None
