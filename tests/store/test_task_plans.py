"""Plans of the statements of on-demand runs at 100,000 that wait, in the four situations of test_plans.

Beside a vacuum that saw the tables large: one that saw them empty, one that saw a single row in a large file, and one
that saw nothing that was due, where all of it is now. Nothing may read the backlog, or live_runs, from end to end.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from detent.domain.identity import ON_DEMAND
from detent.store.statement import STATEMENTS
from tests.store.test_plans import connect, connect_by_key, explain, max_compared, nodes_of, rows_read, sequential
from tests.support.factories import LONG_AGO, add_job, add_node, add_task
from tests.support.postgres import run_apart

if TYPE_CHECKING:
    from tests.support.postgres import Postgres

RUNS = 100_000
BATCH = 1000
NODE = 11
TOKEN = 1 << 22 | 1
HOUR = timedelta(hours=1)
TABLES = ("backlog", "live_runs", "unique_keys", "key_places", "key_rates")
READ = {"backlog", "live_runs", "run_history", "attempts", "unique_keys", "key_places", "jobs", "cursors"}
MAIL, SYNC, REPORT, GONE = 1, 2, 3, 4
FIRST_LANE = ON_DEMAND + 2 * RUNS

# Of the task 1: ready runs, of which one in ten is delayed. Of 2: runs with 5,000 concurrency keys, of which half are
# parked. As many runs are claimed, half of them with a place of a key. Jobs from 1000 on have ticks.
FILL = f"""
INSERT INTO backlog (job, scheduled_at, not_before, token, serial, queue, revision, priority, keyed, parked, key)
SELECT 1 + n % 2, at, CASE WHEN n % 20 < 2 THEN now() + interval '1 day' ELSE at END, {TOKEN}, {ON_DEMAND} + n, 1, 1, 5,
       n % 2 = 1, n % 4 = 3, CASE WHEN n % 2 = 1 THEN 'c' || n % 10000 END
  FROM generate_series(0, {RUNS} - 1) AS n, (SELECT timestamptz '{LONG_AGO}' AS at) t
UNION ALL
SELECT 3 + n % 2, at, at, {TOKEN}, {ON_DEMAND + RUNS} + n, 2, 1, 5, false, false, NULL
  FROM generate_series(0, 999) AS n, (SELECT timestamptz '{LONG_AGO}' AS at) t
ON CONFLICT DO NOTHING;
INSERT INTO live_runs (job, scheduled_at, token, owner, not_before, serial, queue, revision, lane, priority, key)
SELECT 1 + n % 2, at, {TOKEN}, {NODE}, at, lane, 1, 1, lane, 5, CASE WHEN n % 2 = 1 THEN 'c' || n % 10000 END
  FROM generate_series(0, {RUNS} / 2 - 1) AS n,
       LATERAL (SELECT {FIRST_LANE} + n AS lane, timestamptz '{LONG_AGO}' AS at) t
UNION ALL
SELECT 1000 + n, at, {TOKEN}, CASE WHEN n % 2 = 0 THEN {NODE} END, at, 0, 3, 1, 0, n % 10, NULL
  FROM generate_series(0, {RUNS} / 2 - 1) AS n, (SELECT timestamptz '{LONG_AGO}' AS at) t
ON CONFLICT DO NOTHING;
INSERT INTO key_places (scope, key, place, job, lane, scheduled_at)
SELECT 2, 'c' || n % 10000, n / 10000, 2, {FIRST_LANE} + n, timestamptz '{LONG_AGO}'
  FROM generate_series(1, {RUNS} / 2 - 1, 2) AS n ON CONFLICT DO NOTHING;
