"""Where due cursors move: planned together where they agree, each as if it were alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from detent.domain.schedule import Schedule
from detent.scheduler.planning import FireMode, TickPlanner
from detent.store.cursors import Advance, Cursor

TICK = datetime(2026, 3, 1, 12, tzinfo=UTC)
SCHEDULES = {
    1: Schedule.parse("every 1h", anchor=TICK),
    2: Schedule.parse("0 * * * *", jitter_seconds=600),
    3: Schedule.parse("every 1s", anchor=TICK),
}
UNREADABLE = 4
cursors = st.lists(
    st.tuples(st.integers(1, 4), st.sampled_from([0, 3600]), st.booleans(), st.booleans()), max_size=30
).map(lambda rows: [cursor(job, *row) for job, row in enumerate(rows, 1)])


def cursor(job: int, schedule: int, later: int, bounded: bool, held_up: bool) -> Cursor:
    tick = TICK + timedelta(seconds=later)
    fire_at = tick + timedelta(seconds=5) if held_up else tick
    return Cursor(job, tick, fire_at, 1, bounded, 1, schedule, 1, -1, 7, 5, 1, False)


def planned(some: list[Cursor], now: datetime, catching_up: set[int]) -> tuple[dict[FireMode, list[Advance]], set[int]]:
    failed: set[int] = set()
    found = TickPlanner().plan_all(
        some, SCHEDULES, now, catching_up.__contains__ if catching_up else None, lambda each, _: failed.add(each.job)
    )
    return found, failed


@given(cursors, st.sampled_from([0, 0.5, 1.5, 3601, 7300]), st.sets(st.integers(1, 5)))
def test_cursors_that_are_planned_together_move_as_each_would_alone(
    some: list[Cursor], late: float, catching_up: set[int]
) -> None:
    now = TICK + timedelta(seconds=late)
    together, failed = planned(some, now, catching_up)
    assert list(together) == list(FireMode), "the order in which they are sent"
    for each in some:
        alone, failed_alone = planned([each], now, catching_up)
        assert (each.job in failed) == bool(failed_alone) == (each.schedule == UNREADABLE)
        for mode, advances in alone.items():
            assert [advance for advance in together[mode] if advance.cursor is each] == advances


def test_a_cursor_that_moves_keeps_everything_but_its_times() -> None:
    before = cursor(1, 1, 0, True, False)
    moved = Advance(before, TICK + timedelta(hours=1), TICK + timedelta(hours=2)).moved
    assert moved == before._replace(next_tick=TICK + timedelta(hours=1), fire_at=TICK + timedelta(hours=2))
