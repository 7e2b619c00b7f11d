"""Plans of the hot statements at 100,000 jobs, also after an idle night in which a vacuum saw the queue empty, and
when all are due that were far from it when the planner last looked.

A plan is looked at as the product would get it: on a connection with the product's settings, with arrays of the size it
sends, and by what it really read. A generic plan made while `live_runs` was empty is a sequential scan for good, which
cost 95 % of the throughput when it was measured; hence the settings, and hence these tests.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from detent.store import sql
from detent.store.connection_settings import session_settings
from detent.store.limits import DEFAULT_TTL, REQUEST_LIMITS, PoolName, pool_limits
from detent.store.statement import STATEMENTS
from tests.support.factories import LONG_AGO, add_node
from tests.support.postgres import run_apart

if TYPE_CHECKING:
    from tests.support.postgres import Postgres

JOBS = 100_000
BATCH = 1000
NODE = 11
HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)
TOKEN = 1 << 22 | 1

EXPLAIN = "EXPLAIN (ANALYZE, FORMAT JSON, TIMING OFF)"
# SKIP, QUEUE, REPLACE and ALLOW.
FILL_CURSORS = """
INSERT INTO cursors (job, next_tick, fire_at, queue, schedule, partition, lanes)
SELECT n, at, at, 1, 1, n % 256, (ARRAY[1, -1, -2, 5])[1 + n % 4]
  FROM generate_series(1, $1::bigint) AS n, LATERAL (SELECT $2::timestamptz + n * interval '1 second' AS at) AS t
"""
# Half of the runs wait on three queues with ten priorities, the others are held. One more job has a thousand lanes.
FILL_RUNS = """
INSERT INTO live_runs (job, scheduled_at, token, owner, not_before, serial, queue, revision, lane, priority)
SELECT least(n, $1 + 1), $2, $3, CASE WHEN n > $1 / 2 THEN $4::bigint END, $2, lane, 1 + n % 3, 1, lane, n % 10
  FROM generate_series(1, $1::bigint + 1000) AS n, LATERAL (SELECT greatest(n - $1 - 1, 0) AS lane) AS t
"""
FILL_EXPECTATIONS = """
INSERT INTO expectations (job, kind, partition, within, notify_after, judged, check_at)
SELECT n, 'finish', n % 256, interval '1 minute', 1000, $2::timestamptz,
       CASE WHEN n > $1 / 2 THEN 'infinity' ELSE $2 END
  FROM generate_series(1, $1::bigint) AS n