INSERT INTO unique_keys (job, key, scheduled_at, serial)
SELECT 1, 'u' || n, timestamptz '{LONG_AGO}', {ON_DEMAND} + 2 * n FROM generate_series(0, {RUNS} - 1) AS n
ON CONFLICT DO NOTHING;
"""


def all_of(value: object, count: int = BATCH) -> list[object]:
    return [value] * count


def arguments_of(name: str) -> tuple[object, ...]:
    """What the product sends: a batch of a thousand, of one task."""
    lanes = [FIRST_LANE + 2 * n for n in range(BATCH)]
    at, jobs = all_of(LONG_AGO), all_of(MAIL)
    held = (jobs, lanes, at, lanes, all_of(TOKEN))
    keys = [f"c{2 * n + 1}" for n in range(200)]
    waiting = [ON_DEMAND + 20 * n + 4 for n in range(BATCH)]
    claim = ([MAIL], [1], [5], BATCH, False, 2000, BATCH)
    keyed = ([SYNC], [1], [5], BATCH, False, 2000, BATCH)
    sent: dict[str, tuple[object, ...]] = {
        "task/claim": (NODE, 1, *claim),
        "task/claim, a release": (None, 0, *claim),
        "task/claim_keyed": (NODE, 1, *keyed),
        "task/claim_keyed, a release": (None, 0, *keyed),
        "task/claim_parked": (NODE, 1, all_of(SYNC, 200), keys, [1], BATCH),
        "task/list_heads": ([1, 2, 3], None),
        "task/list_heads, of a job": ([1, 2, 3], [MAIL]),
        "task/settle_retry": (NODE, *held, at, at, all_of("failed"), all_of("no"), all_of(HOUR), all_of(None)),
        "task/put_off": (NODE, *held, all_of(HOUR)),
        "task/unpark": (all_of(SYNC, 200), keys),
        "task/list_parked_keys": (0, "", 500),
        "task/list_deleted_jobs": (),
        "task/cancel": (jobs, at, waiting),
        "task/cancel_of_jobs": ([GONE], "job deleted", BATCH),
        "task/find": (MAIL, LONG_AGO, ON_DEMAND + 4),
        "task/release_laned": ([REPORT], [2], [False], [5], False),
        "task/purge_unique_keys": (0, "", BATCH),
        "task/purge_key_places": (-(1 << 60), "", 0, BATCH),
        "task/purge_key_rates": (-(1 << 60), "", BATCH),
        "run/start of tasks": (NODE, *held, all_of(False)),
        "task/settle_succeeded": (NODE, jobs, [LONG_AGO], [TOKEN], all_of(0.0), all_of(0.0), lanes, lanes),
        "task/settle": (
            NODE, jobs, at, all_of(TOKEN), at, at, lanes, lanes, all_of(2),
            all_of("lost"), all_of(None), all_of("failed"), all_of("no"), all_of(None),
        ),
        "run/cancel, of tasks": (jobs, at, lanes),
    }  # fmt: skip
    return sent[name]


# Each with what it may read of the two tables. Those that find rows by a job alone read its live runs.
STATEMENTS_TRIED = {
    "task/claim": 3, "task/claim, a release": 5, "task/claim_keyed": 8, "task/claim_keyed, a release": 10,
    "task/claim_parked": 8, "task/list_heads": 1, "task/list_heads, of a job": 1, "task/settle_retry": 5,
    "task/put_off": 5, "task/unpark": 8, "task/list_parked_keys": 1, "task/list_deleted_jobs": 1, "task/cancel": 3,
    "task/cancel_of_jobs": 4, "task/find": 1, "task/release_laned": 2, "task/purge_unique_keys": 4,
    "task/purge_key_places": 4, "task/purge_key_rates": 1,
    "run/start of tasks": 3, "task/settle_succeeded": 3, "task/settle": 3,
    "run/cancel, of tasks": 60,
}  # fmt: skip


async def prepare(url: str) -> Any:
    connection = await connect(url)
    await add_node(connection, NODE)
    numbers = [await add_task(connection, name="mail"), await add_task(connection, name="sync", key_limit=5)]
    numbers += [await add_job(connection, None, name="report", lanes=100), await add_task(connection, name="gone")]
    assert numbers == [MAIL, SYNC, REPORT, GONE]
    await connection.execute("UPDATE jobs SET status = 'deleted' WHERE job = $1", GONE)
    for table in TABLES:
        await connection.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = false)")
    return connection


async def vacuum(connection: Any) -> None:
    for table in TABLES:
        await connection.execute(f"VACUUM (ANALYZE) {table}")


async def prepare_large(url: str) -> None:
    connection = await prepare(url)
    await connection.execute(FILL)
    await vacuum(connection)
    await connection.close()


async def prepare_empty(url: str) -> None:
    """The last vacuum found nothing: the state after an idle night. Then all of it comes."""
    connection = await prepare(url)
    await connection.execute(FILL)
    for table in TABLES:
        await connection.execute(f"DELETE FROM {table}")
    await vacuum(connection)
    assert await connection.fetchval("SELECT relpages FROM pg_class WHERE oid = 'backlog'::regclass") == 0
    await connection.execute(FILL)
    await connection.close()


async def prepare_one_row(url: str) -> None:
    """The last vacuum found one row at the end of a large file, which it could not shorten."""
    connection = await prepare(url)
    await connection.execute(FILL)
    for table in TABLES[:-1]:
        await connection.execute(f"DELETE FROM {table} WHERE ctid <> (SELECT max(ctid) FROM {table})")
    await vacuum(connection)
    pages, rows = await connection.fetchrow("SELECT relpages, reltuples FROM pg_class WHERE oid = 'backlog'::regclass")
    assert pages > BATCH and rows <= 1
    await connection.execute(FILL)
    await connection.close()


async def prepare_herd(url: str) -> None:
    """When the planner last looked, nothing was due; now everything is."""
    connection = await prepare(url)
    await connection.execute(FILL)
    await connection.execute("UPDATE backlog SET not_before = now() + interval '1 day'")
    await connection.execute("UPDATE live_runs SET not_before = now() + interval '1 day'")
    await vacuum(connection)
    await connection.execute("UPDATE backlog SET not_before = scheduled_at")
    await connection.execute("UPDATE live_runs SET not_before = scheduled_at")
    await connection.close()


SITUATIONS = {"large": prepare_large, "empty": prepare_empty, "one row": prepare_one_row, "herd": prepare_herd}


@pytest.fixture(scope="module", params=SITUATIONS)
def url(request: pytest.FixtureRequest, postgres: Postgres) -> Iterator[str]:
    with postgres.database_apart() as address:
        run_apart(SITUATIONS[request.param](address))
        yield address


@pytest.fixture
async def connection(url: str) -> AsyncIterator[Any]:
    opened = await connect(url)
    yield opened
    await opened.close()


@pytest.fixture
async def settling(url: str) -> AsyncIterator[Any]:
    opened = await connect_by_key(url)
    yield opened
    await opened.close()


async def plan_of(connection: Any, name: str) -> list[dict[str, Any]]:
    text = STATEMENTS[name.partition(",")[0]].text
    transaction = connection.transaction()
    await transaction.start()
    try:
        explained = await explain(connection, text, arguments_of(name))
    finally:
        await transaction.rollback()
    return list(nodes_of(json.loads(explained)[0]["Plan"]))


# Where statistics say that one run is live, PostgreSQL 15 reads all live runs once for a batch of these, through the
# primary key. There are as many as the workers hold, and the next analyze ends it.
SETTLED = {"task/settle_succeeded", "task/settle"}
READ_ALL_ONCE = {"task/settle_retry", "task/put_off", "run/start of tasks", *SETTLED}


@pytest.mark.parametrize("name", STATEMENTS_TRIED)
async def test_a_statement_of_on_demand_runs_probes_indexes(connection: Any, settling: Any, name: str) -> None:
    nodes = await plan_of(settling if name in SETTLED else connection, name)
    assert not sequential(nodes) & READ
    probes = connection.get_server_version().major >= 18 or name not in READ_ALL_ONCE
    for table in ("backlog", "live_runs", "key_places", "unique_keys"):
        tried = STATEMENTS_TRIED[name] * BATCH
        assert rows_read(nodes, table) <= (tried if probes or table != "live_runs" else tried + RUNS // 2), table
    assert max_compared(nodes) <= 50 * BATCH


ENQUEUES = {
    "one": "SELECT * FROM enqueue('mail', '{}')",
    "one with a key that is taken": "SELECT * FROM enqueue('mail', unique_key => 'u7')",
    "one with a new key": "SELECT * FROM enqueue('mail', unique_key => 'new')",
    "many": "SELECT * FROM enqueue_many('mail', (SELECT jsonb_agg('{}'::jsonb) FROM generate_series(1, 1000)))",
    "many with keys": "SELECT * FROM enqueue_many('mail', (SELECT jsonb_agg(jsonb_build_object('unique_key', 'u' || n))"
    " FROM generate_series(99500, 100500) AS n))",
}


async def caller(url: str, settings: str) -> Any:
    """A session of a node, or of an application with the settings of its driver."""
    schema = {"search_path": "detent"}
    return await (connect(url) if settings == "node" else asyncpg.connect(url, server_settings=schema))


async def scanned_by(connection: Any, call: str) -> set[str]:
    """The tables that an enqueue reads from end to end; its effects are undone."""
    transaction = connection.transaction()
    await transaction.start()
    try:
        await connection.fetch(ENQUEUES[call])
        rows = await connection.fetch("SELECT relname FROM pg_stat_xact_user_tables WHERE seq_scan > 0")
    finally:
        await transaction.rollback()
    return {row["relname"] for row in rows} & READ


@pytest.mark.parametrize("settings", ["node", "application"])
@pytest.mark.parametrize("call", ENQUEUES)
async def test_an_enqueue_probes_indexes(url: str, call: str, settings: str) -> None:
    connection = await caller(url, settings)
    try:
        assert not await scanned_by(connection, call)
    finally:
        await connection.close()


@pytest.mark.parametrize("settings", ["node", "application"])
async def test_a_session_that_first_enqueued_while_nothing_waited_probes_indexes_later(
    database_url: str, settings: str
) -> None:
    """What a function has planned stays planned, until a vacuum sees that the tables have grown."""
    filling = await prepare(database_url)
    await vacuum(filling)
    connection = await caller(database_url, settings)
    try:
        for call in ENQUEUES:
            await scanned_by(connection, call)
        await filling.execute(FILL)
        assert {call: scanned for call in ENQUEUES if (scanned := await scanned_by(connection, call))} == {}
    finally:
        await connection.close()
        await filling.close()
