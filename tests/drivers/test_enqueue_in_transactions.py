"""Applications enqueue runs in their own transactions, with any driver, as a role that sees none of our tables."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import asyncpg
import psycopg
import pytest

from detent.errors import NotFound
from detent.store import Database, Store
from detent.store.embedded_roles import USER
from detent.store.enqueue_grants import UnknownDatabaseRole
from tests.drivers.callers import CALLERS, Caller
from tests.support.factories import add_node, add_task
from tests.support.node_packages import folder_with_packages
from tests.support.postgres import Postgres, run_apart

ROLE = "shop_app"
SCRIPT = Path(__file__).with_name("enqueue.mjs")


@pytest.fixture
def application(postgres: Postgres, database_url: str) -> str:
    """The address with which the application connects: it has a table of its own, and may enqueue for one tenant."""
    run_apart(prepared(postgres, database_url))
    return database_url.replace(f"//{USER}@", f"//{ROLE}@", 1)


async def prepared(postgres: Postgres, url: str) -> None:
    await postgres.execute(f"DO $$ BEGIN CREATE ROLE {ROLE} LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
    async with opened(url) as (store, sql):
        await sql.execute(f"CREATE TABLE public.orders (number integer); GRANT ALL ON public.orders TO {ROLE}")
        await store.tenants.add("shop")
        number = await store.tenants.number("shop")
        assert number is not None
        await add_task(sql, name="mail", tenant=number)
        await add_task(sql, name="ours")
        await store.enqueue_grants.grant("shop", ROLE)


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[tuple[Store, Any]]:
    database = Database(url)
    await database.open()
    sql = await asyncpg.connect(url, server_settings={"search_path": "detent"})
    yield Store(database), sql
    await sql.close()
    await database.close()


@pytest.fixture
def owner(database_url: str) -> Iterator[psycopg.Connection]:
    """A connection that sees our tables, outside the transactions of the application."""
    with psycopg.connect(database_url, autocommit=True, options="-c search_path=detent") as connection:
        yield connection


@pytest.fixture(params=CALLERS)
def caller(request: pytest.FixtureRequest, application: str) -> Iterator[Caller]:
    made = CALLERS[request.param](application)
    yield made
    made.close()


def orders(owner: psycopg.Connection) -> list[int]:
    return [number for (number,) in owner.execute("SELECT number FROM public.orders ORDER BY number")]


def runs(owner: psycopg.Connection) -> dict[str, Any]:
    """The payloads of the runs that wait, by id."""
    rows = owner.execute("SELECT run_id(job, scheduled_at, serial), payload FROM backlog")
    return {str(run): payload for run, payload in rows}


def test_a_run_is_there_once_the_transaction_of_its_caller_commits(caller: Caller, owner: psycopg.Connection) -> None:
    with caller.transaction():
        caller.add_order(1)
        run = caller.enqueue("mail", {"order": 1})
        assert runs(owner) == {}
    assert runs(owner) == {str(run): {"order": 1}}
    assert orders(owner) == [1]


def test_a_run_of_a_transaction_that_is_rolled_back_is_not_there(caller: Caller, owner: psycopg.Connection) -> None:
    with pytest.raises(ZeroDivisionError), caller.transaction():
        caller.add_order(1)
        caller.enqueue("mail", {"order": 1})
        raise ZeroDivisionError
    assert (runs(owner), orders(owner)) == ({}, [])


def test_a_refused_enqueue_leaves_the_transaction_intact_up_to_its_savepoint(
    caller: Caller, owner: psycopg.Connection
) -> None:
    with caller.transaction():
        caller.add_order(1)
        with pytest.raises(caller.error, match="priority is 101: give a number from -100 to 100"), caller.savepoint():
            caller.add_order(2)
            caller.enqueue("mail", {"order": 2}, 101)
        run = caller.enqueue("mail", {"order": 1}, 100)
    assert runs(owner) == {str(run): {"order": 1}}
    assert orders(owner) == [1]


def test_many_runs_are_enqueued_in_their_order_all_or_none(caller: Caller, owner: psycopg.Connection) -> None:
    with caller.transaction():
        given = [{"payload": n, **({"priority": n} if n % 2 else {})} for n in range(20)]
        ids = caller.enqueue_many("mail", given)
    found = runs(owner)
    assert [found[str(run)] for run in ids] == list(range(20))
    with pytest.raises(caller.error, match=r"runs\[2\]: unique_key must have 1 to 200"), caller.transaction():
        caller.enqueue_many("mail", [{}, {}, {"unique_key": ""}, {}])
    assert len(runs(owner)) == 20


@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE"])
def test_runs_are_enqueued_at_any_isolation_level(caller: Caller, owner: psycopg.Connection, isolation: str) -> None:
    with caller.transaction(isolation):
        caller.add_order(1)
        run = caller.enqueue("mail", {"order": 1})
    assert runs(owner) == {str(run): {"order": 1}}


def test_node_postgres_enqueues_in_transactions_too(
    application: str, owner: psycopg.Connection, tmp_path: Path
) -> None:
    folder = folder_with_packages(tmp_path, SCRIPT, "node-postgres")
    parts = urlsplit(application)
    query = parse_qs(parts.query)
    address = [parts.path.strip("/"), str(parts.username), query["host"][0], query.get("port", ["5432"])[0]]
    command = [str(shutil.which("node")), str(folder / SCRIPT.name), *address]
    done = subprocess.run(command, cwd=folder, capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    answer = json.loads(done.stdout)
    assert answer["refused"] == "priority is 101: give a number from -100 to 100"
    found = runs(owner)
    assert [found[run]["order"] for run in answer["runs"]] == [1, 3, 4, 5]
    assert len(found) == 4
    assert orders(owner) == [1, 3]


# --- who may enqueue ---


def test_a_role_sees_no_table_and_enqueues_only_for_its_tenant(
    application: str, owner: psycopg.Connection, database_url: str
) -> None:
    caller = CALLERS["psycopg"](application)
    connection: Any = caller.connection  # type: ignore[attr-defined]
    try:
        for query, words in (
            ("SELECT * FROM detent.backlog", "permission denied for table backlog"),
            ("SELECT * FROM detent.jobs", "permission denied for table jobs"),
            ("SELECT detent.enqueue('ours')", f"the role {ROLE} may not enqueue for the tenant default"),
            ("SELECT detent.enqueue('ours', tenant => 'nobody')", "may not enqueue for the tenant nobody"),
            ("SELECT detent.enqueue('ours', tenant => 'shop')", "the tenant shop has no task or job named ours"),
            ("SET search_path = detent; SELECT enqueue_runs(1, '[{}]')", "permission denied for"),
            ("SELECT detent.grant_enqueue('shop_app')", "permission denied for function grant_enqueue"),
            ("INSERT INTO detent.enqueue_grants VALUES (1, 'shop_app')", "permission denied"),
        ):
            with pytest.raises(caller.error, match=words):
                connection.execute(query)
        connection.execute("SELECT detent.enqueue('mail', tenant => 'shop')")
        run_apart(revoked(database_url))
        with pytest.raises(caller.error, match="permission denied for function enqueue"):
            connection.execute("SELECT detent.enqueue('mail', tenant => 'shop')")
    finally:
        caller.close()
    assert len(runs(owner)) == 1


async def revoked(url: str) -> None:
    async with opened(url) as (store, _):
        assert await store.enqueue_grants.revoke("shop", ROLE)


def test_members_of_a_granted_role_may_enqueue_and_a_role_that_was_set_counts(
    application: str, postgres: Postgres
) -> None:
    roles = (
        "DO $$ BEGIN CREATE ROLE shop_worker LOGIN; CREATE ROLE shop_intern NOLOGIN;"
        " EXCEPTION WHEN duplicate_object THEN NULL; END $$"
    )
    run_apart(postgres.execute(roles, f"GRANT {ROLE}, shop_intern TO shop_worker"))
    caller = CALLERS["psycopg"](application.replace(ROLE, "shop_worker"))
    connection: Any = caller.connection  # type: ignore[attr-defined]
    try:
        connection.execute("SELECT detent.enqueue('mail', tenant => 'shop')")
        connection.execute("SET ROLE shop_intern")
        with pytest.raises(caller.error, match="permission denied"):
            connection.execute("SELECT detent.enqueue('mail', tenant => 'shop')")
    finally:
        caller.close()


async def test_a_role_that_does_not_exist_cannot_be_granted_anything(store: Store) -> None:
    with pytest.raises(UnknownDatabaseRole):
        await store.enqueue_grants.grant("default", 'no"body')
    assert await store.enqueue_grants.list(tenant=1) == []
    with pytest.raises(NotFound):
        await store.enqueue_grants.grant("nobody", ROLE)
    assert not await store.enqueue_grants.revoke("default", "nobody")


# --- what is refused ---

REFUSED = [
    ("enqueue('mail', at => now() + interval '367 days', tenant => 'shop')", "more than 366 days ahead"),
    ("enqueue('mail', at => now() - interval '2 days', tenant => 'shop')", "more than a day in the past"),
    ("enqueue('mail', delay => interval '-1 s', tenant => 'shop')", "below zero"),
    ("enqueue('mail', at => now(), delay => interval '1 s', tenant => 'shop')", "both given"),
    ("enqueue('mail', unique_key => repeat('k', 201), tenant => 'shop')", "unique_key must have 1 to 200 characters"),
    ("enqueue('mail', concurrency_key => '', tenant => 'shop')", "concurrency_key must have 1 to 200 characters"),
    ("enqueue('mail', unique_for => interval '1 h', tenant => 'shop')", "without unique_key"),
    ("enqueue('mail', to_jsonb(repeat('x', 2000000)), tenant => 'shop')", "payload has 2000002 bytes, and at most"),
    ("enqueue('mail', '{\"a\": {\"secret\": \"token\"}}', tenant => 'shop')", "payload refers to a secret"),
    ("enqueue('mail', '\"\\u0000\"', tenant => 'shop')", "unsupported Unicode escape sequence"),
    ("enqueue_many('mail', '{}', 'shop')", "runs must be an array of 1 to 10,000 documents"),
    ("enqueue_many('mail', '[]', 'shop')", "runs must be an array of 1 to 10,000 documents"),
    ("enqueue_many('mail', (SELECT jsonb_agg('{}'::jsonb) FROM generate_series(1, 10001)), 'shop')", "1 to 10,000"),
    ("enqueue_many('mail', '[{}, 3]', 'shop')", r"runs\[1\] must be a document"),
    ("enqueue_many('mail', '[{}, {\"prio\": 3}]', 'shop')", r"runs\[1\] must be a document with some of the fields"),
    ("enqueue_many('mail', '[{}, {\"priority\": \"high\"}]', 'shop')", r"runs\[1\]: invalid input syntax for type int"),
    ("enqueue_many('mail', '[{}, {\"at\": \"soon\"}]', 'shop')", r"runs\[1\]: invalid input syntax for type timestamp"),
    (
        "enqueue_many('mail', '[{}, {\"delay_seconds\": 1e300}]', 'shop')",
        r"runs\[1\]: (interval|timestamp) out of range",
    ),
]


@pytest.mark.parametrize(("call", "words"), REFUSED, ids=range(len(REFUSED)))
def test_what_cannot_be_enqueued_is_refused_with_a_sentence_and_nothing_is_written(
    application: str, owner: psycopg.Connection, call: str, words: str
) -> None:
    caller = CALLERS["psycopg"](application)
    connection: Any = caller.connection  # type: ignore[attr-defined]
    try:
        with caller.transaction():
            caller.add_order(1)
            with pytest.raises(caller.error, match=words), caller.savepoint():
                connection.execute(f"SELECT * FROM detent.{call}")
    finally:
        caller.close()
    assert (orders(owner), runs(owner)) == ([1], {})


async def with_old_node(url: str) -> None:
    async with opened(url) as (_, sql):
        await add_node(sql, 7)
        await sql.execute("UPDATE nodes SET knows = 20")


def test_nothing_is_enqueued_while_a_node_of_an_older_version_is_in_the_cluster(
    application: str, database_url: str
) -> None:
    run_apart(with_old_node(database_url))
    caller = CALLERS["psycopg"](application)
    try:
        with pytest.raises(caller.error, match="a node of an older version is in the cluster"), caller.transaction():
            caller.enqueue("mail", {})
    finally:
        caller.close()