"""
JOBS_TO_FIRE = list(range(20_000, 20_000 + BATCH))
JOBS_HELD = list(range(70_000, 70_000 + BATCH))

# Each statement with the indexes it goes through.
EXPECTED = {
    "cursor/read_window": {"cursors_due"},
    "cursor/read": {"cursors_pkey"},
    "run/claim": {"live_ready", "live_runs_pkey"},
    "run/claim, evenly": {"live_ready", "live_runs_pkey"},
    "run/claim_offered": {"live_runs_pkey"},
    "run/claim_shares": {"live_ready", "live_runs_pkey"},
    "run/list_ready": {"live_ready"},
    "queue/list_ready": {"live_ready"},
    "queue/read_depths": {"live_ready"},
    "run/start": {"live_runs_pkey"},
    "run/settle_retry": {"live_runs_pkey"},
    "run/give_back": {"live_runs_pkey"},
    "run/put_off": {"live_runs_pkey"},
    "run/cancel": {"live_runs_pkey"},
    "cluster/read_signals": {"cursors_due", "live_ready", "cursors_pkey"},
    "incident/evaluate_expectations": {"expectations_due", "live_runs_pkey", "cursors_pkey"},
}
# These are sent on connections that keep their plans (store/limits.py).
BY_KEY = {
    "cursor/fire": {"cursors_pkey"},
    "cursor/fire, mixed": {"cursors_pkey"},
    "cursor/fire_careful": {"cursors_pkey"},
    "cursor/miss": {"cursors_pkey"},
    "cursor/look_at_delays": {"cursors_pkey", "live_runs_pkey"},
    "run/settle": {"live_runs_pkey"},
    "run/settle, mixed": {"live_runs_pkey"},
    "run/settle_lanes": {"live_runs_pkey"},
    "run/settle_lanes, one job": {"live_runs_pkey"},
}
# The others of them lock their rows before they change them.
IN_ORDER = {"cursor/fire", "cursor/fire, mixed", "run/settle", "run/settle, mixed"}
# What is tried again needs a column of the batch, so a plan may compare the batch with itself; but nothing else.
COMPARED = {"run/settle_retry", "run/put_off"}


def all_of(value: object) -> list[object]:
    return [value] * BATCH


def arguments_of(name: str) -> tuple[object, ...]:
    """What the product sends: a batch of a thousand."""
    ticks = [LONG_AGO + job * SECOND for job in JOBS_TO_FIRE]
    later = [tick + HOUR for tick in ticks]
    at, zero = all_of(LONG_AGO), all_of(0)
    held = (JOBS_HELD, zero, at, zero, all_of(TOKEN))
    sent: dict[str, tuple[object, ...]] = {
        "cursor/fire": (NODE, 1, NODE, JOBS_TO_FIRE, None, ticks, 1, None, None, later, None),
        "cursor/fire, mixed": (NODE, 1, NODE, JOBS_TO_FIRE, None, ticks, None, all_of(1), None, later, later),
        "cursor/fire_careful": (NODE, 1, NODE, JOBS_TO_FIRE, ticks, all_of(1), later, None, True),
        "cursor/miss": (
            NODE, JOBS_TO_FIRE, ticks, all_of(1), later, later, ticks,
            JOBS_TO_FIRE, ticks, ticks, all_of(1), all_of("merged"), JOBS_TO_FIRE, ticks, ticks, all_of(1), False,
        ),
        "cursor/look_at_delays": (
            NODE, JOBS_TO_FIRE, ticks, all_of(1), all_of(HOUR), all_of(HOUR), all_of(None),
        ),
        "cursor/read_window": (list(range(256)), [LONG_AGO] * 256, LONG_AGO + 5 * BATCH * SECOND, 400),
        "cursor/read": (JOBS_TO_FIRE,),
        "run/claim": (NODE, 1, [1, 2], BATCH, False),
        "run/claim_offered": (NODE, 1, JOBS_TO_FIRE, zero, at, zero, all_of(TOKEN)),
        "run/list_ready": (HOUR, 200, 2 * BATCH),
        "run/claim_shares": (
            NODE, 1, [1, 2], [BATCH // 2] * 2,
            *zip(*((queue, queue, priority) for queue in (1, 2) for priority in range(10)), strict=True),
            False,
        ),
        "queue/list_ready": ([1, 2],),
        "queue/read_depths": (BATCH, 100),
        "run/start": (NODE, *held, [False] * len(held[0])),
        "run/give_back": (NODE, *held),
        "run/put_off": (NODE, *held, all_of(HOUR)),
        "run/settle": (
            NODE, JOBS_HELD, 0, None, LONG_AGO, None, 0, None, TOKEN, None, 1, None, None, None, "succeeded", None,
            None, None, all_of(0.0), all_of(0.0), None, None,
        ),
        "run/settle, mixed": (
            NODE, JOBS_HELD, None, zero, None, at, None, zero, None, all_of(TOKEN), None, all_of(2), None,
            all_of("no"), None, all_of("failed"), None, all_of("no"), all_of(0.0), all_of(0.0), all_of("{}"),
            all_of("no"),
        ),
        "run/settle_lanes": settled_by_lane(JOBS_HELD, zero),
        "run/settle_lanes, one job": settled_by_lane(all_of(JOBS + 1), list(range(BATCH))),
        "run/settle_retry": (NODE, *held, at, at, all_of("failed"), all_of("no"), all_of(HOUR), all_of(None)),
        "run/cancel": (JOBS_HELD, at, zero),
        "cluster/read_signals": (BATCH, 10),
        "incident/evaluate_expectations": (NODE, list(range(256)), BATCH // 2, SECOND),
    }  # fmt: skip
    sent["run/claim, evenly"] = (*sent["run/claim"][:-1], True)
    return sent[name]


def settled_by_lane(jobs: list[Any], lanes: list[Any]) -> tuple[object, ...]:
    at, no, failed = all_of(LONG_AGO), all_of("no"), all_of("failed")
    return (NODE, jobs, at, all_of(TOKEN), at, at, lanes, lanes, all_of(2), no, all_of("{}"), failed, no, no)


async def connect(url: str) -> Any:
    settings = session_settings("detent", REQUEST_LIMITS)
    return await asyncpg.connect(url, server_settings=settings)


async def connect_by_key(url: str) -> Any:
    settings = session_settings("detent", pool_limits(DEFAULT_TTL)[PoolName.SETTLE])
    return await asyncpg.connect(url, server_settings=settings)


async def fill(url: str) -> None:
    connection = await connect(url)
    await add_node(connection, NODE)
    await connection.execute(FILL_CURSORS, JOBS, LONG_AGO)
    await connection.execute("VACUUM (ANALYZE) cursors")
    await connection.execute(FILL_EXPECTATIONS, JOBS, LONG_AGO)
    await connection.execute(FILL_RUNS, JOBS, LONG_AGO, TOKEN, NODE)
    await connection.close()


async def fill_before_a_herd(url: str) -> None:
    """When the planner last looked, nothing was due before tomorrow; now everything is."""
    connection = await connect(url)
    await connection.execute("ALTER TABLE cursors SET (autovacuum_enabled = false)")
    await connection.execute(FILL_CURSORS, JOBS, await connection.fetchval("SELECT now() + interval '1 day'"))
    await connection.execute("VACUUM (ANALYZE) cursors")
    await connection.execute(
        "UPDATE cursors SET next_tick = at, fire_at = at FROM (SELECT job AS number, $1::timestamptz"
        " + job * interval '1 second' AS at FROM cursors) AS t WHERE job = number",
        LONG_AGO,
    )
    await add_node(connection, NODE)
    await connection.execute(FILL_EXPECTATIONS, JOBS, LONG_AGO)
    await connection.execute(FILL_RUNS, JOBS, LONG_AGO, TOKEN, NODE)
    await connection.close()


async def fill_without_statistics(url: str) -> None:
    """Right after a registration of many jobs: the planner has looked at none of them."""
    connection = await connect(url)
    for table in ("cursors", "live_runs", "expectations"):
        await connection.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = false)")
    await add_node(connection, NODE)
    # A sequential scan of these costs about as much as a thousand probes.
    await connection.execute(FILL_CURSORS, JOBS_TO_FIRE[-1], LONG_AGO)
    await connection.execute(FILL_EXPECTATIONS, JOBS, LONG_AGO)
    await connection.execute(FILL_RUNS, JOBS, LONG_AGO, TOKEN, NODE)
    await connection.close()


async def empty_the_queue(connection: Any) -> None:
    """The state after an idle night: the last vacuum found the queue empty."""
    await connection.execute("DELETE FROM live_runs")
    await connection.execute("VACUUM (ANALYZE) live_runs")
    pages = await connection.fetchrow("SELECT relpages, reltuples FROM pg_class WHERE oid = 'live_runs'::regclass")
    assert tuple(pages) == (0, 0)


async def leave_the_last_run(connection: Any) -> None:
    """The last a vacuum saw of the queue was one run at the end of a large file, which it then could not shorten."""
    await connection.execute("DELETE FROM live_runs WHERE ctid <> (SELECT max(ctid) FROM live_runs)")
    await connection.execute("VACUUM (ANALYZE) live_runs")
    pages, rows = await connection.fetchrow(
        "SELECT relpages, reltuples FROM pg_class WHERE oid = 'live_runs'::regclass"
    )
    assert pages > BATCH
    assert rows <= 1


async def refill_the_queue(connection: Any) -> None:
    await connection.execute("SET statement_timeout = '60s'")  # that of settles is too short on a busy machine
    await connection.execute(FILL_RUNS + " ON CONFLICT DO NOTHING", JOBS, LONG_AGO, TOKEN, NODE)


@pytest.fixture(scope="module")
def url(postgres: Postgres) -> Iterator[str]:
    with postgres.database_apart() as address:
        run_apart(fill(address))
        yield address


@pytest.fixture(scope="module")
def url_after_an_idle_night(postgres: Postgres) -> Iterator[str]:
    with postgres.database_apart() as address:
        run_apart(fill(address))
        yield address


@pytest.fixture(scope="module")
def url_with_one_run(postgres: Postgres) -> Iterator[str]:
    with postgres.database_apart() as address:
        run_apart(fill(address))
        run_apart(leave_only_one(address))
        yield address


async def leave_only_one(url: str) -> None:
    connection = await connect(url)
    await connection.execute("ALTER TABLE live_runs SET (autovacuum_enabled = false)")
    await leave_the_last_run(connection)
    await refill_the_queue(connection)
    await connection.close()


@pytest.fixture(scope="module")
def url_with_a_herd(postgres: Postgres) -> Iterator[str]:
    with postgres.database_apart() as address:
        run_apart(fill_before_a_herd(address))
        yield address


@pytest.fixture(scope="module")
def url_without_statistics(postgres: Postgres) -> Iterator[str]:
    with postgres.database_apart() as address:
        run_apart(fill_without_statistics(address))
        yield address


@pytest.fixture
async def without_statistics(url_without_statistics: str) -> AsyncIterator[Any]:
    connection = await connect(url_without_statistics)
    yield connection
    await connection.close()


@pytest.fixture
async def full(url: str) -> AsyncIterator[Any]:
    connection = await connect(url)
    yield connection
    await connection.close()


@pytest.fixture
async def after_one_run(url_with_one_run: str) -> AsyncIterator[Any]:
    connection = await connect(url_with_one_run)
    yield connection
    await connection.close()


@pytest.fixture
async def with_a_herd(url_with_a_herd: str) -> AsyncIterator[Any]:
    connection = await connect(url_with_a_herd)
    yield connection
    await connection.close()


@pytest.fixture
async def after_an_idle_night(url_after_an_idle_night: str) -> AsyncIterator[Any]:
    connection = await connect(url_after_an_idle_night)
    await empty_the_queue(connection)
    yield connection
    await connection.close()


async def plan_of(connection: Any, name: str) -> list[dict[str, Any]]:
    """Every node of the plan by which the statement was just executed; its effects are undone."""
    transaction = connection.transaction()
    await transaction.start()
    try:
        explained = await explain(connection, STATEMENTS[name.partition(",")[0]].text, arguments_of(name))
    finally:
        await transaction.rollback()
    return list(nodes_of(json.loads(explained)[0]["Plan"]))


async def explain(connection: Any, text: str, arguments: Sequence[object]) -> str:
    """By a plan for these arguments; on a connection that keeps plans, by the one that was made when it first saw this
    statement."""
    explained: str
    if await connection.fetchval("SHOW plan_cache_mode") == "force_custom_plan":
        explained = await connection.fetchval(f"{EXPLAIN} {text}", *arguments)
        return explained
    if not await connection.fetchval("SELECT count(*) FROM pg_prepared_statements WHERE name = 'kept'"):
        await connection.execute(f"PREPARE kept AS {text}")
    types = await connection.fetchval("SELECT parameter_types::text[] FROM pg_prepared_statements WHERE name = 'kept'")
    literals = [
        await connection.fetchval(f"SELECT quote_nullable($1::{of}::text)", value)
        for of, value in zip(types, arguments, strict=True)
    ]
    explained = await connection.fetchval(f"{EXPLAIN} EXECUTE kept ({', '.join(literals)})")
    return explained


def nodes_of(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from nodes_of(child)


def sequential(nodes: list[dict[str, Any]]) -> set[str]:
    """The tables that were read from end to end."""
    return {node["Relation Name"] for node in nodes if node["Node Type"] == "Seq Scan" and node["Actual Loops"]}


def rows_read(nodes: list[dict[str, Any]], table: str) -> float:
    return sum(
        (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
        for node in nodes
        if node.get("Relation Name") == table and "Scan" in node["Node Type"]
    )


def max_compared(nodes: list[dict[str, Any]]) -> float:
    """Rows that went through the busiest step: a batch compared with itself would be a thousand times a thousand."""
    removed = ("Rows Removed by Filter", "Rows Removed by Join Filter")
    return max(
        (node["Actual Rows"] + sum(node.get(why, 0) for why in removed)) * node["Actual Loops"] for node in nodes
    )


def judge(name: str, nodes: list[dict[str, Any]]) -> None:
    assert not sequential(nodes) & {"cursors", "live_runs", "run_history", "attempts"}, name
    indexes = {node["Index Name"] for node in nodes if node.get("Index Name") and node["Actual Loops"]}
    assert (EXPECTED | BY_KEY)[name] <= indexes, name
    # A fire probes the lanes of its jobs, a claim finds its runs and then updates them: twice a batch, and not more.
    for table in ("cursors", "live_runs"):
        assert rows_read(nodes, table) <= 6 * BATCH, (name, table)
    assert max_compared(nodes) <= (BATCH * BATCH if name in COMPARED else 50 * BATCH), name


@pytest.mark.parametrize("name", EXPECTED)
async def test_a_hot_statement_probes_indexes_at_a_hundred_thousand_jobs(full: Any, name: str) -> None:
    judge(name, await plan_of(full, name))


@pytest.mark.parametrize("name", EXPECTED)
async def test_a_hot_statement_probes_indexes_after_a_vacuum_saw_its_table_empty(
    after_an_idle_night: Any, name: str
) -> None:
    """First while the queue is still empty, when only the cursors matter, then with the morning's load."""
    connection = after_an_idle_night
    for _ in range(6):  # after five a server that is free to choose may keep a generic plan
        assert "cursors" not in sequential(await plan_of(connection, name))
    transaction = connection.transaction()
    await transaction.start()
    await refill_the_queue(connection)
    judge(name, await plan_of(connection, name))
    await transaction.rollback()


