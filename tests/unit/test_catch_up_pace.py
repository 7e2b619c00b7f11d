"""How fast a partition runs its missed ticks."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from detent.domain.schedule import Schedule
from detent.domain.schedule.exclusions import EverythingExcluded
from detent.scheduler.catch_up_pace import BURST_SECONDS, SLOWEST, CatchUpPace, catch_up_rate, ticks_per_second

NOW = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)


def schedule(text: str) -> Schedule:
    return Schedule.from_stored(Schedule.parse(text).to_stored())


@pytest.mark.parametrize(
    ("text", "rate"),
    [("every 1s", 1), ("every 20s", 1 / 20), ("every 1h", 1 / 3600), ("* * * * *", 1 / 60), ("every 30d", 0)],
)
def test_a_schedule_is_as_busy_as_its_next_ticks(text: str, rate: float) -> None:
    assert ticks_per_second(schedule(text), NOW) == pytest.approx(rate, rel=0.05)


def test_a_quiet_partition_still_makes_up_for_ten_ticks_a_second() -> None:
    assert catch_up_rate({1: schedule("every 1h")}, {1: 40}, NOW) == SLOWEST
    assert catch_up_rate({}, {}, NOW) == SLOWEST


def test_a_busy_partition_makes_up_twice_as_fast_as_it_ticks() -> None:
    schedules = {1: schedule("every 1s"), 2: schedule("every 10s")}
    assert catch_up_rate(schedules, {1: 30, 2: 100, 3: 7}, NOW) == pytest.approx(2 * (30 + 10))


def test_a_schedule_whose_exclusions_are_too_many_does_not_stop_the_others() -> None:
    spec = {"cron": "*/7 * * * * *", "exclude": ["0-28 * * * 4-12 *", "29-59 * * * 4-12 *"]}
    excluded = Schedule.from_stored(Schedule.parse(spec, anchor=NOW).to_stored())
    in_may = datetime(2026, 5, 10, 12, 0, tzinfo=UTC)
    with pytest.raises(EverythingExcluded):
        excluded.next_after(in_may)
    assert catch_up_rate({1: excluded, 2: schedule("every 1s")}, {1: 5, 2: 30}, in_may) == pytest.approx(60)


def run_for(pace: CatchUpPace, start: float, seconds: float, step: float = 0.01) -> int:
    return sum(pace.take(start + number * step) for number in range(int(seconds / step)))


@pytest.mark.parametrize("rate", [0.5, 10, 100])
def test_so_many_go_in_a_second_and_not_more(rate: float) -> None:
    assert run_for(CatchUpPace(rate, 100.0), 100.0, 60) == pytest.approx(60 * rate, abs=1)


def test_a_pass_that_comes_late_lets_the_missing_go_together_but_saves_nothing_up() -> None:
    pace = CatchUpPace(100, 100.0)
    assert pace.take(100.0)
    taken = 0
    while pace.take(200.0):
        taken += 1
    assert taken == pytest.approx(100 * BURST_SECONDS, abs=2)


def test_what_could_not_go_is_given_back() -> None:
    pace = CatchUpPace(10, 100.0)
    assert pace.take(100.0)
    assert not pace.take(100.0)
    pace.give_back()
    assert pace.take(100.0)


def test_a_new_rate_goes_on_where_the_old_one_stood() -> None:
    old = CatchUpPace(1, 100.0)
    assert old.take(100.0)
    assert not CatchUpPace(1, 100.5, old).take(100.5)
