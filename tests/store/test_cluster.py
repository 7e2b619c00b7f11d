"""What people see of a cluster stays cheap when there is much: only the ends of the tables are read."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg
import pytest

from detent.store import sql
from detent.store.statement import STATEMENTS
from tests.support.factories import add_node

RUNS = 200_000
CURSORS = 50_000
# Two hundred a second up to now; of the last minute, 12,000.
FILL_HISTORY = """
INSERT INTO run_history (job, scheduled_at, token, node, started_at, finished_at, serial, revision, attempt, status)
SELECT n, at, 1, 1, at, at, 0, 1, 1, 1
  FROM generate_series(1, $1::bigint) AS n, LATERAL (SELECT now() - ($1::bigint - n) * interval '5 ms' AS at) AS t
"""
FILL_CURSORS = """
INSERT INTO cursors (job, next_tick, fire_at, queue, schedule, partition)
SELECT n, at, at, 1, 1, n % 256
  FROM generate_series(1, $1::bigint) AS n,
       LATERAL (SELECT now() + interval '1 hour' + n * interval '1 second' AS at) AS t
"""
FILL_RUNS = """
INSERT INTO live_runs (job, scheduled_at, token, not_before, queue, revision, lane, priority)
SELECT n, now(), 1, now() - interval '1 second', 1 + n % 3, 1, 0, n % 10 FROM generate_series(1, $1::bigint) AS n
"""


@pytest.fixture
async def connection(database_url: str) -> AsyncIterator[Any]:
    """With the settings of the product that choose its plans."""
    settings = {
        "search_path": "detent",
        "plan_cache_mode": "force_custom_plan",
        "random_page_cost": "1.1",
        "jit": "off",
    }
    connected = await asyncpg.connect(database_url, server_settings=settings)
    yield connected
    await connected.close()


def parts(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from parts(child)


async def explained(connection: Any, name: str) -> list[dict[str, Any]]:
    text = await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON, TIMING OFF) {STATEMENTS[name].text}")
    return list(parts(json.loads(text)[0]["Plan"]))


def read(plan: list[dict[str, Any]], table: str) -> float:
    return sum(
        (part["Actual Rows"] + part.get("Rows Removed by Index Recheck", 0) + part.get("Rows Removed by Filter", 0))
        * part["Actual Loops"]
        for part in plan
        if part.get("Relation Name", "").startswith(table) and "Bitmap Index" not in part["Node Type"]
    )


async def test_throughput_is_counted_from_the_newest_blocks_alone(connection: Any) -> None:
    await connection.execute(FILL_HISTORY, RUNS)
    await connection.execute("VACUUM (ANALYZE) run_history")
    plan = await explained(connection, "cluster/measure_throughput")
    assert any("finished_at" in part.get("Index Name", "") for part in plan)
    assert read(plan, "run_history") < 20_000
    row = await connection.fetchrow(sql.cluster.MEASURE_THROUGHPUT.text)
    assert 11_000 < row["last_60s"] <= 12_000


async def test_the_oldest_work_is_found_at_the_ends_of_the_indexes(connection: Any) -> None:
    await connection.execute(FILL_CURSORS, CURSORS)
    await connection.execute(FILL_RUNS, CURSORS)
    await connection.execute("VACUUM (ANALYZE) cursors, live_runs")
    plan = await explained(connection, "cluster/measure_load")
    assert read(plan, "cursors") <= 256
    assert read(plan, "live_runs") <= 100
    (row,) = await connection.fetch(sql.cluster.MEASURE_LOAD.text)
    assert row["oldest_due"] is None and row["oldest_ready"].total_seconds() >= 1


async def test_a_node_that_is_drained_twice_was_drained_when_it_was_first_asked(connection: Any) -> None:
    await add_node(connection, 7)
    await connection.fetch(sql.node.DRAIN.text, 7, True)
    first = await connection.fetchval("SELECT draining_changed_at FROM nodes")
    await connection.fetch(sql.node.DRAIN.text, 7, True)
    assert await connection.fetchval("SELECT draining_changed_at FROM nodes") == first
