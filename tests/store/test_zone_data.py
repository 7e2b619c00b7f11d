"""Next ticks by a new release of the zone data, on a real PostgreSQL."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from detent.domain.schedule import Schedule, tzdata_version
from detent.jobs import JobOperations
from detent.jobs.zone_data import next_by_new_data
from detent.store import Store
from tests.store.moving import HOUR, NODE, database_time, fire, full_hour, job_of_old, run
from tests.support.factories import add_node

NEW = tzdata_version()


@pytest.fixture(autouse=True)
async def node(look: Any) -> None:
    await add_node(look, NODE)
    await look.execute("UPDATE cluster SET tzdata = NULL")


async def test_a_next_tick_that_the_new_data_moves_is_moved_and_others_stay(verbs: Store, look: Any) -> None:
    moved = await job_of_old(verbs, look, 3.5 * HOUR, name="moved", timezone="Europe/Berlin")
    await job_of_old(verbs, look, 3.5 * HOUR, name="same", timezone="Europe/Berlin")
    await job_of_old(verbs, look, 3.5 * HOUR, name="without zone")
    for _ in range(3):
        await run(verbs, look, moved)
    hour = await full_hour(look)
    await look.execute("UPDATE jobs SET tzdata = '2020a' WHERE tzdata IS NOT NULL")
    wrong = "UPDATE cursors c SET next_tick = $1, fire_at = $1 FROM jobs j WHERE j.job = c.job AND j.name = $2"
    await look.execute(wrong, hour + 1.5 * HOUR, "moved")
    await look.execute(wrong, hour + HOUR, "same")
    generation = await look.fetchval("SELECT generation FROM cursors JOIN jobs USING (job) WHERE name = 'same'")
    assert await JobOperations(verbs).zone_data.renew(NEW) == 1
    rows = await look.fetch("SELECT j.*, c.next_tick, c.generation FROM jobs j JOIN cursors c USING (job) ORDER BY job")
    assert [(row["next_tick"], row["tzdata"], row["opened"]) for row in rows] == [
        (hour + HOUR, NEW, "zone data"),
        (hour + HOUR, NEW, "zone data"),
        (rows[2]["next_tick"], None, None),
    ]
    assert rows[1]["generation"] == generation
    closed = await look.fetch("SELECT tzdata, closed FROM segments")
    assert [tuple(row) for row in closed] == [("2020a", "zone data")] * 2
    assert await JobOperations(verbs).zone_data.renew(NEW) == 0
    assert await look.fetchval("SELECT tzdata FROM cluster") == NEW


async def test_an_older_release_changes_nothing(verbs: Store, look: Any) -> None:
    await job_of_old(verbs, look, HOUR, timezone="Europe/Berlin")
    assert await JobOperations(verbs).zone_data.renew("1999z") == 0
    assert await look.fetchval("SELECT tzdata FROM jobs") == NEW


async def test_a_tick_that_is_due_stays_due_and_what_does_not_fit_the_old_data_is_set_apart(
    verbs: Store, look: Any
) -> None:
    job = await job_of_old(verbs, look, 3.5 * HOUR, timezone="Europe/Berlin")
    await look.execute("UPDATE jobs SET tzdata = '2020a'")
    ticks = await run(verbs, look, job, 2)
    await look.execute(
        "UPDATE run_history SET scheduled_at = scheduled_at + interval '1 minute' WHERE scheduled_at = $1", ticks[0]
    )
    assert await JobOperations(verbs).zone_data.renew(NEW) == 0
    assert await look.fetchval("SELECT next_tick FROM cursors") == ticks[1] + HOUR
    assert await fire(verbs, look, job) == ticks[1] + HOUR
    now = await database_time(look)
    ((_, _, account),), _ = await JobOperations(verbs).audit.audit((now - timedelta(days=1), now))
    assert (account.clean, account.other_zone_data) == (False, 2)


def test_a_local_time_that_has_fired_does_not_come_again_because_the_clock_is_said_to_show_it_later() -> None:
    daily = Schedule.parse("0 9 * * *", timezone="Europe/Berlin")
    last = datetime(2026, 1, 10, 7, tzinfo=UTC)  # by the old data that was 09:00
    former = last + timedelta(days=1)
    now = last + timedelta(minutes=5)
    assert next_by_new_data(daily, now, last, former) == datetime(2026, 1, 11, 8, tzinfo=UTC)
    assert next_by_new_data(daily, now, None, former) == datetime(2026, 1, 10, 8, tzinfo=UTC)


def test_a_local_time_that_is_now_said_to_come_earlier_comes_earlier() -> None:
    daily = Schedule.parse("0 9 * * *", timezone="Europe/Berlin")
    last = datetime(2026, 1, 10, 9, tzinfo=UTC)  # by the old data that was 09:00
    former = last + timedelta(days=1)
    assert next_by_new_data(daily, last, last, former) == datetime(2026, 1, 11, 8, tzinfo=UTC)


def test_a_schedule_in_real_time_repeats_nothing() -> None:
    hourly = Schedule.parse("0 * * * *", timezone="Asia/Kolkata")
    last = datetime(2026, 1, 10, 7, tzinfo=UTC)
    assert next_by_new_data(hourly, last, last, last + HOUR) == last + HOUR / 2
