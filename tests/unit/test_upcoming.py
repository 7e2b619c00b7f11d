"""What a node knows of the ticks ahead, after a fire: nothing newer is lost, nothing old stays."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from detent.domain.identity import milliseconds
from detent.runtime.clock import DatabaseClock, monotonic
from detent.runtime.wakeups import Wakeups
from detent.scheduler.upcoming import UpcomingTicks
from detent.store.cursors import Advance, Cursor

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
LATER = milliseconds(NOW + 2 * HOUR)


def cursor(at: datetime = NOW, generation: int = 1) -> Cursor:
    return Cursor(1, at, at, generation, False, 1, 1, 1, -1, 7, 5, 1, False)


@pytest.fixture
def ticks() -> UpcomingTicks:
    clock = DatabaseClock()
    clock.observe(NOW, monotonic(), 0.0)
    made = UpcomingTicks(clock, Wakeups(), timedelta(seconds=60))
    made.lead(frozenset({7}))
    return made


def due(ticks: UpcomingTicks) -> Cursor:
    ticks.admit([cursor()])
    (taken,) = ticks.take_due(milliseconds(NOW) + 1)
    return taken


@pytest.mark.parametrize("following", [None, NOW + HOUR])
def test_a_job_without_a_tick_in_the_window_is_not_kept(ticks: UpcomingTicks, following: datetime | None) -> None:
    ticks.fired([Advance(due(ticks), following, following)])
    assert ticks.next_due() is None
    assert ticks.take_due(LATER) == []


def test_the_next_tick_within_the_window_is_due_in_its_turn(ticks: UpcomingTicks) -> None:
    following = NOW + timedelta(seconds=30)
    ticks.fired([Advance(due(ticks), following, following)])
    assert ticks.take_due(milliseconds(following)) == [cursor(following)]


def test_what_was_read_during_the_fire_and_is_newer_stays(ticks: UpcomingTicks) -> None:
    fired = due(ticks)
    changed = cursor(NOW + timedelta(seconds=10), generation=2)
    ticks.admit([changed])
    ticks.fired([Advance(fired, NOW + HOUR, NOW + HOUR)])
    assert ticks.take_due(LATER) == [changed]


def test_a_tick_that_was_read_again_before_its_fire_is_not_due_twice(ticks: UpcomingTicks) -> None:
    fired = due(ticks)
    ticks.admit([cursor()])  # a sweep, while it waits for a statement
    ticks.fired([Advance(fired, NOW + HOUR, NOW + HOUR)])
    assert ticks.take_due(LATER) == []
