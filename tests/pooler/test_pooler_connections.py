"""Connections through a pooler: what they need, what they bring along, and what they leave behind."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from detent.domain.job import HttpTarget, JobSpec
from detent.errors import Unavailable
from detent.jobs import JobOperations
from detent.node.database import prepare_database
from detent.store import Database, Store, sql
from detent.store.db import LockTimeout, OutcomeUnknown, PoolName, connect
from detent.store.pooler import role_script, role_settings
from detent.store.requests import StoredAnswer
from tests.support.factories import add_job, add_live_run, add_node
from tests.support.pgbouncer import PgBouncer, prepare_role, running_pgbouncer
from tests.support.postgres import Postgres
from tests.support.ticks import advance_of
from tests.support.waiting import until

LIMITS = ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout", "transaction_timeout")
SETTINGS = "SELECT name, setting::integer AS ms FROM pg_settings WHERE name = ANY ($1)"


async def limits_of(connection: Any) -> dict[str, int]:
    return {row["name"]: row["ms"] for row in await connection.fetch(SETTINGS, LIMITS)}


async def refused(work: Any) -> str:
    with pytest.raises(Unavailable) as caught:
        await work
    return caught.value.message


async def test_a_pooler_is_detected_without_a_setting(pgbouncer: PgBouncer, database_url: str) -> None:
    sentence = await refused(connect(pgbouncer.url(database_url), "detent"))
    assert "is behind a pooler that passes no settings on (unsupported startup parameter: " in sentence
    assert "set DETENT_DATABASE_POOLER=transaction" in sentence


async def test_a_role_without_its_settings_is_refused_with_the_statements_that_help(
    pgbouncer: PgBouncer, database_url: str, look: Any
) -> None:
    url = pgbouncer.url(database_url)
    sentence = await refused(prepare_database(url, "detent", migrate=False, pooled=True))
    assert 'search_path is "$user", public' in sentence
    statements = re.findall(r"ALTER ROLE [^;]+;", sentence)
    assert len(statements) == len(role_settings("detent"))
    for statement in statements:
        await look.execute(statement)
    await pgbouncer.reconnect(database_url)  # as the sentence says
    await prepare_database(url, "detent", migrate=False, pooled=True)


async def test_the_script_for_the_role_does_what_the_statements_do(
    pgbouncer: PgBouncer, database_url: str, look: Any
) -> None:
    await look.execute(role_script("detent", "detent"))
    await prepare_database(pgbouncer.url(database_url), "detent", migrate=False, pooled=True)


async def test_what_is_pending_is_not_migrated_through_a_pooler(pgbouncer: PgBouncer, empty_database_url: str) -> None:
    await prepare_role(empty_database_url)
    sentence = await refused(prepare_database(pgbouncer.url(empty_database_url), "detent", migrate=True, pooled=True))
    assert "`detent db migrate --database-pooler none --database-url URL`" in sentence


async def test_asking_for_a_migration_that_is_not_needed_is_no_error(pooled_url: str) -> None:
    await prepare_database(pooled_url, "detent", migrate=True, pooled=True)


@pytest.mark.parametrize("pool", [PoolName.FIRE, PoolName.WORK, PoolName.FAILOVER, PoolName.REQUEST])
@pytest.mark.parametrize("alone", [True, False])
async def test_each_transaction_brings_the_limits_of_its_pool_and_takes_them_back(
    store: Store, pooled_url: str, pool: PoolName, alone: bool
) -> None:
    async with store.database.connection(pool) as connection:
        if alone:
            found = await limits_of(connection)
        else:
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                found = await limits_of(connection)
        limits = store.database.limits[pool]
        assert found["lock_timeout"] == limits.lock * 1000
        assert found["statement_timeout"] == limits.statement * 1000
        assert found["idle_in_transaction_session_timeout"] == limits.idle * 1000
        if "transaction_timeout" in found:
            assert found["transaction_timeout"] == (limits.transaction or 0) * 1000
    assert await _left_behind(pooled_url) == [{}] * 8


async def _left_behind(url: str) -> list[dict[str, int]]:
    """What is not as the server gives it, in as many sessions at once as the pooler has and more."""
    connections = [await asyncpg.connect(url, statement_cache_size=0) for _ in range(8)]
    try:
        found = await asyncio.gather(*(limits_of(connection) for connection in connections))
        return [{name: ms for name, ms in each.items() if ms} for each in found]
    finally:
        for connection in connections:
            await connection.close()


async def test_many_clients_on_few_connections_get_their_own_answers(store: Store) -> None:
    async def ask(pool: PoolName, number: int) -> None:
        async with store.database.connection(pool) as connection:
            text = f"SELECT $1::bigint + {number % 7} AS sum, {number % 5} AS also"
            (row,) = await connection.fetch(text, number)
            assert (row["sum"], row["also"]) == (number + number % 7, number % 5)

    pools = (PoolName.FIRE, PoolName.WORK, PoolName.REQUEST)
    await asyncio.gather(*(ask(pools[number % 3], number) for number in range(600)))
    async with store.database.connection(PoolName.WORK) as connection:
        assert await connection.fetchval("SELECT count(*) FROM pg_prepared_statements WHERE name <> ''") == 0


async def test_on_a_timeline_that_no_node_has_joined_yet_a_node_writes_nothing(store: Store, look: Any) -> None:
    """As behind a pooler that was pointed at a promoted server: no connection was made anew that could tell."""
    job, ready = await add_job(look), await add_job(look, None)
    node = await add_node(look, 1)
    await add_live_run(look, ready)
    (cursor,) = await store.cursors.load([job])
    assert cursor.next_tick is not None
    batch = [advance_of(job, cursor.next_tick, cursor.generation, None, None)]
    await look.execute("UPDATE cluster SET timeline = timeline - 1")
    for careful in (False, True):
        assert [each.why for each in await store.cursors.fire(node, 1, False, batch, careful=careful)] == ["refused"]
    assert await store.live_runs.claim(node, 1, [1], 10) == []
    assert await store.nodes.take(node, 1, {3: None}) == {}
    await look.execute("UPDATE cluster SET timeline = timeline + 1")
    assert await store.cursors.fire(node, 1, False, batch) == []
    assert len(await store.live_runs.claim(node, 1, [1], 10)) == 2
    assert set(await store.nodes.take(node, 1, {3: None})) == {3}


async def test_a_fire_does_not_wait_long_for_a_row_that_another_session_holds(store: Store, look: Any) -> None:
    job = await add_job(look)
    async with look.transaction():
        await look.fetch("SELECT FROM cursors WHERE job = $1 FOR UPDATE", job)
        with pytest.raises(LockTimeout):
            async with store.database.connection(PoolName.FIRE) as connection:
                await connection.fetch("SELECT FROM cursors WHERE job = $1 FOR UPDATE", job)


async def test_a_transaction_in_which_its_process_was_paused_is_ended_by_the_server(pooled_url: str, look: Any) -> None:
    database = Database(pooled_url, pooled=True, ttl=1.0)
    await database.open()
    job = await add_job(look)
    try:
        with pytest.raises((OutcomeUnknown, LockTimeout)):
            async with database.connection(PoolName.WORK) as connection, connection.transaction():
                await connection.fetch("SELECT FROM cursors WHERE job = $1 FOR UPDATE", job)
                async with look.transaction():  # its own limit is longer than the other's
                    await look.fetch("SELECT FROM cursors WHERE job = $1 FOR UPDATE", job)
                await connection.fetch("SELECT 1")
        await until(lambda: _answers(database), what="the pool to be of use again")
    finally:
        await database.close()


async def test_requests_that_need_two_connections_each_do_not_wait_for_one_another(
    postgres: Postgres, pooled_url: str, database_url: str, look: Any
) -> None:
    """More of them at once than the pooler has connections; a heartbeat would wait as long as they do."""
    with running_pgbouncer(postgres.server.url, size=2) as narrow:
        database = Database(narrow.url(database_url), pooled=True)
        await database.open()
        store = Store(database)
        registration = JobOperations(store).registration

        async def register(number: int) -> StoredAnswer:
            spec = JobSpec(name=f"job-{number}", schedule="@daily", target=HttpTarget(url="http://127.0.0.1:9/"))
            await registration.add([spec])
            return StoredAnswer(201, {}, b"{}")

        async def ask(number: int) -> None:
            idle = timedelta(seconds=2)
            await store.requests.once(
                f"key-{number}", b"d" * 32, lambda: register(number), tenant=1, idle=idle, registers=True
            )

        try:
            await asyncio.gather(*(ask(number) for number in range(20)))
        finally:
            await database.close()
    assert await look.fetchval("SELECT count(*) FROM jobs") == 20


async def test_slow_registrations_of_one_tenant_leave_turns_to_others(pooled_url: str) -> None:
    database = Database(pooled_url, pooled=True)
    await database.open()
    store = Store(database)
    answered: list[str] = []
    begun, finish = asyncio.Event(), asyncio.Event()

    async def ask(tenant: int, key: str) -> None:
        async def work() -> StoredAnswer:
            begun.set()
            await finish.wait()
            return StoredAnswer(200, {}, b"{}")

        await store.requests.once(key, b"d" * 32, work, tenant=tenant, idle=timedelta(minutes=1), registers=True)
        answered.append(key)

    first = [asyncio.create_task(ask(1, f"of one-{number}")) for number in range(3)]
    try:
        await begun.wait()
        other = asyncio.create_task(ask(2, "of another"))
        await asyncio.sleep(0)  # it is in line
    finally:
        finish.set()
        await asyncio.gather(*first, other)
        await database.close()
    assert answered.index("of another") <= 1, "it waited for one of them, not for all"


async def test_a_request_that_registers_nothing_does_not_wait_for_one_that_does(pooled_url: str) -> None:
    database = Database(pooled_url, pooled=True)
    await database.open()
    store = Store(database)
    begun, finish = asyncio.Event(), asyncio.Event()

    async def work() -> StoredAnswer:
        begun.set()
        await finish.wait()
        return StoredAnswer(200, {}, b"{}")

    async def at_once() -> StoredAnswer:
        return StoredAnswer(202, {}, b"{}")

    minute = timedelta(minutes=1)
    first = asyncio.create_task(store.requests.once("a", b"d" * 32, work, tenant=1, idle=minute, registers=True))
    try:
        await begun.wait()
        answer, _ = await store.requests.once("b", b"d" * 32, at_once, tenant=1, idle=minute)
        assert answer.status == 202 and not first.done()
    finally:
        finish.set()
        await first
        await database.close()


async def _answers(database: Database) -> bool:
    try:
        return bool(await database.fetch(PoolName.WORK, sql.database.CLOCK))
    except (OutcomeUnknown, Unavailable):
        return False
