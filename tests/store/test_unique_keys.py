"""Unique keys: one unfinished run of a key, or one per period, also where two transactions want it at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from detent.domain.identity import RunKey
from detent.domain.states import RunStatus
from detent.jobs import JobOperations
from detent.store import Store, sql
from tests.store.on_demand import (
    NODE,
    claim,
    count,
    enqueue,
    enqueue_many,
    key_of,
    retry,
    settle,
    waiting,
)
from tests.support.factories import add_job, add_node, add_task
from tests.support.waiting import until

HOUR = timedelta(hours=1)
ISOLATIONS = ["read_committed", "repeatable_read", "serializable"]


@pytest.fixture
async def callers(shared_url: str) -> AsyncIterator[list[Any]]:
    """Connections of applications, with the settings of their driver."""
    opened = [await asyncpg.connect(shared_url, server_settings={"search_path": "detent"}) for _ in range(4)]
    yield opened
    for each in opened:
        await each.close()


@pytest.fixture(autouse=True)
async def task(look: Any) -> int:
    await add_node(look, NODE)
    return await add_task(look, name="mail")


async def test_a_second_enqueue_of_a_key_answers_with_the_first_run(look: Any) -> None:
    first = await enqueue(look, payload=1, unique_key="k", delay=HOUR)
    again = await enqueue(look, payload=2, unique_key="k")
    assert (first["created"], again["created"]) == (True, False)
    assert (again["run"], again["status"], again["scheduled_at"]) == (first["run"], "pending", first["scheduled_at"])
    assert [row["payload"] for row in await waiting(look)] == ["1"]


async def test_keys_are_those_of_their_job(look: Any) -> None:
    await add_task(look, name="other")
    assert (await enqueue(look, unique_key="k"))["created"]
    assert (await enqueue(look, "other", unique_key="k"))["created"]


async def test_of_one_call_the_first_with_a_key_is_created_and_the_others_answer_with_it(look: Any) -> None:
    taken = await enqueue(look, unique_key="c")
    rows = await enqueue_many(
        look,
        {"unique_key": "b"},
        {"unique_key": "a"},
        {},
        {"unique_key": "b"},
        {"unique_key": "c"},
        {"unique_key": "a", "delay_seconds": 5},
    )
    assert [row["created"] for row in rows] == [True, True, True, False, False, False]
    assert rows[3]["run"] == rows[0]["run"] != rows[1]["run"] == rows[5]["run"]
    assert rows[4]["run"] == taken["run"]
    assert {row["status"] for row in rows} == {"pending"}
    assert await count(look, "backlog") == 4


@pytest.mark.parametrize(
    ("state", "status"),
    [("claimed", "running"), ("released", "pending"), ("retrying", "retrying"), ("lost", "retrying")],
)
async def test_a_run_that_is_not_over_keeps_its_key(look: Any, verbs: Store, state: str, status: str) -> None:
    first = await enqueue(look, unique_key="k")
    if state == "released":
        assert (await verbs.tasks.release(await verbs.tasks.heads(None))).counts
    else:
        claims = await claim(verbs)
        if state == "retrying":
            await retry(verbs, claims, HOUR)
        elif state == "lost":
            await verbs.nodes.leave(NODE)
            await verbs.nodes.rescue(NODE)
    again = await enqueue(look, unique_key="k")
    assert (again["created"], again["run"], again["status"]) == (False, first["run"], status)


@pytest.mark.parametrize("state", ["succeeded", "dead", "cancelled", "cancelled in the backlog", "deleted"])
async def test_a_run_that_is_over_gives_its_key_up(look: Any, verbs: Store, state: str) -> None:
    first = await enqueue(look, unique_key="k")
    if state == "cancelled in the backlog":
        await JobOperations(verbs).runs.cancel(key_of(first))
    elif state == "deleted":
        await look.execute("DELETE FROM backlog")
    else:
        await settle(verbs, await claim(verbs), RunStatus(state))
    second = await enqueue(look, unique_key="k")
    assert second["created"] and second["run"] != first["run"]
    assert not (await enqueue(look, unique_key="k"))["created"]
    assert await count(look, "unique_keys") == 1


async def test_a_run_of_a_job_with_a_schedule_keeps_its_key_in_a_lane(look: Any, verbs: Store) -> None:
    await add_job(look, None, name="report")
    first = await enqueue(look, "report", unique_key="k")
    assert await verbs.tasks.release_laned(await verbs.tasks.heads(None))
    assert await look.fetchval("SELECT lane FROM live_runs") == 0
    again = await enqueue(look, "report", unique_key="k")
    assert (again["created"], again["run"], again["status"]) == (False, first["run"], "pending")


async def test_a_key_with_a_period_is_taken_until_its_end_although_its_run_is_over(look: Any, verbs: Store) -> None:
    first = await enqueue(look, unique_key="k", unique_for=HOUR)
    await settle(verbs, await claim(verbs))
    again = await enqueue(look, unique_key="k")
    assert (again["created"], again["run"], again["status"]) == (False, first["run"], "succeeded")
    await look.execute("UPDATE unique_keys SET until = now() - interval '1 second'")
    assert (await enqueue(look, unique_key="k"))["created"]


async def test_a_key_whose_period_is_over_is_held_by_a_run_that_is_not(look: Any) -> None:
    await enqueue(look, unique_key="k", unique_for=HOUR)
    await look.execute("UPDATE unique_keys SET until = now() - interval '1 second'")
    assert not (await enqueue(look, unique_key="k"))["created"]


async def test_a_run_whose_enqueue_was_rolled_back_holds_no_key(look: Any, another: Any) -> None:
    transaction = another.transaction()
    await transaction.start()
    await enqueue(another, unique_key="k")
    await transaction.rollback()
    assert (await enqueue(look, unique_key="k"))["created"]


async def test_a_savepoint_that_is_rolled_back_gives_its_key_up_in_the_same_transaction(look: Any) -> None:
    async with look.transaction():
        savepoint = look.transaction()
        await savepoint.start()
        await enqueue(look, unique_key="k")
        await savepoint.rollback()
        assert (await enqueue(look, unique_key="k"))["created"]
        assert not (await enqueue(look, unique_key="k"))["created"]
    assert await count(look, "backlog") == 1


async def wait_for_a_lock(look: Any) -> None:
    await until(
        lambda: look.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
    )


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("isolation", ISOLATIONS)
async def test_of_two_transactions_that_want_a_key_the_second_waits_for_the_first(
    look: Any, another: Any, callers: list[Any], isolation: str, commits: bool
) -> None:
    """With a snapshot of its own, the second cannot see the run of the first: the server asks it to try again."""
    second = callers[0]
    first = another.transaction()
    await first.start()
    held = await enqueue(another, unique_key="k")
    async with asyncio.TaskGroup() as group:
        outer = second.transaction(isolation=isolation)
        await outer.start()
        waits = group.create_task(_outcome(second))
        await wait_for_a_lock(look)
        await (first.commit() if commits else first.rollback())
    await outer.rollback() if waits.result() is None else await outer.commit()
    if not commits:
        assert waits.result()["created"]
    elif isolation == "read_committed":
        assert (waits.result()["created"], waits.result()["run"]) == (False, held["run"])
        assert waits.result()["status"] == "pending"
    else:
        assert waits.result() is None, "a serialization failure"
    assert await count(look, "backlog") == 1
    assert await count(look, "unique_keys") == 1


async def _outcome(connection: Any) -> Any:
    try:
        return await enqueue(connection, unique_key="k")
    except asyncpg.SerializationError:
        return None


@pytest.mark.parametrize("isolation", ISOLATIONS[1:])
async def test_a_snapshot_that_cannot_see_the_holder_never_takes_its_key(
    look: Any, another: Any, isolation: str
) -> None:
    """The key's former run is over for its snapshot; meanwhile another run has taken the key."""
    await enqueue(look, unique_key="k")
    await look.execute("DELETE FROM backlog")
    async with another.transaction():
        pass
    transaction = another.transaction(isolation=isolation)
    await transaction.start()
    await another.fetchval("SELECT count(*) FROM jobs")
    assert (await enqueue(look, unique_key="k"))["created"]
    with pytest.raises(asyncpg.SerializationError):
        await enqueue(another, unique_key="k")
    await transaction.rollback()
    assert not (await enqueue(another, unique_key="k"))["created"]
    assert await count(look, "backlog") == 1


