"""Intervals, one-offs, bounds, jitter, and the stored form that jobs share."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone

import pytest

from detent.domain.schedule import Schedule, ScheduleError

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
YEAR = timedelta(days=365)


@pytest.mark.parametrize(
    ("spec", "seconds"),
    [
        ("every 15m", 900),
        ("every 1h30m", 5400),
        ("every 90 seconds", 90),
        ("every 2 days", 172_800),
        ("every day", 86_400),
        ("every 1 hour and 5 minutes", 3900),
        ("Every 1W", 604_800),
        ("@every 1h", 3600),
        ("every 1.5h", 5400),
        ("every 1500ms", 1.5),
        ({"every": "PT15M"}, 900),
        ({"every": "P1DT12H"}, 129_600),
        ({"every": 60}, 60),
        ({"every": 1.5}, 1.5),
    ],
)
def test_an_interval_is_read_in_many_ways(spec: object, seconds: float) -> None:
    schedule = Schedule.parse(spec, anchor=NOON)  # type: ignore[arg-type]
    assert schedule.kind == "interval"
    assert schedule.next_after(NOON) == NOON + timedelta(seconds=seconds)


def test_an_interval_keeps_the_phase_of_its_anchor() -> None:
    schedule = Schedule.parse({"every": "1h", "anchor": "2020-01-01T00:07:30Z"})
    assert schedule.next_after(NOON) == NOON + timedelta(minutes=7, seconds=30)
    assert schedule.latest(NOON - YEAR, NOON) == NOON - timedelta(minutes=52, seconds=30)
    assert schedule.count_between(NOON - YEAR, NOON) == 365 * 24


def test_an_interval_runs_in_real_time_through_changes_of_the_clock() -> None:
    schedule = Schedule.parse("every 1d", timezone="America/New_York", anchor=datetime(2026, 3, 7, 12, tzinfo=UTC))
    ticks = schedule.between(datetime(2026, 3, 7, 12, tzinfo=UTC), datetime(2026, 3, 11, tzinfo=UTC), 9)
    assert {later - earlier for earlier, later in itertools.pairwise(ticks)} == {timedelta(days=1)}


def test_a_stored_interval_takes_the_tick_that_is_asked_about_as_its_anchor() -> None:
    schedule = Schedule.from_stored(Schedule.parse("every 10m", anchor=NOON).to_stored())
    assert schedule.anchor is None
    odd = NOON + timedelta(seconds=17)
    assert schedule.next_after(odd) == odd + 10 * MINUTE
    assert schedule.latest(odd, odd + 25 * MINUTE) == odd + 20 * MINUTE
    assert schedule.latest(odd, odd + 9 * MINUTE) == odd
    assert schedule.count_between(odd, odd + 30 * MINUTE) == 3
    assert schedule.between(odd, odd + 30 * MINUTE, 2) == [odd + 10 * MINUTE, odd + 20 * MINUTE]
    assert schedule.anchored(NOON).next_after(odd) == NOON + 10 * MINUTE


def test_a_stored_interval_with_a_start_keeps_its_phase_up_to_it() -> None:
    schedule = Schedule.from_stored(Schedule.parse("every 10m", starts_at=NOON + 25 * MINUTE).to_stored())
    assert schedule.next_after(NOON) == NOON + 30 * MINUTE


def test_every_second_of_a_year_is_counted_without_walking() -> None:
    for text in ("* * * * * *", "every 1s"):
        schedule = Schedule.parse(text, timezone="America/New_York", anchor=NOON)
        assert schedule.count_between(NOON - YEAR, NOON) == 365 * 86_400
        assert schedule.latest(NOON - YEAR, NOON) == NOON


def test_a_century_of_minutes_is_counted_without_walking() -> None:
    schedule = Schedule.parse("* * * * *", timezone="Europe/Berlin")
    start, end = datetime(2000, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
    assert schedule.count_between(start, end) == (end - start) // MINUTE


def test_a_one_off_ticks_once() -> None:
    schedule = Schedule.parse("2026-12-24T18:00:00+01:00")
    instant = datetime(2026, 12, 24, 17, tzinfo=UTC)
    assert schedule.kind == "once"
    assert schedule.at == instant
    assert schedule.next_after(NOON) == schedule.first_after(NOON) == instant
    assert schedule.next_after(instant) is None
    assert schedule.latest(NOON, instant) == instant
    assert schedule.count_between(NOON, instant) == 1


def test_a_one_off_in_the_past_has_an_instant_but_no_first_tick() -> None:
    schedule = Schedule.parse({"at": "2020-01-01T00:00:00.250Z"})
    assert schedule.first_after(NOON) is None
    assert schedule.at == datetime(2020, 1, 1, 0, 0, 0, 250_000, tzinfo=UTC)


def test_a_one_off_without_an_offset_is_a_wall_time_in_the_zone_of_the_job() -> None:
    def at(text: str, **options: str) -> datetime | None:
        return Schedule.parse(text, timezone="America/New_York", **options).at  # type: ignore[arg-type]

    assert at("2027-01-01T09:00:00") == datetime(2027, 1, 1, 14, tzinfo=UTC)
    assert at("2027-03-14T02:30:00") == datetime(2027, 3, 14, 7, tzinfo=UTC)
    assert at("2027-03-14T02:30:00", dst_gap="shift") == datetime(2027, 3, 14, 7, 30, tzinfo=UTC)
    assert at("2026-11-01T01:30:00") == datetime(2026, 11, 1, 5, 30, tzinfo=UTC)
    assert at("2026-11-01T01:30:00", dst_overlap="last") == datetime(2026, 11, 1, 6, 30, tzinfo=UTC)
    with pytest.raises(ScheduleError, match="does not exist in America/New_York"):
        at("2027-03-14T02:30:00", dst_gap="skip")


def test_a_stored_one_off_carries_no_instant_and_never_ticks() -> None:
    stored = Schedule.parse("2030-01-01T00:00:00Z").to_stored()
    assert stored == Schedule.parse("2031-01-01T00:00:00Z").to_stored()
    schedule = Schedule.from_stored(stored)
    assert schedule.next_after(NOON) is None
    assert schedule.anchored(NOON).at == NOON


@pytest.mark.parametrize("text", ["0 9 * * MON", "FREQ=WEEKLY;BYDAY=MO;BYHOUR=9", "every 1h"])
def test_bounds_take_in_both_their_ends(text: str) -> None:
    monday = datetime(2026, 11, 16, 9, tzinfo=UTC)
    last = monday + timedelta(days=7)
    schedule = Schedule.parse(text, anchor=monday, starts_at=monday, ends_at=last)
    assert schedule.next_after(NOON - YEAR) == monday
    assert schedule.next_after(last - timedelta(milliseconds=1)) == last
    assert schedule.next_after(last) is None
    assert schedule.latest(NOON - YEAR, NOON + YEAR) == last
    ticks = schedule.between(NOON - YEAR, NOON + YEAR, 1_000)
    assert (ticks[0], ticks[-1]) == (monday, last)
    assert schedule.count_between(NOON - YEAR, NOON + YEAR) == len(ticks)
    assert Schedule.from_stored(schedule.to_stored()).next_after(last) is None


def test_times_may_come_in_any_zone_and_go_out_in_utc() -> None:
    schedule = Schedule.parse("0 9 * * *", timezone="Asia/Tokyo")
    asked = datetime(2026, 11, 16, 8, 59, tzinfo=timezone(timedelta(hours=9)))
    tick = schedule.next_after(asked)
    assert tick == datetime(2026, 11, 16, 0, tzinfo=UTC)
    assert tick is not None
    assert tick.tzinfo is UTC


def test_a_naive_time_is_refused() -> None:
    for text in ("0 9 * * *", "every 1h"):
        with pytest.raises(ScheduleError, match="no zone"):
            Schedule.parse(text).next_after(datetime(2026, 1, 1))


def test_parts_of_a_second_are_not_lost() -> None:
    schedule = Schedule.parse("* * * * * *")
    assert schedule.next_after(NOON + timedelta(microseconds=1)) == NOON + timedelta(seconds=1)
    assert schedule.latest(NOON + timedelta(microseconds=1), NOON + timedelta(milliseconds=999)) is None
    assert schedule.count_between(NOON - timedelta(microseconds=1), NOON) == 1


def test_between_stops_at_its_limit() -> None:
    assert len(Schedule.parse("* * * * * *").between(NOON, NOON + YEAR, 7)) == 7


def test_equal_schedules_of_different_jobs_have_equal_stored_forms() -> None:
    first = Schedule.parse("@daily", timezone="Europe/Berlin", hash_key="a", anchor=NOON)
    second = Schedule.parse({"cron": "0 0 * * ?"}, timezone="Europe/Berlin", hash_key="b", anchor=NOON + YEAR)
    assert json.dumps(first.to_stored(), sort_keys=True) == json.dumps(second.to_stored(), sort_keys=True)
    assert first == second
    assert hash(first) == hash(second)
    five, also_five = Schedule.parse("every 5m", anchor=NOON), Schedule.parse({"every": 300}, anchor=NOON + YEAR)
    assert five.to_stored() == also_five.to_stored()
    assert five != also_five


def test_a_policy_that_changes_nothing_is_not_stored() -> None:
    plain = Schedule.parse("*/5 * * * *", timezone="Europe/Berlin")
    other = Schedule.parse("*/5 * * * *", timezone="Europe/Berlin", dst_gap="skip", dst_overlap="both")
    assert plain.to_stored() == other.to_stored()


def test_what_to_stored_gave_may_be_changed_without_harm() -> None:
    schedule = Schedule.parse("0 9 * * *")
    schedule.to_stored()["cron"] = "broken"
    assert schedule.to_stored()["cron"] == "0 9 * * *"


def test_jitter_is_the_same_for_the_same_job_and_tick_and_stays_inside() -> None:
    schedule = Schedule.parse("0 * * * *", jitter_seconds=300)
    again = Schedule.from_stored(schedule.to_stored())
    jitters = [schedule.jitter(job, NOON) for job in range(500)]
    assert jitters == [again.jitter(job, NOON) for job in range(500)]
    assert min(jitters) >= timedelta(0)
    assert max(jitters) <= timedelta(seconds=300)
    assert len(set(jitters)) > 450
    assert schedule.jitter(1, NOON) != schedule.jitter(1, NOON + 60 * MINUTE)
    assert schedule.jitter(7, NOON) == timedelta(milliseconds=206_319)


def test_jitter_never_reaches_the_next_tick() -> None:
    schedule = Schedule.parse("every 10s", anchor=NOON, jitter_seconds=3600)
    assert all(schedule.jitter(job, NOON) < timedelta(seconds=10) for job in range(500))


def test_without_jitter_there_is_none() -> None:
    assert Schedule.parse("0 * * * *").jitter(1, NOON) == timedelta(0)


def test_a_cached_answer_equals_the_computed_answer() -> None:
    schedule = Schedule.parse("30 1 * * *", timezone="America/New_York")
    for hour in range(200):
        asked = NOON + timedelta(hours=hour)
        first = schedule.next_after(asked)
        assert schedule.next_after(asked) == first
        assert Schedule.from_stored(schedule.to_stored()).next_after(asked) == first
        assert schedule.between(asked, asked + YEAR, 1) == [first]


def test_schedules_that_differ_only_in_a_bound_do_not_share_answers() -> None:
    free = Schedule.parse("0 9 * * *")
    ended = Schedule.parse("0 9 * * *", ends_at=NOON)
    assert free.next_after(NOON) is not None
    assert ended.next_after(NOON) is None


def test_importing_the_package_loads_neither_dateutil_nor_a_describer() -> None:
    code = (
        "import sys, detent.domain.schedule as s; s.Schedule.parse('0 9 * * MON', timezone='Europe/Berlin')\n"
        "print([name for name in ('dateutil', 'cron_descriptor', 'asyncio', 'difflib') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
