"""The bins of a timeline: never an empty one where a tick was due, never a gap where none was missed."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from detent.dashboard.drawings import MOST_TOGETHER, Axis, Mark, due_steps, lane
from detent.dashboard.views.timeline import STEPS, ZOOMS
from detent.domain.ledger import Segment
from detent.domain.registration import read_document
from detent.domain.schedule import Schedule
from detent.store.jobs import DEFAULT_TENANT
from detent.store.overview import Step
from tests.dashboard.pages import Pages

EPOCH = datetime(2026, 11, 16, tzinfo=UTC)
SECOND = timedelta(seconds=1)
JOB, RUN = UUID(int=1), UUID(int=2)

zooms = st.sampled_from(list(ZOOMS.values()))
moments = st.integers(0, 10 * 86_400).map(lambda seconds: EPOCH + seconds * SECOND)


def every(seconds: int) -> Schedule:
    return Schedule.parse(f"every {seconds}s", anchor=EPOCH)


def axis_at(now: datetime, length: timedelta) -> Axis:
    """As the view makes it."""
    step = length / STEPS
    since = now - length * 0.6
    since -= timedelta(seconds=since.timestamp() % step.total_seconds())
    return Axis(since, since + length, STEPS)


def recorded(ticks: list[datetime], axis: Axis) -> list[Step]:
    """What the store tells of ticks that succeeded."""
    counts = Counter(axis.step_of(tick) for tick in ticks)
    return [Step(JOB, step, "succeeded", count, RUN) for step, count in counts.items()]


def past_ticks(schedule: Schedule, axis: Axis, now: datetime) -> list[datetime]:
    return schedule.between(axis.since - timedelta(microseconds=1), now, 1_000_000)


def drawn(schedule: Schedule, kept: list[datetime], axis: Axis, now: datetime) -> list[Mark]:
    segment = Segment(EPOCH - timedelta(days=30), None, schedule)
    due = due_steps([segment], schedule.next_after(now), axis, now)
    return lane(recorded(kept, axis), due, axis)


def covers(mark: Mark, moment: datetime, axis: Axis) -> bool:
    return mark.left - 0.002 <= axis.place(moment) < mark.left + mark.width + 0.002


@given(seconds=st.integers(30, 90_000), length=zooms, now=moments)
def test_every_tick_that_ran_is_drawn_as_that_and_nothing_is_said_to_be_missing(
    seconds: int, length: timedelta, now: datetime
) -> None:
    axis, schedule = axis_at(now, length), every(seconds)
    ticks = past_ticks(schedule, axis, now)
    marks = drawn(schedule, ticks, axis, now)
    assert {mark.status for mark in marks} <= {"succeeded", "planned"}
    for tick in ticks[:: max(1, len(ticks) // 50)]:
        assert any(mark.status == "succeeded" for mark in marks if covers(mark, tick, axis)), tick


@given(seconds=st.integers(1, 20_000), length=zooms, now=moments)
def test_ticks_that_come_every_few_steps_are_a_band_without_gaps(
    seconds: int, length: timedelta, now: datetime
) -> None:
    axis = axis_at(now, length)
    assume(10 * SECOND <= timedelta(seconds=seconds) <= MOST_TOGETHER * axis.step)
    schedule = every(seconds)
    marks = drawn(schedule, past_ticks(schedule, axis, now), axis, now)
    assert len(marks) > 1
    for earlier, later in pairwise(marks):
        assert later.left == pytest.approx(earlier.left + earlier.width, abs=0.01)


@given(seconds=st.integers(30, 90_000), length=zooms, now=moments, which=st.integers(0, 10_000))
def test_a_tick_of_which_nothing_is_on_record_is_told_from_one_that_was_not_due(
    seconds: int, length: timedelta, now: datetime, which: int
) -> None:
    axis, schedule = axis_at(now, length), every(seconds)
    ticks = past_ticks(schedule, axis, now)
    assume(ticks)
    lost = axis.step_of(ticks[which % len(ticks)])
    marks = drawn(schedule, [tick for tick in ticks if axis.step_of(tick) != lost], axis, now)
    (gap,) = [mark for mark in marks if mark.status == "unaccounted"]
    assert covers(gap, axis.start_of(lost), axis)
    for mark in marks:
        if mark.status != "unaccounted":
            assert schedule.count_between(mark.at - timedelta(microseconds=1), mark.at + axis.step * MOST_TOGETHER)


def test_a_range_that_was_missed_is_drawn_over_all_its_ticks() -> None:
    now = EPOCH + timedelta(hours=12)
    axis, schedule = axis_at(now, ZOOMS["6h"]), every(600)
    ticks = past_ticks(schedule, axis, now)
    segment = Segment(EPOCH - timedelta(days=1), None, schedule)
    due = due_steps([segment], schedule.next_after(now), axis, now)
    missed = Step(JOB, -1, "missed", 5, RUN, until=ticks[4])
    marks = lane([missed, *recorded(ticks[5:], axis)], due, axis)
    assert [mark.status for mark in marks if mark.at <= now] == ["missed"] * 5 + ["succeeded"] * (len(ticks) - 5)


def test_what_is_due_and_not_fired_waits_and_what_falls_into_a_pause_is_paused() -> None:
    now = EPOCH + timedelta(hours=12)
    axis, schedule = axis_at(now, ZOOMS["6h"]), every(1800)
    segment = Segment(EPOCH - timedelta(days=1), None, schedule)
    first = schedule.next_after(axis.since)
    due = due_steps([segment], first, axis, now)
    assert {mark.status for mark in lane([], due, axis)} == {"pending", "planned"}
    due = due_steps([segment._replace(paused=True)], None, axis, now)
    assert {mark.status for mark in lane([], due, axis)} == {"paused"}


def test_what_was_not_read_is_not_said_to_be_missing() -> None:
    now = EPOCH + timedelta(hours=12)
    axis, schedule = axis_at(now, ZOOMS["6h"]), every(600)
    segment = Segment(EPOCH - timedelta(days=1), None, schedule)
    due = due_steps([segment], schedule.next_after(now), axis, now)
    marks = lane([], due, axis, read_since=now + SECOND)
    assert {mark.status for mark in marks} == {"unread", "planned"}


async def test_the_page_shows_a_tick_without_a_record_and_none_for_a_job_in_order(pages: Pages, sql: Any) -> None:
    target = {"type": "http", "url": "http://127.0.0.1:9/"}
    specs = [read_document({"name": name, "schedule": "*/10 * * * *", "target": target}) for name in ("good", "gap")]
    await pages.store.jobs.add(specs, tenant=DEFAULT_TENANT)
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
    assert "due, and nothing is on record of it" in shown
