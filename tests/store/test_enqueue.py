"""The SQL functions that enqueue: what a run is given, in which order, and what is refused as a whole."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import asyncpg
import pytest

from detent.domain.identity import FIRST_TASK_LANE, MAX_SERIAL, ON_DEMAND
from detent.store import Store
from detent.store.tasks import enqueue as enqueue_checked
from tests.store.on_demand import count, database_time, enqueue, enqueue_many, key_of, waiting
from tests.support.factories import add_job, add_node, add_task
from tests.support.waiting import until

DAY = timedelta(days=1)
MILLISECOND = timedelta(milliseconds=1)


@pytest.fixture(autouse=True)
async def task(look: Any) -> int:
    return await add_task(look, name="mail")


# --- what a run is given ---


async def test_a_run_is_due_now_in_whole_milliseconds_and_its_id_says_so(look: Any, task: int) -> None:
    before = await database_time(look)
    run = await enqueue(look, payload={"to": "a"})
    after = await database_time(look)
    (row,) = await waiting(look)
    key = key_of(run)
    assert key == (task, run["scheduled_at"], row["serial"])
    assert ON_DEMAND <= row["serial"] <= MAX_SERIAL and row["serial"] >= FIRST_TASK_LANE
    assert (run["created"], run["status"]) == (True, "pending")
    assert before - MILLISECOND < run["scheduled_at"] <= after
    assert run["scheduled_at"].microsecond % 1000 == 0
    assert (row["scheduled_at"], row["not_before"]) == (run["scheduled_at"], run["scheduled_at"])
    assert (json.loads(row["payload"]), row["attempt"], row["crashes"], row["priority"]) == ({"to": "a"}, 1, 0, 5)
    assert (row["token"], row["revision"], row["key"], row["parked"]) == (1 << 22 | 1, 1, None, False)


async def test_a_payload_of_null_is_one_and_an_absent_payload_is_none(look: Any) -> None:
    await enqueue(look)
    await enqueue(look, payload=None)
    await enqueue_many(look, {}, {"payload": None}, {"payload": None, "priority": 1}, {"priority": 1})
    payloads = [row["payload"] for row in await waiting(look)]
    assert payloads == [None, "null", None, "null", "null", None]


async def test_results_are_in_the_order_of_the_documents(look: Any) -> None:
    plain = await enqueue_many(look, *({"payload": n} for n in range(500)))
    mixed = await enqueue_many(
        look, *({"payload": n, "priority": n % 7, "delay_seconds": (n * 7919) % 500} for n in range(500))
    )
    keyed = await enqueue_many(look, *({"payload": n, "unique_key": f"k{(n * 7919) % 500}"} for n in range(500)))
    for rows in (plain, mixed, keyed):
        payloads = dict(await look.fetch("SELECT run_id(job, scheduled_at, serial), payload FROM backlog"))
        assert [int(payloads[row["run"]]) for row in rows] == list(range(500))
        assert {row["created"] for row in rows} == {True}


@pytest.mark.parametrize("many", [False, True])
async def test_a_run_is_due_at_its_time_or_after_its_delay(look: Any, many: bool) -> None:
    now = await database_time(look)
    at = now + DAY
    if many:
        first, second = await enqueue_many(look, {"at": at.isoformat()}, {"delay_seconds": 3600.5})
    else:
        first, second = await enqueue(look, at=at), await enqueue(look, delay=timedelta(seconds=3600.5))
    assert timedelta(0) <= at - first["scheduled_at"] < MILLISECOND
    assert abs(second["scheduled_at"] - now - timedelta(seconds=3600.5)) < timedelta(minutes=1)
    for row, run in zip(await waiting(look), (first, second), strict=True):
        assert row["scheduled_at"] == row["not_before"] == run["scheduled_at"]
        assert row["scheduled_at"].microsecond % 1000 == 0


@pytest.mark.parametrize("ago", [timedelta(seconds=1), timedelta(hours=23)])
async def test_a_time_that_has_just_passed_is_now(look: Any, ago: timedelta) -> None:
    before = await database_time(look)
    run = await enqueue(look, at=before - ago)
    (other,) = await enqueue_many(look, {"at": (before - ago).isoformat()})
    assert before - MILLISECOND < run["scheduled_at"] <= other["scheduled_at"]


@pytest.mark.parametrize("priority", [-100, 0, 100])
async def test_a_run_has_its_own_priority(look: Any, priority: int) -> None:
    await enqueue(look, priority=priority)
    await enqueue_many(look, {"priority": priority}, {})
    assert [row["priority"] for row in await waiting(look)] == [priority, priority, 5]


async def test_a_run_takes_revision_once_and_queue_of_its_job(look: Any) -> None:
    job = await add_task(look, name="once", queue="slow")
    await look.execute("UPDATE cursors SET revision = 7, once = true, priority = -3 WHERE job = $1", job)
    await enqueue(look, "once")
    await enqueue_many(look, {}, {"priority": None}, task="once")
    queue = await look.fetchval("SELECT queue FROM cursors WHERE job = $1", job)
    assert {tuple(row) for row in await waiting(look, "revision, once, priority, queue")} == {(7, True, -3, queue)}


async def test_a_queue_of_its_own_is_made_once_and_only_nodes_that_know_tasks_serve_it(look: Any) -> None:
    await enqueue(look, queue="bulk")
    await enqueue_many(look, {"queue": "bulk"}, {"queue": "bulk"})
    queues = {row["queue"] for row in await waiting(look)}
    rows = await look.fetch("SELECT queue, needs, tenant FROM queues WHERE name = 'bulk'")
    assert [tuple(row) for row in rows] == [(*queues, "task:", 1)]


async def test_a_queue_that_was_unused_is_used_again(look: Any) -> None:
    await enqueue(look, queue="bulk")
    await look.execute("UPDATE queues SET unused_since = now() WHERE name = 'bulk'")
    await enqueue(look, queue="bulk")
    assert await look.fetchval("SELECT unused_since FROM queues WHERE name = 'bulk'") is None
    assert len({row["queue"] for row in await waiting(look)}) == 1


async def test_runs_of_a_job_with_a_schedule_wait_beside_its_queue(look: Any) -> None:
    job = await add_job(look, name="report", needs="python:a")
    await enqueue(look, "report")
    await enqueue_many(look, {}, {"queue": "bulk"}, task="report")
    rows = await look.fetch("SELECT name, needs FROM backlog JOIN queues USING (queue) WHERE job = $1", job)
    assert sorted(map(tuple, rows)) == [("bulk", "task:python:a"), *[("default", "task:python:a")] * 2]


@pytest.mark.parametrize(
    ("template", "limit", "given", "key"),
    [
        (None, None, None, None),
        (None, None, "mine", "mine"),
        (None, 3, None, ""),
        ("c-{{payload.customer}}", None, None, "c-7"),
        ("{{ job }}/{{payload.deep.er}}/{{payload.list.1}}/{{payload.no}}", 1, None, "mail-2/x/b/"),
        ("c-{{payload.customer}}", 1, "mine", "mine"),
        ("{{payload.long}}", 1, None, "l" * 160 + "md5"),
    ],
)
@pytest.mark.parametrize("many", [False, True])
async def test_a_run_has_the_concurrency_key_it_was_given_or_that_of_its_jobs_template(
    look: Any, template: str | None, limit: int | None, given: str | None, key: str | None, many: bool
) -> None:
    await add_task(look, name="mail-2", key_text=template, key_limit=limit)
    payload = {"customer": 7, "deep": {"er": "x"}, "list": ["a", "b"], "long": "l" * 300}
    own = {} if given is None else {"concurrency_key": given}
    if many:
        await enqueue_many(look, {"payload": payload, **own}, task="mail-2")
    else:
        await enqueue(look, "mail-2", payload=payload, **own)
    (row,) = await waiting(look)
    if key is not None and key.endswith("md5"):
        key = key.removesuffix("md5") + await look.fetchval("SELECT md5($1)", "l" * 300)
    assert (row["key"], row["keyed"]) == (key, key is not None)


async def test_a_run_that_is_committed_notifies_once_per_transaction(look: Any, another: Any, task: int) -> None:
    heard: list[str] = []
    await look.add_listener("detent_runs", lambda *event: heard.append(event[-1]))
    async with another.transaction():
        await enqueue_many(another, {}, {}, {"priority": 3})
        await enqueue(another)
        assert not heard
    await enqueue(another)
    await until(lambda: len(heard) >= 2)
    assert set(heard) == {f"task:{task}"} and len(heard) == 2
    await look.remove_listener("detent_runs", lambda: None)


async def test_a_run_that_is_rolled_back_leaves_nothing(look: Any, another: Any) -> None:
    transaction = another.transaction()
    await transaction.start()
    await enqueue(another, unique_key="k", queue="gone")
    await transaction.rollback()
    assert await count(look, "backlog") == await count(look, "unique_keys") == 0
    assert await look.fetchval("SELECT count(*) FROM queues WHERE name = 'gone'") == 0


async def test_the_api_enqueues_without_the_limits_it_has_checked(look: Any, task: int) -> None:
    large = json.dumps([{"payload": {"x": "y" * 2_000_000, "ref": {"secret": "a"}}}])
    (run,) = await enqueue_checked(look, task, large)
    assert run.created
    assert await count(look, "backlog") == 1


async def test_serials_begin_again_after_the_last(look: Any) -> None:
    await look.execute("SELECT setval('on_demand_serials', $1, false)", MAX_SERIAL)
    await look.execute("SELECT nextval('on_demand_serials')")  # of this session's cache, whatever it was
    serials = [key_of(await enqueue(look)).serial for _ in range(70)]
    assert all(ON_DEMAND <= serial <= MAX_SERIAL for serial in serials)
    assert len(set(serials)) == 70
    await look.execute("SELECT setval('on_demand_serials', $1, false)", ON_DEMAND)


# --- what is refused ---

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"priority": 101}, "priority is 101: give a number from -100 to 100"),
    ({"priority": -101}, "priority is -101: give a number from -100 to 100"),
    ({"delay_seconds": -1}, "delay_seconds is below zero: give 0 or more"),
    ({"delay_seconds": 367 * 86400}, "more than 366 days ahead"),
    ({"at": "2999-01-01T00:00:00Z"}, "more than 366 days ahead"),
    ({"at": "2001-01-01T00:00:00Z"}, "more than a day in the past"),
    ({"at": "2999-01-01T00:00:00Z", "delay_seconds": 1}, "at and delay_seconds are both given"),
    ({"queue": ""}, "queue must have 1 to 200 characters"),
    ({"queue": "q" * 201}, "queue must have 1 to 200 characters"),
    ({"unique_key": ""}, "unique_key must have 1 to 200 characters"),
    ({"unique_key": "k" * 201}, "unique_key must have 1 to 200 characters"),
    ({"concurrency_key": ""}, "concurrency_key must have 1 to 200 characters"),
    ({"concurrency_key": "k" * 201}, "concurrency_key must have 1 to 200 characters"),
    ({"unique_for_seconds": 5}, "unique_for_seconds is given without unique_key"),
    ({"unique_key": "k", "unique_for_seconds": 0}, "unique_for_seconds must be above zero"),
    ({"unique_key": "k", "unique_for_seconds": 367 * 86400}, "at most 366 days"),
    ({"payload": "x" * 1_048_577}, "payload has 1048579 bytes, and at most 1048576 are allowed"),
    ({"payload": {"a": [{"secret": "pay"}]}}, "payload refers to a secret, which only the API can check"),
    ({"colour": 1}, "must be a document with some of the fields"),
    ({"payload": 1, "at": "soon"}, "soon"),
    ({"priority": "high"}, "high"),
    ({"priority": 1.5}, "1.5"),
]
INTERVALS = {"delay_seconds": "delay", "unique_for_seconds": "unique_for"}


def named(arguments: dict[str, Any]) -> dict[str, Any]:
    """As arguments of `enqueue`."""
    found = {INTERVALS.get(name, name): value for name, value in arguments.items()}
    for name in INTERVALS.values():
        if name in found:
            found[name] = timedelta(seconds=found[name])
    if "at" in found:
        found["at"] = datetime.fromisoformat(found["at"])
    return found


@pytest.mark.parametrize(("wrong", "words"), REFUSED, ids=[words for _, words in REFUSED])
async def test_one_wrong_run_refuses_all_and_says_which(look: Any, wrong: dict[str, Any], words: str) -> None:
    async with look.transaction():
        await look.execute("INSERT INTO changes (channel, payload) VALUES ('mine', 'x')")
        with pytest.raises(asyncpg.DataError) as caught:
            async with look.transaction():
                await enqueue_many(look, {"payload": 1}, {"unique_key": "first"}, wrong, {})
    message = str(caught.value)
    assert words in message
    assert message.startswith("runs[2]")
    assert await count(look, "backlog") == await count(look, "unique_keys") == 0
    assert await count(look, "changes") == 1, "the caller's transaction is intact up to its savepoint"


@pytest.mark.parametrize(("wrong", "words"), REFUSED[:18], ids=[words for _, words in REFUSED[:18]])
async def test_a_wrong_run_is_refused_with_the_same_words(look: Any, wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(asyncpg.InvalidParameterValueError) as caught:
        await enqueue(look, **named(wrong))
    assert words in str(caught.value)
    assert not str(caught.value).startswith("runs[")
    assert await count(look, "backlog") == 0


@pytest.mark.parametrize("runs", ["{}", "null", "[]", "[1]", "[[]]", '["x"]', json.dumps([{}] * 10_001)])
async def test_what_is_no_list_of_documents_is_refused(look: Any, runs: str) -> None:
    with pytest.raises(asyncpg.InvalidParameterValueError, match=r"array of 1 to 10,000|runs\[0\] must be a document"):
        await look.fetch("SELECT * FROM enqueue_many('mail', $1)", runs)
    assert await count(look, "backlog") == 0


async def test_ten_thousand_at_once_are_enqueued(look: Any) -> None:
    rows = await enqueue_many(look, *[{}] * 10_000)
    assert len({row["run"] for row in rows}) == await count(look, "backlog") == 10_000


@pytest.mark.parametrize("field", ["unique_key", "concurrency_key", "queue", "payload"])
async def test_nul_cannot_be_stored_and_is_refused_by_the_server(look: Any, field: str) -> None:
    async with look.transaction():
        with pytest.raises(asyncpg.DataError):
            async with look.transaction():
                await look.fetch("SELECT * FROM enqueue_many('mail', $1)", json.dumps([{field: "a\0b"}]))
        assert (await enqueue(look))["created"]


@pytest.mark.parametrize(("limit", "created"), [(50, False), (2_000_000, True)])
async def test_a_tenant_has_its_own_payload_limit(look: Any, verbs: Store, limit: int, created: bool) -> None:
    await look.execute("UPDATE tenants SET max_payload_bytes = $1 WHERE tenant = 1", limit)
    payload = "x" * (100 if limit < 1000 else 1_500_000)
    try:
        if created:
            assert (await enqueue(look, payload=payload))["created"]
            assert (await enqueue_many(look, {"payload": payload}))[0]["created"]
        else:
            for runs in ([{"payload": payload}], [{"payload": payload, "priority": 1}]):
                with pytest.raises(asyncpg.InvalidParameterValueError, match="at most 50 are allowed"):
                    await enqueue_many(look, *runs)
            with pytest.raises(asyncpg.InvalidParameterValueError, match="at most 50 are allowed"):
                await enqueue(look, payload=payload)
    finally:
        await look.execute("UPDATE tenants SET max_payload_bytes = NULL WHERE tenant = 1")


async def test_a_payload_that_only_resembles_a_secret_reference_is_none(look: Any) -> None:
    await enqueue_many(look, {"payload": {"secret": "a", "b": 1}}, {"payload": {"secret": 5}}, {"payload": ["secret"]})
    assert await count(look, "backlog") == 3


async def test_an_unknown_and_a_deleted_task_are_named(look: Any, task: int) -> None:
    await look.execute("UPDATE jobs SET status = 'deleted' WHERE job = $1", task)
    for name in ("mail", "nothing"):
        with pytest.raises(asyncpg.UndefinedObjectError, match=f"has no task or job named {name}: create it first"):
            await enqueue(look, name)
        with pytest.raises(asyncpg.UndefinedObjectError, match=f"has no task or job named {name}: create it first"):
            await enqueue_many(look, {}, task=name)


async def test_a_paused_task_is_enqueued_all_the_same(look: Any, task: int) -> None:
    await look.execute("UPDATE jobs SET status = 'paused' WHERE job = $1", task)
    assert (await enqueue(look))["created"]


@pytest.mark.parametrize("many", [False, True])
async def test_nothing_is_enqueued_beside_a_node_of_an_older_version(look: Any, many: bool) -> None:
    await add_node(look, 5)
    await look.execute("UPDATE nodes SET knows = 20")
    with pytest.raises(asyncpg.ObjectNotInPrerequisiteStateError, match="upgrade all nodes first"):
        await (enqueue_many(look, {}) if many else enqueue(look))
    await look.execute("UPDATE nodes SET evicted = true")
    assert (await enqueue(look))["created"]
