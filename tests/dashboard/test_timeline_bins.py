"""The timeline's marks: every due tick has one, and no gap appears where no tick was missed."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from detent.dashboard.charts import MAX_STEPS_PER_MARK, Axis, ChartMark, due_steps, lane
from detent.dashboard.views.timeline import STEPS, ZOOMS
from detent.domain.ledger import LedgerSegment
from detent.domain.registration import read_document
from detent.domain.schedule import Schedule
from detent.jobs import JobOperations
from detent.store.jobs import DEFAULT_TENANT
from detent.store.overview import TimelineStep
from tests.dashboard.pages import Pages

EPOCH = datetime(2026, 11, 16, tzinfo=UTC)
SECOND = timedelta(seconds=1)
JOB, RUN = UUID(int=1), UUID(int=2)

zooms = st.sampled_from(list(ZOOMS.values()))
moments = st.integers(0, 10 * 86_400).map(lambda seconds: EPOCH + seconds * SECOND)


def every(seconds: int) -> Schedule:
    return Schedule.parse(f"every {seconds}s", anchor=EPOCH)


def axis_at(now: datetime, length: timedelta) -> Axis:
    """The axis as the page makes it."""
    step = length / STEPS
    since = now - length * 0.6
    since -= timedelta(seconds=since.timestamp() % step.total_seconds())
    return Axis(since, since + length, STEPS)


def recorded(ticks: list[datetime], axis: Axis) -> list[TimelineStep]:
    """The store's rows for succeeded ticks."""
    counts = Counter(axis.step_of(tick) for tick in ticks)
    return [TimelineStep(JOB, step, "succeeded", count, RUN) for step, count in counts.items()]


def past_ticks(schedule: Schedule, axis: Axis, now: datetime) -> list[datetime]:
    return schedule.between(axis.since - timedelta(microseconds=1), now, 1_000_000)


def drawn(schedule: Schedule, kept: list[datetime], axis: Axis, now: datetime) -> list[ChartMark]:
    segment = LedgerSegment(EPOCH - timedelta(days=30), None, schedule)
    due = due_steps([segment], schedule.next_after(now), axis, now)
    return lane(recorded(kept, axis), due, axis)


def covers(mark: ChartMark, moment: datetime, axis: Axis) -> bool:
    return mark.left - 0.002 <= axis.place(moment) < mark.left + mark.width + 0.002


@given(seconds=st.integers(30, 90_000), length=zooms, now=moments)
def test_every_tick_that_ran_is_drawn_and_none_is_unaccounted(seconds: int, length: timedelta, now: datetime) -> None:
    axis, schedule = axis_at(now, length), every(seconds)
    ticks = past_ticks(schedule, axis, now)
    marks = drawn(schedule, ticks, axis, now)
    assert {mark.status for mark in marks} <= {"succeeded", "scheduled"}
    for tick in ticks[:: max(1, len(ticks) // 50)]:
        assert any(mark.status == "succeeded" for mark in marks if covers(mark, tick, axis)), tick


@given(seconds=st.integers(1, 20_000), length=zooms, now=moments)
def test_regular_ticks_make_a_band_without_gaps(seconds: int, length: timedelta, now: datetime) -> None:
    axis = axis_at(now, length)
    assume(10 * SECOND <= timedelta(seconds=seconds) <= MAX_STEPS_PER_MARK * axis.step)
    schedule = every(seconds)
    marks = drawn(schedule, past_ticks(schedule, axis, now), axis, now)
    assert len(marks) > 1
    for earlier, later in pairwise(marks):
        assert later.left == pytest.approx(earlier.left + earlier.width, abs=0.01)


@given(seconds=st.integers(30, 90_000), length=zooms, now=moments, which=st.integers(0, 10_000))
def test_a_tick_without_a_record_is_unaccounted(seconds: int, length: timedelta, now: datetime, which: int) -> None:
    axis, schedule = axis_at(now, length), every(seconds)
    ticks = past_ticks(schedule, axis, now)
    assume(ticks)
    lost = axis.step_of(ticks[which % len(ticks)])
    marks = drawn(schedule, [tick for tick in ticks if axis.step_of(tick) != lost], axis, now)
    (gap,) = [mark for mark in marks if mark.status == "unaccounted"]
    assert covers(gap, axis.start_of(lost), axis)
    for mark in marks:
        if mark.status != "unaccounted":
            assert schedule.count_between(mark.at - timedelta(microseconds=1), mark.at + axis.step * MAX_STEPS_PER_MARK)


def test_a_missed_range_is_drawn_over_all_its_ticks() -> None:
    now = EPOCH + timedelta(hours=12)
    axis, schedule = axis_at(now, ZOOMS["6h"]), every(600)
    ticks = past_ticks(schedule, axis, now)
    segment = LedgerSegment(EPOCH - timedelta(days=1), None, schedule)
    due = due_steps([segment], schedule.next_after(now), axis, now)
    missed = TimelineStep(JOB, -1, "missed", 5, RUN, until=ticks[4])
    marks = lane([missed, *recorded(ticks[5:], axis)], due, axis)
    assert [mark.status for mark in marks if mark.at <= now] == ["missed"] * 5 + ["succeeded"] * (len(ticks) - 5)


def test_a_due_tick_is_pending_until_fired_and_paused_during_a_pause() -> None:
    now = EPOCH + timedelta(hours=12)
    axis, schedule = axis_at(now, ZOOMS["6h"]), every(1800)
    segment = LedgerSegment(EPOCH - timedelta(days=1), None, schedule)
    first = schedule.next_after(axis.since)
    due = due_steps([segment], first, axis, now)
    assert {mark.status for mark in lane([], due, axis)} == {"pending", "scheduled"}
    due = due_steps([segment._replace(paused=True)], None, axis, now)
    assert {mark.status for mark in lane([], due, axis)} == {"paused"}


def test_a_tick_that_was_not_read_is_not_unaccounted() -> None:
    now = EPOCH + timedelta(hours=12)
    axis, schedule = axis_at(now, ZOOMS["6h"]), every(600)
    segment = LedgerSegment(EPOCH - timedelta(days=1), None, schedule)
    due = due_steps([segment], schedule.next_after(now), axis, now)
    marks = lane([], due, axis, read_since=now + SECOND)
    assert {mark.status for mark in marks} == {"unread", "scheduled"}


async def test_the_page_shows_an_unaccounted_tick_only_for_its_job(pages: Pages, sql: Any) -> None:
    target = {"type": "http", "url": "http://127.0.0.1:9/"}
    specs = [read_document({"name": name, "schedule": "*/10 * * * *", "target": target}) for name in ("good", "gap")]
    await JobOperations(pages.store).registration.add(specs, tenant=DEFAULT_TENANT)
    await sql.execute("UPDATE jobs SET since = date_trunc('hour', now()) - interval '3 h' - interval '1 s'")
    for name, number in await sql.fetch("SELECT name, job FROM jobs"):
        await sql.execute(
            "INSERT INTO run_history (job, scheduled_at, token, node, started_at, finished_at, serial, revision,"
            " attempt, status) SELECT $1, t, 1, 1, t, t, 0, 1, 1, 1"
            " FROM generate_series(date_trunc('hour', now()) - interval '3 h', now(), interval '10 min') t"
            " WHERE $2::text = 'good' OR t <> date_trunc('hour', now()) - interval '1 h'",
            number,
            name,
        )
    shown = (await pages.get("/timeline?zoom=6h")).text
    assert shown.count('class="tick s-unaccounted"') == 1
    assert "due, but no record of it exists" in shown