@pytest.mark.parametrize("name", EXPECTED)
async def test_a_hot_statement_probes_indexes_after_a_vacuum_saw_one_run_in_a_large_file(
    after_one_run: Any, name: str
) -> None:
    judge(name, await plan_of(after_one_run, name))


@pytest.mark.parametrize("name", EXPECTED)
async def test_a_hot_statement_probes_indexes_when_all_are_due_that_were_not_when_the_planner_last_looked(
    with_a_herd: Any, name: str
) -> None:
    judge(name, await plan_of(with_a_herd, name))


@pytest.mark.parametrize("name", EXPECTED)
async def test_a_hot_statement_probes_indexes_before_the_planner_has_looked(without_statistics: Any, name: str) -> None:
    """Without statistics, every condition on a column halves or decimates an estimate."""
    judge(name, await plan_of(without_statistics, name))


def judge_order(nodes: list[dict[str, Any]]) -> None:
    """Rows of the queue are locked as they are found: in the order of their keys, as by everyone else."""
    changed = {"Delete": ("live_runs", "live_runs_pkey"), "Update": ("cursors", "cursors_pkey")}
    for table, index in (changed[node["Operation"]] for node in nodes if node.get("Operation") in changed):
        (scan,) = [node for node in nodes if node.get("Relation Name") == table and "Scan" in node["Node Type"]]
        assert (scan["Node Type"], scan["Index Name"]) == ("Index Scan", index)
        assert scan["Scan Direction"] == "Forward"


