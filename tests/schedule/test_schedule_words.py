"""Schedules in plain English."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from detent.devtools.bench.schedules import EXPRESSIONS, bench_cron
from detent.domain.schedule import Schedule

NOW = datetime(2026, 11, 15, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0 9 * * MON", "At 09:00 on Monday"),
        ("0 9 * * MON-FRI", "At 09:00 Monday to Friday"),
        ("30 2 * * *", "At 02:30 every day"),
        ("30 0 9 * * *", "At 09:00:30 every day"),
        ("0,30 9,17 * * *", "At 09:00, 09:30, 17:00 and 17:30 every day"),
        ("* * * * *", "Every minute"),
        ("* * * * * *", "Every second"),
        ("*/5 * * * *", "Every 5 minutes"),
        ("*/7 * * * *", "At minutes 0, 7, 14, 21, 28, 35, 42, 49 and 56"),
        ("*/10 * * * * *", "Every 10 seconds"),
        ("0 * * * *", "Every hour"),
        ("30 * * * *", "Every hour at minute 30"),
        ("0 */2 * * *", "Every 2 hours"),
        ("0 9-17 * * MON-FRI", "Every hour from 09:00 to 17:00, Monday to Friday"),
        ("*/10 9-17 * * *", "Every 10 minutes, from 09:00 to 17:59"),
        ("*/10 22-2 * * *", "Every 10 minutes, from 22:00 to 02:59"),
        ("*/10 */2 * * *", "Every 10 minutes, in every 2nd hour from 00:00"),
        ("* 2 * * *", "Every minute, from 02:00 to 02:59"),
        ("0 0 1 * *", "At 00:00 on day 1 of the month"),
        ("0 0 1,15 * *", "At 00:00 on days 1 and 15 of the month"),
        ("0 0 28-3 * *", "At 00:00 on days 28 to 3 of the month"),
        ("0 0 */2 * *", "At 00:00 on every 2nd day from day 1 of the month"),
        ("0 0 L * *", "At 00:00 on the last day of the month"),
        ("0 0 L-3 * *", "At 00:00 on the day 3 days before the last of the month"),
        ("0 0 15W * *", "At 00:00 on the weekday nearest to day 15 of the month"),
        ("0 0 LW * *", "At 00:00 on the last weekday (Monday to Friday) of the month"),
        ("0 0 L,15 * *", "At 00:00 on day 15 and the last day of the month"),
        ("0 14 ? * MON#1", "At 14:00 on the first Monday of the month"),
        ("0 14 * * MON#1,MON#3", "At 14:00 on the first Monday and the third Monday of the month"),
        ("0 14 * * 5L", "At 14:00 on the last Friday of the month"),
        ("0 9 * * FRI-MON", "At 09:00 Friday to Monday"),
        ("0 9 * * MON,WED", "At 09:00 on Monday and Wednesday"),
        ("1 2 3 4 *", "At 02:01 on day 3 of the month, in April"),
        ("0 12 * NOV-MAR *", "At 12:00 each day, from November to March"),
        ("0 0 0 1 1 * 2030", "At 00:00 on day 1 of the month, in January, in 2030"),
        ("0 0 9 * * 1 2030-2032", "At 09:00 on Monday, from 2030 to 2032"),
        ("@daily", "At 00:00 every day"),
        ("every 15m", "Every 15 minutes"),
        ("every 1h", "Every hour"),
        ("every 90m", "Every 1 hour and 30 minutes"),
        ("every 1d", "Every 24 hours"),
        ("2030-01-01T00:00:00Z", "Once, at 2030-01-01T00:00:00Z"),
        ("FREQ=DAILY;BYHOUR=9", "Every day at 09:00"),
        ("FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,FR", "Every 2 weeks on Monday and Friday at 00:00, from 2026-11-15"),
        ("FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=17", "Every month on the last Friday of the month at 17:00"),
        ("FREQ=MONTHLY;BYMONTHDAY=1,-1", "Every month on day 1 and the last day of the month at 00:00"),
        ("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29", "Every year on day 29 of the month in February at 00:00"),
        ("FREQ=YEARLY;BYWEEKNO=20;BYDAY=MO", "Every year on Monday in week 20 of the year at 00:00"),
        ("FREQ=HOURLY;BYHOUR=9,10", "Every hour in the hours of 09:00 and 10:00"),
        ("FREQ=DAILY;COUNT=5", "Every day at 00:00, from 2026-11-15, 5 times"),
        (
            "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1",
            "Every month on Monday to Friday at 00:00, of these only the last of each month",
        ),
    ],
)
def test_a_schedule_is_said_in_plain_english(text: str, words: str) -> None:
    assert Schedule.parse(text, anchor=NOW).describe() == words


def test_the_time_of_a_one_off_is_said_in_its_zone() -> None:
    once = Schedule.parse("2026-12-31T22:00:00", timezone="Europe/Berlin")
    assert once.describe() == "Once, at 2026-12-31T22:00:00+01:00"


def test_both_day_fields_are_said_with_their_rule() -> None:
    assert Schedule.parse("0 0 13 * FRI", day_match="or").describe() == ("At 00:00 on day 13 of the month or on Friday")
    assert Schedule.parse("0 0 13 * FRI", day_match="and").describe() == (
        "At 00:00 on day 13 of the month, if that is also on Friday"
    )


def test_bounds_are_said() -> None:
    schedule = Schedule.parse("@daily", starts_at=NOW, ends_at=datetime(2027, 1, 1, tzinfo=UTC))
    assert schedule.describe() == "At 00:00 every day, from 2026-11-15T00:00:00Z, until 2027-01-01T00:00:00Z"


def test_a_stored_schedule_is_said_in_the_same_words() -> None:
    for text in ("0 14 ? * MON#1", "*/20,5 * * * *", "FREQ=WEEKLY;BYDAY=MO", "every 2 days"):
        schedule = Schedule.parse(text, anchor=NOW)
        assert Schedule.from_stored(schedule.to_stored()).describe() == schedule.describe()


def test_the_benchmark_has_a_row_for_each_library_and_expression() -> None:
    rows = bench_cron(calls=20)
    assert {row.expression for row in rows} == set(EXPRESSIONS)
    assert {row.what.split()[0] for row in rows} == {"detent", "cronsim", "croniter"}
    assert all(row.microseconds > 0 for row in rows)
