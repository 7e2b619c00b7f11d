"""Partitions of history: every row gets one, and a missing partition blocks no write."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from detent.domain.identity import decode_run_id
from detent.domain.run import Claim
from detent.domain.states import RunStatus
from detent.jobs import JobOperations
from detent.store import Database, Store
from detent.store.db import MissingHistoryPartition, Rejected, connect
from detent.store.limits import REQUEST_LIMITS
from tests.support.ends import ended_run, failed_run
from tests.support.factories import LONG_AGO, add_job, add_live_run, add_node, add_task
from tests.support.ticks import advance_of

NODE = 11
DAY = timedelta(days=1)
TOKEN = 1 << 22 | 1


@pytest.fixture
async def look(database_url: str) -> AsyncIterator[Any]:
    connection = await connect(database_url, "detent", REQUEST_LIMITS)
    await add_node(connection, NODE)
    yield connection
    await connection.close()


@pytest.fixture
async def verbs(database_url: str, look: Any) -> AsyncIterator[Store]:
    database = Database(database_url)
    await database.open()
    yield Store(database)
    await database.close()


async def today(look: Any) -> datetime:
    midnight: datetime = await look.fetchval("SELECT date_trunc('day', now(), 'UTC')")
    return midnight


async def bounds(look: Any, parent: str = "run_history") -> list[tuple[Any, Any]]:
    rows = await look.fetch(
        "SELECT CASE WHEN since = '-infinity' THEN NULL ELSE since END AS since, until FROM history_bounds"
        " WHERE parent = $1 ORDER BY until",
        parent,
    )
    return [tuple(row) for row in rows]


async def drop_day(look: Any, day: datetime) -> None:
    for parent in ("run_history", "attempts", "run_logs"):
        await look.execute(f"DROP TABLE {parent}_{day:%Y%m%d}")


def claim(job: int, at: datetime) -> Claim:
    return Claim(job, 0, at, 0, TOKEN, 1)


async def test_history_is_without_gaps_from_the_beginning_of_time_to_a_week_ahead(look: Any) -> None:
    for parent in ("run_history", "attempts", "run_logs"):
        found = await bounds(look, parent)
        assert found[0][0] is None
        assert found[-1][1] == await today(look) + 8 * DAY
        assert all(before[1] == after[0] for before, after in itertools.pairwise(found))
    assert await look.fetchval("SELECT count(*) FROM history_parts WHERE dropped_at IS NULL") == 3 * len(found)


async def test_a_run_settles_into_a_day_whose_partition_is_gone(look: Any, verbs: Store) -> None:
    tomorrow = await today(look) + DAY
    await drop_day(look, tomorrow)
    for job in (1, 2, 3):
        await add_live_run(look, job, tomorrow + job * timedelta(hours=1), owner=NODE)
    batch = [
        ended_run(claim(1, tomorrow + timedelta(hours=1)), LONG_AGO, LONG_AGO, 1),
        ended_run(claim(2, tomorrow + timedelta(hours=2)), LONG_AGO, LONG_AGO, 2, error="no"),
    ]
    assert await verbs.live_runs.settle(NODE, batch) == []
    retry = failed_run(claim(3, tomorrow + timedelta(hours=3)), LONG_AGO, LONG_AGO, "failed", "no", DAY)
    assert await verbs.live_runs.retry(NODE, [retry]) == []
    assert await look.fetchval("SELECT count(*) FROM run_history") == 2
    assert await look.fetchval("SELECT count(*) FROM attempts") == 2
    assert (tomorrow, tomorrow + DAY) in await bounds(look)


async def test_a_tick_that_is_skipped_on_a_day_without_a_partition_fires_on(look: Any, verbs: Store) -> None:
    now: datetime = await look.fetchval("SELECT date_trunc('milliseconds', now())")
    await drop_day(look, await today(look))
    job = await add_job(look, now)
    await add_live_run(look, job)
    (exception,) = await verbs.cursors.fire(NODE, 1, False, [advance_of(job, now, 1, now + DAY, None)])
    assert exception.why == "overlap"
    assert await look.fetchval("SELECT reason FROM run_history") == "overlap"


async def test_an_on_demand_run_that_is_due_next_year_is_cancelled_on_its_own_day(look: Any, verbs: Store) -> None:
    job = await add_task(look, name="mail")
    document = json.dumps([{"delay_seconds": 300 * DAY.total_seconds()}])
    run = await look.fetchrow("SELECT run, scheduled_at FROM enqueue_many('mail', $1)", document)
    key = decode_run_id(run["run"])
    assert key is not None and key.job == job
    assert await JobOperations(verbs).runs.cancel(key) == RunStatus.CANCELLED
    row = await look.fetchrow("SELECT scheduled_at, status, serial FROM run_history WHERE job = $1", job)
    assert tuple(row) == (run["scheduled_at"], 3, key.serial)
    assert await look.fetchval("SELECT count(*) FROM backlog") == 0


async def test_concurrent_writers_that_miss_a_partition_make_it_once(look: Any, verbs: Store) -> None:
    tomorrow = await today(look) + DAY
    await drop_day(look, tomorrow)
    for job in range(1, 9):
        await add_live_run(look, job, tomorrow, owner=NODE)
    settled = await asyncio.gather(
        *(verbs.live_runs.settle(NODE, [ended_run(claim(job, tomorrow), LONG_AGO, LONG_AGO, 1)]) for job in range(1, 9))
    )
    assert settled == [[]] * 8
    assert await look.fetchval("SELECT count(*) FROM run_history") == 8
    assert await look.fetchval("SELECT count(*) FROM history_bounds WHERE since = $1", tomorrow) == 3


async def retire_up_to(look: Any, day: datetime) -> None:
    """As retention leaves history: nothing before that day."""
    for name in await look.fetch("SELECT name FROM history_bounds WHERE until <= $1", day):
        await look.execute(f"DROP TABLE {name['name']}")


async def test_rows_older_than_all_of_history_share_one_partition(look: Any, verbs: Store) -> None:
    day = await today(look) + DAY
    await retire_up_to(look, day)
    ages = [day - n * 400 * DAY for n in (1, 5, 20)]
    for job, at in enumerate(ages, 1):
        await add_live_run(look, job, at, owner=NODE)
        assert await verbs.live_runs.settle(NODE, [ended_run(claim(job, at), at, at, 1)]) == []
    assert (await bounds(look))[:2] == [(None, day), (day, day + DAY)]
    assert await look.fetchval("SELECT count(*) FROM run_history") == 3


async def test_a_gap_behind_us_is_filled_as_a_whole_and_one_ahead_day_by_day(look: Any, verbs: Store) -> None:
    first = await today(look)
    await retire_up_to(look, first + 5 * DAY)
    await add_live_run(look, 1, LONG_AGO, owner=NODE)
    for job, at in ((1, LONG_AGO), (2, first + 2 * DAY), (3, first + 4 * DAY)):
        if job > 1:
            await add_live_run(look, job, at, owner=NODE)
        assert await verbs.live_runs.settle(NODE, [ended_run(claim(job, at), at, at, 1)]) == []
    assert (await bounds(look))[:2] == [(None, first + 5 * DAY), (first + 5 * DAY, first + 6 * DAY)]
    for number in (5, 6):
        await drop_day(look, first + number * DAY)
    for job, number in ((4, 6), (5, 5)):
        at = first + number * DAY
        await add_live_run(look, job, at, owner=NODE)
        assert await verbs.live_runs.settle(NODE, [ended_run(claim(job, at), at, at, 1)]) == []
    assert (first + 5 * DAY, first + 7 * DAY) in await bounds(look)


async def test_a_time_far_ahead_has_a_day_of_its_own_and_the_days_before_it_too(look: Any, verbs: Store) -> None:
    far = datetime(2999, 5, 5, 5, tzinfo=UTC)
    await add_live_run(look, 1, far, owner=NODE)
    assert await verbs.live_runs.settle(NODE, [ended_run(claim(1, far), far, far, 1)]) == []
    assert await verbs.upkeep.make_history_days(9) == 2
    found = await bounds(look)
    assert found[-1] == (datetime(2999, 5, 5, tzinfo=UTC), datetime(2999, 5, 6, tzinfo=UTC))
    assert found[-2] == (await today(look) + 9 * DAY, await today(look) + 10 * DAY)


async def test_a_name_that_is_still_in_use_by_a_detached_day_is_not_in_the_way(look: Any, verbs: Store) -> None:
    day = await today(look) + 3 * DAY
    await look.execute(f"ALTER TABLE run_history DETACH PARTITION run_history_{day:%Y%m%d}")
    await look.execute(f"INSERT INTO run_history_{day:%Y%m%d} SELECT * FROM run_history")
    await add_live_run(look, 1, day, owner=NODE)
    assert await verbs.live_runs.settle(NODE, [ended_run(claim(1, day), day, day, 1)]) == []
    assert await look.fetchval(f"SELECT count(*) FROM run_history_{day:%Y%m%d}_") == 1


async def test_a_row_that_is_wrong_for_another_reason_is_still_rejected(look: Any, verbs: Store) -> None:
    await add_live_run(look, 1, LONG_AGO, owner=NODE)
    with pytest.raises(Rejected) as caught:
        await verbs.live_runs.settle(NODE, [ended_run(claim(1, LONG_AGO), LONG_AGO, LONG_AGO, 9)])
    assert not isinstance(caught.value, MissingHistoryPartition)