async def cancel_waiting(connection: Any, keys: list[RunKey]) -> None:
    """Cancel runs that wait, on a connection that others compete with."""
    await connection.fetch(sql.task.CANCEL.text, *zip(*dict.fromkeys(keys), strict=True))


@pytest.mark.parametrize("isolation", ISOLATIONS)
async def test_a_race_on_few_keys_leaves_one_unfinished_run_of_each(
    look: Any, callers: list[Any], isolation: str
) -> None:
    keys = [f"k{n}" for n in range(5)]

    async def race(number: int, connection: Any) -> int:
        created = 0
        for turn in range(30):
            runs = [{"unique_key": keys[(turn + number + n) % 5]} for n in range(3)]
            try:
                async with connection.transaction(isolation=isolation):
                    rows = await enqueue_many(connection, *runs)
            except (asyncpg.SerializationError, asyncpg.DeadlockDetectedError):
                continue
            assert all(row["run"] is not None and row["status"] is not None for row in rows)
            created += sum(row["created"] for row in rows)
            if turn % 3 == number % 3:
                await cancel_waiting(connection, [key_of(row) for row in rows[:2]])
        return created

    created = await asyncio.gather(*(race(number, each) for number, each in enumerate(callers)))
    rows = await look.fetch("SELECT b.serial IS NOT NULL AS held FROM unique_keys LEFT JOIN backlog b USING (serial)")
    unfinished = await count(look, "backlog")
    assert unfinished == sum(row["held"] for row in rows) <= 5
    assert sum(created) >= unfinished


async def test_a_key_of_ninety_nine_in_a_batch_takes_the_place_of_runs_that_are_over(look: Any, verbs: Store) -> None:
    runs = [{"unique_key": f"k{n}"} for n in range(99)]
    first = await enqueue_many(look, *runs)
    claims = await claim(verbs, 50)
    await settle(verbs, claims)
    over = {each.key for each in claims}
    again = await enqueue_many(look, *reversed(runs))
    expected = {key_of(row): key_of(row) in over for row in first}
    assert [row["created"] for row in again] == [expected[key_of(row)] for row in reversed(first)]
    assert await count(look, "backlog") == 99
