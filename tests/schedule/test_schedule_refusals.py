"""Every refusal says which field, what was read and what to write instead."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest

from detent.domain.schedule import Schedule, ScheduleError, check_timezone


def refusal(spec: Any, **options: Any) -> ScheduleError:
    with pytest.raises(ScheduleError) as caught:
        Schedule.parse(spec, **options)
    return caught.value


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("60 * * * *", ["minute", "'60'", "0 to 59"]),
        ("* 24 * * *", ["hour", "'24'", "midnight is '0'"]),
        ("* * 0 * *", ["day-of-month", "'0'", "1 to 31"]),
        ("* * 32 * *", ["day-of-month", "'32'", "1 to 31"]),
        ("* * * 13 *", ["month", "'13'", "JAN-DEC"]),
        ("* * * * 8", ["day-of-week", "'8'", "Sunday is 0 or 7"]),
        ("0 9 * * MONDAY", ["day-of-week", "'MONDAY'", "'MON'"]),
        ("0 9 * JANUARY *", ["month", "'JANUARY'", "'JAN'"]),
        ("0 9 * * XYZ", ["day-of-week", "'XYZ'", "MON-FRI"]),
        ("1,,2 * * * *", ["minute", "'1,,2'", "empty", "comma"]),
        (",1 * * * *", ["minute", "empty"]),
        ("1- * * * *", ["minute", "'1-'", "missing"]),
        ("-1 * * * *", ["minute", "'-1'", "missing"]),
        ("*/0 * * * *", ["minute", "'*/0'", "0 never moves"]),
        ("*/ * * * *", ["minute", "'*/'", "not a number", "'*/5'"]),
        ("*/60 * * * *", ["minute", "'*/60'", "59"]),
        ("*/90 * * * *", ["minute", "'*/90'", "wider"]),
        ("10-20/15 * * * *", ["minute", "'10-20/15'", "wider"]),
        ("0 9 * * */7", ["day-of-week", "'*/7'"]),
        ("1.5 * * * *", ["minute", "'1.5'"]),
        ("+5 * * * *", ["minute", "'+5'"]),
        ("99999 * * * *", ["minute", "'99999'"]),
        ("? * * * *", ["minute", "'?'", "write '*'"]),
        ("0 9 1,? * *", ["day-of-month", "'?'", "alone"]),
        ("0~30 * * * *", ["minute", "'0~30'", "'H(0-30)'"]),
        ("R * * * *", ["minute", "'R'", "'H'"]),
        ("H * * * *", ["minute", "'H'", "job's name"]),
        ("0 0 L-31 * *", ["day-of-month", "'L-31'", "'L-3'"]),
        ("0 0 WL * *", ["day-of-month", "'WL'", "'LW'"]),
        ("0 0 W * *", ["day-of-month", "'W'", "'15W'"]),
        ("0 0 1-5W * *", ["day-of-month", "'1-5W'", "'1W,15W'"]),
        ("0 0 * * L", ["day-of-week", "'L'", "'5L'"]),
        ("0 0 * * L5", ["day-of-week", "'L5'", "'5L'"]),
        ("0 0 * * MON#6", ["day-of-week", "'MON#6'", "'MONL'"]),
        ("0 0 * * MON#", ["day-of-week", "'MON#'", "'MON#1'"]),
        ("0 0 * * 8#1", ["day-of-week", "'8#1'", "Sunday is 0 or 7"]),
        ("0 0 * * MON-FRI#1", ["day-of-week", "'MON-FRI#1'"]),
        ("0 0 30 2 *", ["day-of-month", "no year has", "'L'"]),
        ("0 0 31 4,6 *", ["no year has"]),
        ("0 0 0 29 2 * 2027", ["no year has"]),
        ("0 0 0 1 1 * 1969", ["year", "'1969'", "1970 to 2199"]),
        ("0 0 0 1 1 * 2040-2030", ["year", "'2040-2030'", "'2030-2040'"]),
        ("0 9 * *", ["4 fields", "5", "'0 9 * * MON'"]),
        ("0 9 * * * * * *", ["8 fields"]),
        ("daily", ["1 field;", "'0 9 * * MON'"]),
        ("@dayly", ["'@dayly'", "@daily"]),
        ("@reboot", ["@reboot", "every 1h"]),
        ("\uff10 9 * * *", ["U+FF10", "ASCII"]),
        ("0 9 * * ٣", ["ASCII"]),
        ("0 9\n* * *", ["ASCII"]),
        ("", ["empty", "'0 9 * * MON'"]),
        ("   ", ["empty"]),
        ("0 10 ? * MON-FRI *", ["AWS", "'0 10 ? * MON-FRI'"]),
        ("0 10 * * ? 2030", ["AWS", "'0 0 10 * * ? 2030'"]),
        ("0 10 ? * 2#1 *", ["AWS", "'0 10 ? * MON#1'"]),
        ("0 10 ? * 2-6 *", ["AWS", "'0 10 ? * MON-FRI'"]),
        ("15 10 1 1 * 2030", ["AWS", "'0 15 10 1 1 * 2030'"]),
        ("cron(15 10 ? * 6L 2030)", ["AWS", "'0 15 10 ? * FRIL 2030'"]),
        ("rate(5 minutes)", ["AWS", "'every 5 minutes'"]),
        ("at(2030-01-01T00:00:00)", ["AWS", "'2030-01-01T00:00:00'"]),
        ("every 0.5s", ["shorter than a second", "'every 1s'"]),
        ("every 0s", ["shorter than a second"]),
        ("every 5", ["no unit", "'5s'"]),
        ("every 5 months", ["months", "@monthly"]),
        ("every 5x", ["'x'", "'every 15m'"]),
        ("every", ["cannot be read", "'every 15m'"]),
        ("every 1h1h", ["twice"]),
        ("every -5m", ["cannot be read"]),
        ("every 5000d", ["ten years"]),
        ("every \uff15m", ["ASCII"]),
        ("every 1.0001s", ["cannot be read"]),
        ("2030-02-30T00:00:00Z", ["2030-02-30", "does not exist"]),
        ("2030-01-01", ["'2030-01-01'", "2030-12-24T18:00:00Z"]),
        ("2030-01-01T25:00:00Z", ["does not exist"]),
        ("20300101T000000Z", ["ISO 8601"]),
        ("1066-10-14T09:00:00Z", ["out of range"]),
    ],
)
def test_a_bad_schedule_is_refused_with_the_field_the_text_and_a_fix(text: str, parts: list[str]) -> None:
    error = refusal(text)
    for part in parts:
        assert part in error.message, error.message
    assert error.pointer == "/schedule"
    assert error.message.endswith(".")


@pytest.mark.parametrize(
    ("spec", "pointer"),
    [
        ({"cron": "60 * * * *"}, "/schedule/cron"),
        ({"rrule": "FREQ=SECONDLY"}, "/schedule/rrule"),
        ({"every": "soon"}, "/schedule/every"),
        ({"every": "5m", "anchor": "yesterday"}, "/schedule/anchor"),
        ({"at": "tomorrow"}, "/schedule/at"),
        ({"cron": "0 9 * * *", "timezone": "UTC"}, "/schedule/timezone"),
        ({"cron": "0 9 * * *", "every": "5m"}, "/schedule"),
        ({}, "/schedule"),
        ({"kron": "0 9 * * *"}, "/schedule"),
    ],
)
def test_the_explicit_form_points_at_the_part_that_is_wrong(spec: dict[str, Any], pointer: str) -> None:
    assert refusal(spec).pointer == pointer


def test_restricting_both_day_fields_is_refused_with_the_way_out() -> None:
    error = refusal("0 9 1-7 * MON")
    assert error.pointer == "/day_match"
    for part in ("'1-7'", "'MON'", "'or'", "'and'", "'MON#1'"):
        assert part in error.message


def test_a_step_in_one_day_field_restricts_it_too() -> None:
    assert refusal("0 0 */2 * MON").pointer == "/day_match"


@pytest.mark.parametrize(
    ("options", "pointer"),
    [
        ({"timezone": "Europe/Berln"}, "/timezone"),
        ({"timezone": ""}, "/timezone"),
        ({"dst_gap": "jump"}, "/dst_gap"),
        ({"dst_overlap": "second"}, "/dst_overlap"),
        ({"day_match": "xor"}, "/day_match"),
        ({"dialect": "spring"}, "/dialect"),
        ({"jitter_seconds": -1}, "/jitter_seconds"),
        ({"jitter_seconds": float("nan")}, "/jitter_seconds"),
        ({"starts_at": datetime(2030, 1, 1)}, "/starts_at"),
        (
            {"starts_at": datetime(2030, 1, 1, tzinfo=UTC), "ends_at": datetime(2029, 1, 1, tzinfo=UTC)},
            "/ends_at",
        ),
    ],
)
@pytest.mark.parametrize("spec", ["0 9 * * *", "every 5m", "FREQ=DAILY", "2030-01-01T00:00:00Z"])
def test_a_wrong_option_is_refused_by_its_own_name(spec: str, options: dict[str, Any], pointer: str) -> None:
    assert refusal(spec, **options).pointer == pointer


def test_day_match_beside_an_interval_is_refused() -> None:
    assert refusal("every 5m", day_match="or").pointer == "/day_match"


def test_an_unknown_zone_is_refused_with_its_neighbours() -> None:
    for wrong, right in {
        "Europe/Berln": "'Europe/Berlin'",
        "new york": "'America/New_York'",
        "europe/berlin": "'Europe/Berlin'",
        "Asia/Tokio": "'Asia/Tokyo'",
        "Kyiv": "'Europe/Kyiv'",
    }.items():
        with pytest.raises(ScheduleError, match=right):
            check_timezone(wrong)


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/localtime", "Europe/Berlin\x00", "Europe", "zones"])
def test_a_zone_name_is_never_a_path(name: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        check_timezone(name)
    assert caught.value.pointer == "/timezone"


def test_two_zones_that_contradict_each_other_are_refused() -> None:
    error = refusal("CRON_TZ=Europe/Berlin 0 9 * * *", timezone="Asia/Tokyo")
    assert error.pointer == "/timezone"
    assert "keep one" in error.message


def test_the_quartz_dialect_refuses_what_quartz_refuses() -> None:
    assert "has 4 fields" in refusal("0 9 * MON", dialect="quartz").message
    assert "Sunday is 1" in refusal("0 0 9 ? * 0", dialect="quartz").message
    assert "both day fields" in refusal("0 0 9 ? * ?", dialect="quartz").message


def test_the_aws_dialect_refuses_what_eventbridge_refuses() -> None:
    assert "'0 10 ? * MON *'" in refusal("0 10 ? * MON", dialect="aws").message
    assert "Sunday is 1" in refusal("0 10 ? * 0 *", dialect="aws").message
    assert "both day fields" in refusal("0 10 ? * ? *", dialect="aws").message
    assert "needs one" in refusal("0 10 * * 2 *", dialect="aws").message
    assert "needs one" in refusal("cron(0 10 1 * MON *)", dialect="aws").message
    for wrong in ("rate(5 weeks)", "rate(0 minutes)", "rate(minutes)", "rate(5)"):
        assert "'rate(5 minutes)'" in refusal(wrong, dialect="aws").message
    assert refusal("at(tomorrow)", dialect="aws").pointer == "/schedule"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("0 14 ? * 2#1", ["first Monday", "'0 14 ? * MON#1'", "dialect 'quartz'", "first Tuesday", "'0 14 ? * TUE#1'"]),
        ("0 0 14 ? * 2#1", ["first Monday", "'0 0 14 ? * MON#1'", "first Tuesday"]),
        ("0 0 14 ? * 2 2030", ["on Monday", "'0 0 14 ? * MON 2030'", "on Tuesday"]),
        ("0 9 ? * 1-5", ["Sunday to Thursday", "'0 9 ? * SUN-THU'", "Monday to Friday", "'0 9 ? * MON-FRI'"]),
        ("0 9 ? * 6L", ["last Friday", "'0 9 ? * FRIL'", "last Saturday", "'0 9 ? * SATL'"]),
        ("0 9 ? * 7", ["on Saturday", "'0 9 ? * SAT'", "on Sunday", "'0 9 ? * SUN'"]),
    ],
)
def test_a_weekday_number_beside_a_question_mark_is_refused_with_both_readings(text: str, parts: list[str]) -> None:
    """`?` comes from Quartz, where Sunday is 1: read as Unix cron, the first Monday would silently be a Tuesday."""
    error = refusal(text)
    for part in parts:
        assert part in error.message, error.message
    assert error.pointer == "/schedule"
    assert error.message.count(".") == 1
    assert error.message.endswith(".")
    for offered in re.findall(r"which is '([^']+)'", error.message):
        Schedule.parse(offered)


def test_a_very_long_expression_is_refused_without_being_read() -> None:
    assert "characters" in refusal("0," * 5_000 + "0 * * * *").message


def test_a_one_off_outside_its_bounds_is_refused() -> None:
    error = refusal("2030-01-01T00:00:00Z", ends_at=datetime(2029, 1, 1, tzinfo=UTC))
    assert error.pointer == "/ends_at"
