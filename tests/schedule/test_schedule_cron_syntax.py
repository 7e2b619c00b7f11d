"""Every form of cron expression, and the days it means."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from detent.domain.schedule import Schedule

START = datetime(2026, 1, 1, tzinfo=UTC) - timedelta(seconds=1)


def ticks(text: str, count: int, after: datetime = START, **options: str) -> list[str]:
    schedule = Schedule.parse(text, hash_key="job", **options)  # type: ignore[arg-type]
    found = schedule.between(after, after + timedelta(days=80 * 365), count)
    return [tick.strftime("%Y-%m-%d %H:%M:%S").removesuffix(":00") for tick in found]


def days(text: str, count: int, **options: Any) -> list[str]:
    return [tick[:10] for tick in ticks(text, count, **options)]


def test_five_fields_are_minute_hour_day_month_weekday() -> None:
    assert ticks("30 9 5 3 *", 2) == ["2026-03-05 09:30", "2027-03-05 09:30"]


def test_six_fields_have_seconds_first() -> None:
    assert ticks("15 30 9 * * *", 1) == ["2026-01-01 09:30:15"]


def test_seven_fields_have_the_year_last() -> None:
    assert ticks("0 0 0 1 1 * 2030-2032", 9) == ["2030-01-01 00:00", "2031-01-01 00:00", "2032-01-01 00:00"]


def test_names_of_months_and_weekdays_are_read_in_any_case() -> None:
    assert ticks("0 0 1 jan *", 1) == ticks("0 0 1 1 *", 1)
    assert ticks("0 0 * * Mon-wed", 4) == ticks("0 0 * * 1-3", 4)


def test_sunday_is_0_and_7() -> None:
    assert days("0 0 * * 0", 3) == days("0 0 * * 7", 3) == days("0 0 * * SUN", 3) == days("0 0 * * 0,7", 3)
    assert days("0 0 * * 5-7", 3) == ["2026-01-02", "2026-01-03", "2026-01-04"]


def test_lists_ranges_and_steps_are_added_up() -> None:
    assert ticks("0,30 8-9,20 * * *", 6)[-1] == "2026-01-01 20:30"
    assert [tick[-5:] for tick in ticks("5/15 0 * * *", 4)] == ["00:05", "00:20", "00:35", "00:50"]
    assert [tick[-5:] for tick in ticks("10-30/10 0 * * *", 3)] == ["00:10", "00:20", "00:30"]


def test_ranges_run_around_the_corner() -> None:
    assert [tick[-5:] for tick in ticks("0 22-2 * * *", 5)] == ["00:00", "01:00", "02:00", "22:00", "23:00"]
    assert days("0 0 * * FRI-MON", 5) == ["2026-01-02", "2026-01-03", "2026-01-04", "2026-01-05", "2026-01-09"]
    assert days("0 0 1 NOV-FEB *", 4) == ["2026-01-01", "2026-02-01", "2026-11-01", "2026-12-01"]
    assert [tick[-5:] for tick in ticks("0 22-4/2 * * *", 4)] == ["00:00", "02:00", "04:00", "22:00"]


def test_a_range_of_one_value_is_that_value() -> None:
    assert [tick[-5:] for tick in ticks("48-48 0 * * *", 2)] == ["00:48", "00:48"]
    assert [tick[-5:] for tick in ticks("48-48/1 0 * * *", 2)] == ["00:48", "00:48"]


def test_l_is_the_last_day_of_the_month() -> None:
    assert days("0 0 L * *", 3) == ["2026-01-31", "2026-02-28", "2026-03-31"]
    assert days("0 0 L 2 *", 3) == ["2026-02-28", "2027-02-28", "2028-02-29"]


def test_l_minus_counts_back_from_the_last_day() -> None:
    assert days("0 0 L-3 * *", 2) == ["2026-01-28", "2026-02-25"]
    assert days("0 0 L-30 * *", 2) == ["2026-01-01", "2026-03-01"]


def test_w_is_the_nearest_weekday_in_the_same_month() -> None:
    # 2026: 15 February is a Sunday, 15 August a Saturday, 1 February a Sunday, 1 August a Saturday, 31 May a Sunday
    assert days("0 0 15W 2,8 *", 2) == ["2026-02-16", "2026-08-14"]
    assert days("0 0 1W 2,8 *", 2) == ["2026-02-02", "2026-08-03"]
    assert days("0 0 31W 5 *", 1) == ["2026-05-29"]


def test_a_w_day_that_a_month_does_not_have_is_left_out() -> None:
    assert days("0 0 31W 4,5 *", 2) == ["2026-05-29", "2027-05-31"]


def test_lw_is_the_last_weekday_of_the_month() -> None:
    assert days("0 0 LW * *", 5) == ["2026-01-30", "2026-02-27", "2026-03-31", "2026-04-30", "2026-05-29"]


def test_l_minus_w_is_the_weekday_nearest_to_that_day() -> None:
    assert days("0 0 L-2W 5 *", 1) == ["2026-05-29"]
    assert days("0 0 L-1W 1 *", 1) == ["2026-01-30"]


def test_a_weekday_with_l_is_the_last_of_the_month() -> None:
    assert days("0 0 * * 5L", 2) == days("0 0 * * FRIL", 2) == ["2026-01-30", "2026-02-27"]


def test_a_weekday_with_a_number_is_the_nth_of_the_month() -> None:
    assert days("0 0 * * MON#1", 2) == ["2026-01-05", "2026-02-02"]
    assert days("0 0 * * MON#1,MON#3", 3) == ["2026-01-05", "2026-01-19", "2026-02-02"]
    assert days("0 0 * * 4#5", 2) == ["2026-01-29", "2026-04-30"]


def test_a_question_mark_says_nothing() -> None:
    assert days("0 14 ? * MON#1", 2) == days("0 14 * * MON#1", 2)
    assert days("0 14 1 * ?", 2) == days("0 14 1 * *", 2)


def test_macros_stand_for_expressions() -> None:
    for macro, text in {
        "@yearly": "0 0 1 1 *",
        "@annually": "0 0 1 1 *",
        "@monthly": "0 0 1 * *",
        "@weekly": "0 0 * * 0",
        "@daily": "0 0 * * *",
        "@midnight": "0 0 * * *",
        "@Hourly": "0 * * * *",
    }.items():
        assert Schedule.parse(macro).to_stored() == Schedule.parse(text).to_stored()


def test_cron_tz_in_front_sets_the_zone() -> None:
    inside = Schedule.parse("CRON_TZ=Europe/Berlin 0 9 * * *")
    assert inside.timezone == "Europe/Berlin"
    assert inside.to_stored() == Schedule.parse("0 9 * * *", timezone="Europe/Berlin").to_stored()
    assert Schedule.parse("TZ=Asia/Tokyo @daily").timezone == "Asia/Tokyo"


def test_the_quartz_dialect_counts_weekdays_from_sunday_1() -> None:
    assert days("0 0 9 ? * 2", 1, dialect="quartz") == ["2026-01-05"]
    assert days("0 0 9 ? * 2-6", 2, dialect="quartz") == ["2026-01-01", "2026-01-02"]
    assert days("0 0 9 ? * 6L", 1, dialect="quartz") == ["2026-01-30"]
    assert days("0 0 9 ? * 2#1", 1, dialect="quartz") == ["2026-01-05"]
    assert days("0 0 9 ? * L", 1, dialect="quartz") == ["2026-01-03"]
    assert days("0 0 9 ? * 7-2", 3, dialect="quartz") == ["2026-01-03", "2026-01-04", "2026-01-05"]
    assert ticks("0 0 9 ? * MON 2030", 1, dialect="quartz") == ["2030-01-07 09:00"]
    assert Schedule.parse("@daily", dialect="quartz") == Schedule.parse("@daily")


def test_the_first_monday_of_the_articles_is_a_monday_in_the_quartz_dialect() -> None:
    schedule = Schedule.parse("0 14 ? * 2#1", dialect="quartz")
    assert schedule == Schedule.parse("0 14 * * MON#1")
    assert schedule.describe() == "At 14:00 on the first Monday of the month"
    assert schedule.to_stored()["cron"] == "0 14 * * 1#1"


@pytest.mark.parametrize(
    ("foreign", "here"),
    [
        ("cron(0 10 ? * 2-6 *)", "0 10 * * MON-FRI"),
        ("cron(15 10 ? * 6L 2030-2031)", "0 15 10 * * FRIL 2030,2031"),
        ("0/15 8-17 ? * MON-FRI *", "0/15 8-17 * * MON-FRI"),
        ("0 8 1 * ? *", "0 8 1 * *"),
        ("0 8 L-3 * ? *", "0 8 L-3 * *"),
        ("0 8 LW * ? *", "0 8 LW * *"),
        ("0 8 15W * ? *", "0 8 15W * *"),
        ("0 8 ? * 2#1 *", "0 8 * * MON#1"),
        ("0 8 ? * L *", "0 8 * * SAT"),
        ("rate(5 minutes)", "every 5m"),
        ("rate(1 hour)", "every 1h"),
        ("at(2030-11-20T13:00:00)", "2030-11-20T13:00:00"),
    ],
)
def test_the_aws_dialect_reads_what_eventbridge_writes(foreign: str, here: str) -> None:
    for zone in ("UTC", "Europe/Berlin"):
        assert Schedule.parse(foreign, dialect="aws", timezone=zone) == Schedule.parse(here, timezone=zone)
    assert Schedule.parse({"cron": foreign}, dialect="aws") == Schedule.parse(here)


def test_a_field_that_two_programs_read_alike_needs_no_dialect() -> None:
    assert Schedule.parse("0 14 ? * MON#1") == Schedule.parse("0 14 * * 1#1")
    assert Schedule.parse("0 14 ? * 1-7") == Schedule.parse("0 14 ? * 0-6")
    assert Schedule.parse("0 14 1 * ?") == Schedule.parse("0 14 1 * *")
    assert Schedule.parse("0 14 ? * */2") == Schedule.parse("0 14 * * */2")


def test_both_day_fields_mean_what_day_match_says() -> None:
    assert days("0 0 13 * FRI", 3, day_match="or") == ["2026-01-02", "2026-01-09", "2026-01-13"]
    assert days("0 0 13 * FRI", 3, day_match="and") == ["2026-02-13", "2026-03-13", "2026-11-13"]
    assert days("0 9 1-7 * MON", 2, day_match="and") == days("0 9 * * MON#1", 2)


def test_day_match_is_no_hindrance_where_it_is_not_needed() -> None:
    assert Schedule.parse("0 9 * * MON", day_match="and") == Schedule.parse("0 9 * * MON")


def test_a_hashed_field_depends_on_the_job_and_on_nothing_else() -> None:
    first = Schedule.parse("H H * * *", hash_key="backup")
    assert Schedule.parse("H H * * *", hash_key="backup") == first
    others = {Schedule.parse("H H * * *", hash_key=f"job {number}").to_stored()["cron"] for number in range(200)}
    assert len(others) > 150


def test_the_value_behind_a_hash_never_changes_between_releases() -> None:
    assert Schedule.parse("H H H * *", hash_key="backup").to_stored()["cron"] == "9 8 22 * *"


def test_hashed_ranges_and_steps_stay_inside() -> None:
    for number in range(50):
        cron = Schedule.parse("H(10-19) H/6 H * *", hash_key=str(number)).to_stored()["cron"]
        minute, hours, day, *_ = cron.split()
        assert 10 <= int(minute) <= 19
        values = [int(hour) for hour in hours.split(",")]
        assert [value - values[0] for value in values] == [0, 6, 12, 18]
        assert 1 <= int(day) <= 28
    assert len(Schedule.parse("H(0-29)/10 * * * *", hash_key="x").to_stored()["cron"].split()[0].split(",")) == 3


def test_a_leap_day_is_found_eight_years_away() -> None:
    assert days("0 0 29 2 *", 2) == ["2028-02-29", "2032-02-29"]
    found = Schedule.parse("0 0 29 2 *").next_after(datetime(2096, 3, 1, tzinfo=UTC))
    assert found == datetime(2104, 2, 29, tzinfo=UTC)


def test_a_fifth_monday_on_a_leap_day_is_found_decades_away() -> None:
    assert days("0 0 29 2 MON#5", 2, day_match="and") == ["2044-02-29", "2072-02-29"]


def test_a_schedule_whose_years_are_over_has_no_next_tick() -> None:
    assert Schedule.parse("0 0 0 1 1 * 2020").next_after(START) is None


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("0 9 * * MON-FRI", "0 9 * * 1-5"),
        ("00 09 * * 1,2,3,4,5", "0 9 * * 1-5"),
        ("0 0 9 * * 1-5", "0 9 * * 1-5"),
        ("*/15 * * * *", "*/15 * * * *"),
        ("*/1 * * * *", "* * * * *"),
        ("0,15,30,45 * * * *", "0,15,30,45 * * * *"),
        ("0 0 ? * SUN", "0 0 * * 0"),
        ("0 0 L-3,15W,LW * *", "0 0 L-3,15W,LW * *"),
        ("0 0 * * FRIL,MON#1", "0 0 * * 1#1,5L"),
        ("30 0 0 * * * *", "30 0 0 * * *"),
        ("*/20,5 * * * *", "*/20,5 * * * *"),
        ("0 22-2 * * *", "0 0-2,22,23 * * *"),
    ],
)
def test_expressions_that_mean_the_same_are_stored_the_same(written: str, canonical: str) -> None:
    assert Schedule.parse(written).to_stored()["cron"] == canonical
    assert Schedule.parse(canonical).to_stored() == Schedule.parse(written).to_stored()