@pytest.mark.parametrize("name", BY_KEY)
@pytest.mark.parametrize("situation", ["url", "url_with_one_run", "url_with_a_herd", "url_without_statistics"])
async def test_a_kept_plan_probes_the_key_in_its_order(
    situation: str, name: str, request: pytest.FixtureRequest
) -> None:
    connection = await connect_by_key(request.getfixturevalue(situation))
    try:
        for _ in range(2):
            nodes = await plan_of(connection, name)
            judge(name, nodes)
            if name in IN_ORDER:
                judge_order(nodes)
    finally:
        await connection.close()


@pytest.mark.parametrize("name", BY_KEY)
async def test_a_plan_that_was_kept_when_the_queue_was_empty_probes_the_key_in_its_order(
    url_after_an_idle_night: str, name: str
) -> None:
    connection = await connect_by_key(url_after_an_idle_night)
    try:
        await empty_the_queue(connection)
        await plan_of(connection, name)
        transaction = connection.transaction()
        await transaction.start()
        await refill_the_queue(connection)
        nodes = await plan_of(connection, name)
        await transaction.rollback()
    finally:
        await connection.close()
    judge(name, nodes)
    if name in IN_ORDER:
        judge_order(nodes)


async def test_the_room_under_a_limit_is_counted_from_the_runs_that_are_under_it(full: Any) -> None:
    transaction = full.transaction()
    await transaction.start()
    try:
        number = await full.fetchval(
            "INSERT INTO limits (tenant, queue, max_concurrent) VALUES (1, 'default', 90) RETURNING number"
        )
        await full.execute("UPDATE live_runs SET limited = true WHERE job = ANY ($1) AND queue = 1", JOBS_HELD[:150])
        text = f"EXPLAIN (ANALYZE, FORMAT JSON, TIMING OFF) {sql.limit.MEASURE_CAPACITY.text}"
        nodes = list(nodes_of(json.loads(await full.fetchval(text, [number]))[0]["Plan"]))
    finally:
        await transaction.rollback()
    assert "live_runs" not in sequential(nodes)
    assert 0 < rows_read(nodes, "live_runs") <= 150


async def test_without_the_settings_a_plan_of_an_idle_night_would_stay(after_an_idle_night: Any) -> None:
    """What `plan_cache_mode` is for. When this fails, PostgreSQL has changed and the settings can be thought over."""
    connection = after_an_idle_night
    await connection.execute("SET plan_cache_mode = force_generic_plan")
    await connection.execute(f"PREPARE claiming (bigint, bigint, integer[], bigint, boolean) AS {sql.run.CLAIM.text}")
    execute = f"EXECUTE claiming ({NODE}, 1, '{{1,2}}', {BATCH}, false)"
    await connection.execute(execute)
    transaction = connection.transaction()
    await transaction.start()
    await refill_the_queue(connection)
    explained = await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON, TIMING OFF) {execute}")
    await transaction.rollback()
    assert "live_runs" in sequential(list(nodes_of(json.loads(explained)[0]["Plan"])))
