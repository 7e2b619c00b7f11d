"""The audit log in the database: chained behind the changes, verified, removed in time, and closed to changes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from detent.domain.audit_chain import ChainCheck
from detent.domain.audit_event import Actor, NewEvent
from detent.errors import Conflict
from detent.jobs import JobOperations
from detent.store import Store
from detent.store.audit_log import CHAINED_AT_ONCE, acting, record
from detent.store.db import PoolName, connect
from tests.support.postgres import as_runtime_role
from tests.support.tenants import add_job

ADA = Actor("key", "abcdefgh23", "ada", "192.0.2.1", "4bf92f35")


async def add_events(store: Store, count: int, **fields: Any) -> None:
    with acting(ADA):
        for number in range(count):
            await store.audit_log.add(NewEvent("job.pause", 1, "job", f"id-{number}", f"job-{number}", **fields))


async def chain_all(store: Store) -> int:
    count = 0
    while chained := await store.audit_log.extend_chain():
        count += chained
    return count


async def faults(store: Store) -> list[str]:
    ends = (await store.audit_log.chain()).ends
    check = ChainCheck(ends.purged, ends.purged_hash)
    after: int | None = 0
    while after is not None:
        events, after = await store.audit_log.in_chain(after=after, limit=100)
        for event in events:
            assert event.link is not None
            check.read(event.link)
    check.end(ends)
    return [fault.text for fault in check.faults]


async def test_events_are_chained_in_order_some_at_a_time(store: Store, sql: Any) -> None:
    await add_events(store, CHAINED_AT_ONCE + 50)
    waiting = await store.audit_log.chain()
    assert (waiting.head, waiting.unchained) == (0, CHAINED_AT_ONCE + 50)
    assert waiting.unchained_seconds >= 0
    assert await store.audit_log.extend_chain() == CHAINED_AT_ONCE
    assert await chain_all(store) == 50
    assert await faults(store) == []
    rows = await sql.fetch("SELECT id, position FROM audit_events ORDER BY id")
    assert [row["position"] for row in rows] == list(range(1, len(rows) + 1))


async def test_an_event_that_commits_late_is_chained_behind_those_that_were_faster(store: Store, sql: Any) -> None:
    async with store.database.connection(PoolName.REQUEST) as slow, slow.transaction():
        await record(slow, NewEvent("job.delete", 1, "job", name="slow"))
        await add_events(store, 3)
        assert await chain_all(store) == 3
    assert await chain_all(store) == 1
    assert await sql.fetchval("SELECT object_name FROM audit_events ORDER BY position DESC LIMIT 1") == "slow"
    assert await faults(store) == []


async def test_several_nodes_that_chain_at_once_make_one_chain(store: Store) -> None:
    await add_events(store, 300)
    done = await asyncio.gather(*(chain_all(store) for _ in range(4)))
    while await chain_all(store):
        pass
    assert sum(done) <= 300
    assert (await store.audit_log.chain()).unchained == 0
    assert await faults(store) == []


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE audit_events SET actor_name = 'eve' WHERE position = 5", "Event {5} at position 5 was altered"),
        ("UPDATE audit_events SET after = '{{}}' WHERE position = 5", "Event {5} at position 5 was altered"),
        ("UPDATE audit_events SET at = at - interval '1 s' WHERE position = 5", "Event {5} at position 5 was altered"),
        ("UPDATE audit_events SET tenant = 2 WHERE position = 5", "Event {5} at position 5 was altered"),
        ("UPDATE audit_events SET hash = sha256('x') WHERE position = 5", "Event {5} at position 5 was altered"),
        ("DELETE FROM audit_events WHERE position = 5", "Event at position 5 was removed."),
        ("DELETE FROM audit_events WHERE position > 8", "The newest events were cut off: positions 9 to 10"),
        (
            "UPDATE audit_events SET position = CASE position WHEN 5 THEN 106 ELSE 105 END WHERE position IN (5, 6);"
            " UPDATE audit_events SET position = position - 100 WHERE position > 100",
            "Event {6} at position 5 is not the one that was chained here",
        ),
    ],
)
async def test_a_row_that_was_altered_removed_or_moved_by_hand_is_named(
    store: Store, sql: Any, statement: str, said: str
) -> None:
    await add_events(store, 10, after={"reason": "moving", "rate": 0.5, "names": ["ä", "\u2028"]})
    await chain_all(store)
    assert await faults(store) == []
    ids = [row["id"] for row in await sql.fetch("SELECT id FROM audit_events ORDER BY position")]
    await sql.execute(statement.format())
    found = await faults(store)
    assert found[0].startswith(said.format(None, *ids)), found


async def test_a_change_that_is_rolled_back_leaves_no_event(store: Store, sql: Any) -> None:
    with pytest.raises(Conflict):
        async with store.database.connection(PoolName.REQUEST) as connection, connection.transaction():
            await record(connection, NewEvent("job.delete", 1, "job", name="not really"))
            raise Conflict("Somebody was faster.")
    assert await sql.fetchval("SELECT count(*) FROM audit_events") == 0


async def test_changes_do_not_wait_for_one_another(store: Store) -> None:
    """Two transactions write events at the same time, and a third chains what is committed."""
    async with (
        store.database.connection(PoolName.REQUEST) as one,
        one.transaction(),
        store.database.connection(PoolName.REQUEST) as other,
        other.transaction(),
    ):
        await record(one, NewEvent("job.pause", 1, "job", name="one"))
        await record(other, NewEvent("job.pause", 1, "job", name="other"))
        assert await store.audit_log.extend_chain() == 0
    assert await chain_all(store) == 2


async def test_nodes_act_in_their_own_name(store: Store, sql: Any) -> None:
    job, _ = await add_job(store, sql, 1, "failing", auto_pause_after=1)
    job_id = await sql.fetchval("SELECT id FROM jobs WHERE job = $1", job)
    await JobOperations(store).lifecycle.pause(job_id, "the last run was dead", by="detent")
    events, _ = await store.audit_log.list(tenant=1)
    assert [(event.action, event.actor.kind, event.address) for event in events] == [
        ("job.pause", "detent", None),
        ("job.create", "detent", None),
    ]
    assert events[0].after == {"status": "paused", "reason": "the last run was dead"}


# --- retention ---


async def age(sql: Any, days: int, below: int) -> None:
    """Before they are chained: later it would be seen."""
    await sql.execute("UPDATE audit_events SET at = now() - make_interval(days => $1) WHERE id < $2", days, below)


async def test_old_events_are_removed_and_the_rest_of_the_chain_is_still_verified(store: Store, sql: Any) -> None:
    await add_events(store, 10)
    first = await sql.fetchval("SELECT min(id) FROM audit_events")
    await age(sql, 400, first + 6)
    await chain_all(store)
    assert await store.audit_log.purge(365) == 6
    assert await store.audit_log.purge(365) == 0
    await chain_all(store)
    chain = await store.audit_log.chain()
    assert (chain.purged, chain.head) == (6, 11)
    assert await faults(store) == []
    newest = (await store.audit_log.list(tenant=1, cluster=True))[0][0]
    assert (newest.action, newest.actor.kind) == ("audit-log.purge", "detent")
    assert isinstance(newest.after, dict) and newest.after["events"] == 6
    assert datetime.now(UTC) - datetime.fromisoformat(newest.after["before"]) > timedelta(days=364)
    await sql.execute("DELETE FROM audit_events WHERE position = 7")
    assert await faults(store) == ["Event at position 7 was removed."]


async def test_neither_young_nor_unchained_events_are_removed(store: Store, sql: Any) -> None:
    await add_events(store, 5)
    await age(sql, 400, 1 << 60)
    assert await store.audit_log.purge(365) == 0
    await chain_all(store)
    await add_events(store, 5)
    await chain_all(store)
    now = await sql.fetchval("SELECT now()")
    assert await sql.fetchval("SELECT purge_audit_events($1, 1000)", now) == 5  # the last day stays, whatever is asked
    assert await sql.fetchval("SELECT count(*) FROM audit_events WHERE action <> 'audit-log.purge'") == 5


# --- a role for run time ---


@pytest.fixture
async def runtime(database_url: str) -> AsyncIterator[Any]:
    connection = await connect(as_runtime_role(database_url), "detent")
    yield connection
    await connection.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit_events SET actor_name = 'eve'",
        "UPDATE audit_events SET hash = NULL",
        "DELETE FROM audit_events",
        "TRUNCATE audit_events",
        "INSERT INTO audit_events (actor_kind, action, object_kind, position) VALUES ('key', 'x', 'x', 1)",
        "INSERT INTO audit_events (at, actor_kind, action, object_kind) VALUES ('2020-01-01', 'key', 'x', 'x')",
        "UPDATE audit_chain SET head = 0",
        "INSERT INTO audit_chain DEFAULT VALUES",
        "ALTER TABLE audit_events DISABLE TRIGGER USER",
    ],
)
async def test_a_role_for_run_time_cannot_change_what_was_recorded(store: Store, runtime: Any, statement: str) -> None:
    await add_events(store, 2)
    await chain_all(store)
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await runtime.execute(statement)
    assert await faults(store) == []


async def test_a_role_for_run_time_cannot_remove_events_without_leaving_one(
    store: Store, runtime: Any, sql: Any
) -> None:
    await add_events(store, 3)
    await age(sql, 2, 1 << 60)
    await chain_all(store)
    assert await runtime.fetchval("SELECT purge_audit_events(now(), 1000)") == 3
    (left,) = await sql.fetch("SELECT action, after FROM audit_events")
    assert (left["action"], json.loads(left["after"])["events"]) == ("audit-log.purge", 3)
    await chain_all(store)
    assert await faults(store) == []


async def test_a_role_for_run_time_cannot_chain_an_event_twice_or_elsewhere(store: Store, runtime: Any) -> None:
    await add_events(store, 2)
    await chain_all(store)
    head = (await store.audit_log.chain()).head
    chain = "SELECT chain_audit_events($1, $2, $3)"
    assert await runtime.fetchval(chain, head - 1, [1], [bytes(32)]) == 0
    with pytest.raises(asyncpg.RaiseError):
        await runtime.fetchval(chain, head, [1], [bytes(32)])
    assert await faults(store) == []


async def test_long_texts_are_cut_so_that_an_event_stays_small(store: Store, sql: Any) -> None:
    await add_events(store, 1, after={"reason": "x" * 100_000, "list": ["y" * 3000]})
    after = json.loads(await sql.fetchval("SELECT after FROM audit_events"))
    assert len(after["reason"]) < 2100 and after["reason"].endswith("(100000 characters)")
    assert len(after["list"][0]) < 2100
