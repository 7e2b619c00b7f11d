"""Recurrence rules: what they mean, what DST does to them, and that none of them hangs."""

from __future__ import annotations

import itertools
import random
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from dateutil import rrule as dateutil_rrule

from detent.domain.schedule import Schedule, ScheduleError

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
YEAR = timedelta(days=366)
HOURS = ",".join(map(str, range(24)))
SIXTY = ",".join(map(str, range(60)))


def local_ticks(text: str, count: int = 8, zone: str = "UTC", after: datetime = NOW, **options: object) -> list[str]:
    schedule = Schedule.parse(text, timezone=zone, anchor=NOW, **options)  # type: ignore[arg-type]
    ticks = schedule.between(after, after + 60 * YEAR, count)
    return [tick.astimezone(ZoneInfo(zone)).strftime("%Y-%m-%d %H:%M") for tick in ticks]


def test_a_weekly_rule_without_a_time_runs_at_midnight() -> None:
    assert local_ticks("RRULE:FREQ=WEEKLY;BYDAY=MO", 2) == ["2026-11-16 00:00", "2026-11-23 00:00"]


def test_a_rule_takes_its_time_of_day_from_dtstart() -> None:
    text = "DTSTART:20260105T093000\nRRULE:FREQ=WEEKLY;BYDAY=MO"
    assert local_ticks(text, 1, "Europe/Berlin") == ["2026-11-16 09:30"]


def test_the_prefix_rrule_may_be_left_out() -> None:
    assert local_ticks("FREQ=DAILY;BYHOUR=9", 1) == ["2026-11-16 09:00"]


def test_count_ends_a_rule() -> None:
    text = "DTSTART:20261116T090000\nRRULE:FREQ=DAILY;COUNT=3"
    assert local_ticks(text) == ["2026-11-16 09:00", "2026-11-17 09:00", "2026-11-18 09:00"]


def test_count_without_dtstart_counts_from_the_registration() -> None:
    assert local_ticks("FREQ=DAILY;COUNT=2;BYHOUR=13") == ["2026-11-15 13:00", "2026-11-16 13:00"]
    assert local_ticks("FREQ=DAILY;COUNT=2;BYHOUR=11") == ["2026-11-16 11:00", "2026-11-17 11:00"]


def test_count_is_counted_before_exdates_are_taken_out() -> None:
    text = "DTSTART:20261116T090000\nRRULE:FREQ=DAILY;COUNT=3\nEXDATE:20261117T090000"
    assert local_ticks(text) == ["2026-11-16 09:00", "2026-11-18 09:00"]


def test_until_is_the_last_moment_that_counts() -> None:
    rule = "DTSTART:20261116T090000\nRRULE:FREQ=DAILY;UNTIL="
    assert local_ticks(rule + "20261118T090000")[-1] == "2026-11-18 09:00"
    assert local_ticks(rule + "20261118T085959")[-1] == "2026-11-17 09:00"


def test_until_as_a_date_takes_in_the_whole_day() -> None:
    assert local_ticks("DTSTART:20261116T090000\nRRULE:FREQ=DAILY;UNTIL=20261118")[-1] == "2026-11-18 09:00"


def test_until_in_utc_is_read_in_the_zone_of_the_rule() -> None:
    rule = "DTSTART:20261116T090000\nRRULE:FREQ=DAILY;UNTIL=20261118T140000Z"
    assert local_ticks(rule, zone="America/New_York")[-1] == "2026-11-18 09:00"
    assert local_ticks(rule.replace("T140000Z", "T135959Z"), zone="America/New_York")[-1] == "2026-11-17 09:00"


def test_rdates_are_added_and_exdates_taken_away_even_from_rdates() -> None:
    text = (
        "DTSTART:20261116T090000\nRRULE:FREQ=WEEKLY;COUNT=2\n"
        "RDATE:20261118T100000,20261119T100000\nEXDATE:20261119T100000"
    )
    assert local_ticks(text) == ["2026-11-16 09:00", "2026-11-18 10:00", "2026-11-23 09:00"]
    schedule = Schedule.parse(text)
    assert schedule.count_between(NOW, NOW + YEAR) == 3
    assert schedule.latest(NOW, NOW + timedelta(days=5)) == datetime(2026, 11, 18, 10, tzinfo=UTC)


def test_bysetpos_finds_the_last_working_day_of_a_month() -> None:
    text = "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1;BYHOUR=17"
    assert local_ticks(text, 3) == ["2026-11-30 17:00", "2026-12-31 17:00", "2027-01-29 17:00"]


def test_bysetpos_chooses_within_an_hour() -> None:
    assert local_ticks("FREQ=HOURLY;BYMINUTE=5,10,50;BYSETPOS=1,-1", 3) == [
        "2026-11-15 12:05",
        "2026-11-15 12:50",
        "2026-11-15 13:05",
    ]


def test_bysetpos_chooses_within_a_day() -> None:
    assert local_ticks("FREQ=DAILY;BYHOUR=8,13,18;BYMINUTE=0,30;BYSETPOS=-1,1", 3) == [
        "2026-11-15 18:30",
        "2026-11-16 08:00",
        "2026-11-16 18:30",
    ]


def test_every_minute_of_working_days_is_counted_without_walking() -> None:
    text = f"FREQ=DAILY;BYDAY=MO,TU,WE,TH,FR;BYHOUR={HOURS};BYMINUTE={SIXTY}"
    schedule = Schedule.parse(text, timezone="Asia/Tokyo")
    start = datetime(2026, 1, 4, 15, tzinfo=UTC)
    assert schedule.count_between(start, start + timedelta(weeks=52)) == 52 * 5 * 1440


def test_a_rule_on_the_31st_leaves_short_months_out() -> None:
    text = "DTSTART:20260131T090000\nRRULE:FREQ=MONTHLY"
    assert local_ticks(text, 3) == ["2026-12-31 09:00", "2027-01-31 09:00", "2027-03-31 09:00"]


def test_leap_days_come_every_fourth_year() -> None:
    assert local_ticks("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29", 2) == ["2028-02-29 00:00", "2032-02-29 00:00"]


def test_an_interval_of_weeks_keeps_its_phase_for_ever() -> None:
    text = "DTSTART:20150105T090000\nRRULE:FREQ=WEEKLY;INTERVAL=2"
    ticks = local_ticks(text, 3)
    weeks = [(datetime.strptime(tick, "%Y-%m-%d %H:%M") - datetime(2015, 1, 5, 9)).days for tick in ticks]
    assert all(days % 14 == 0 for days in weeks)


def test_a_daily_rule_in_a_gap_follows_the_gap_policy() -> None:
    text, before = "FREQ=DAILY;BYHOUR=2;BYMINUTE=30", datetime(2027, 3, 14, 5, tzinfo=UTC)
    for gap, expected in {"run": "2027-03-14 03:00", "shift": "2027-03-14 03:30", "skip": "2027-03-15 02:30"}.items():
        assert local_ticks(text, 1, "America/New_York", before, dst_gap=gap) == [expected]


def test_a_daily_rule_in_an_overlap_runs_once_unless_asked() -> None:
    text, before = "FREQ=DAILY;BYHOUR=1;BYMINUTE=30", datetime(2026, 11, 1, 4, tzinfo=UTC)
    until = before + timedelta(hours=12)
    for overlap, hours in {"first": [5], "last": [6], "both": [5, 6]}.items():
        schedule = Schedule.parse(text, timezone="America/New_York", dst_overlap=overlap)
        assert [tick.hour for tick in schedule.between(before, until, 9)] == hours


def test_an_hourly_rule_runs_every_real_hour_of_a_changed_day() -> None:
    schedule = Schedule.parse("FREQ=HOURLY", timezone="America/New_York")
    spring = datetime(2026, 3, 8, 5, tzinfo=UTC)
    autumn = datetime(2026, 11, 1, 4, tzinfo=UTC)
    before = timedelta(seconds=1)
    assert schedule.count_between(spring - before, spring + timedelta(hours=23) - before) == 23
    assert schedule.count_between(autumn - before, autumn + timedelta(hours=25) - before) == 25
    ticks = schedule.between(autumn - before, autumn + timedelta(hours=25) - before, 99)
    assert len(set(ticks)) == 25
    assert {later - earlier for earlier, later in itertools.pairwise(ticks)} == {timedelta(hours=1)}


def test_a_minutely_rule_months_after_its_start_answers_from_near_by() -> None:
    text = "DTSTART:20200101T000000\nRRULE:FREQ=MINUTELY;INTERVAL=7"
    schedule = Schedule.parse(text)
    tick = schedule.next_after(NOW)
    assert tick is not None
    assert (tick - datetime(2020, 1, 1, tzinfo=UTC)) % timedelta(minutes=7) == timedelta(0)
    start = datetime(2020, 1, 1, tzinfo=UTC)
    assert schedule.count_between(start, NOW) == (NOW - start) // timedelta(minutes=7)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("FREQ=SECONDLY", "every 10s"),
        ("FREQ=SECONDLY;BYMONTH=2;BYMONTHDAY=30", "every 10s"),
        ("FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30", "BYMONTHDAY=-1"),
        ("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=31", "BYMONTHDAY=-1"),
        ("DTSTART:20270101T000000\nRRULE:FREQ=YEARLY;INTERVAL=4;BYMONTH=2;BYMONTHDAY=29", "never comes"),
        ("DTSTART:20260101T000000\nRRULE:FREQ=MONTHLY;INTERVAL=12;BYMONTH=2;BYMONTHDAY=1", "never comes"),
        ("DTSTART:20260101T090000\nRRULE:FREQ=HOURLY;INTERVAL=24;BYHOUR=8", "never comes"),
        ("DTSTART:20260105T000000\nRRULE:FREQ=HOURLY;INTERVAL=168;BYDAY=TU", "never comes"),
        ("DTSTART:20260105T000000\nRRULE:FREQ=DAILY;INTERVAL=7;BYDAY=TU", "never comes"),
        ("DTSTART:20260105T000000\nRRULE:FREQ=DAILY;UNTIL=20250101T000000", "never comes"),
        ("FREQ=MINUTELY;BYMONTH=4;BYMONTHDAY=31", "BYMONTHDAY=-1"),
        ("FREQ=YEARLY;BYYEARDAY=1;BYMONTH=6", "never comes"),
        ("FREQ=DAILY;COUNT=1000000", "COUNT goes from 1 to 10000"),
        ("FREQ=DAILY;COUNT=3;UNTIL=20300101", "both COUNT and UNTIL"),
        ("FREQ=FORTNIGHTLY", "use one of YEARLY"),
        (f"FREQ=DAILY;BYHOUR={HOURS};BYMINUTE={SIXTY};BYSECOND={SIXTY}", "86400 times a day"),
        (f"FREQ=MONTHLY;BYHOUR={HOURS};BYMINUTE=0,10,20,30,40;BYSETPOS=1", "name fewer hours"),
        ("RRULE:BYDAY=MO", "no FREQ"),
        ("FREQ=DAILY;FREQ=WEEKLY", "FREQ twice"),
        ("FREQ=WEEKLY;BYDAY=XX", "'XX' in BYDAY"),
        ("FREQ=WEEKLY;BYDAY=1MO", "take out the number"),
        ("FREQ=WEEKLY;BYMONTHDAY=3", "use FREQ=MONTHLY"),
        ("FREQ=DAILY;BYYEARDAY=3", "use FREQ=YEARLY"),
        ("FREQ=DAILY;BYWEEKNO=3", "FREQ=YEARLY only"),
        ("FREQ=MONTHLY;BYSETPOS=1", "add one"),
        ("FREQ=DAILY;BYHOUR=24", "24 in BYHOUR"),
        ("FREQ=DAILY;BYHOUR=", "not NAME=VALUE"),
        ("FREQ=DAILY;BYHOUR=1,,2", "not a number"),
        ("FREQ=DAILY;BYEASTER=1", "BYEASTER is not a part"),
        ("FREQ=DAILY;RSCALE=CHINESE", "RSCALE is not a part"),
        ("FREQ=DAILY;INTERVAL=0", "INTERVAL goes from 1"),
        ("FREQ=DAILY;UNTIL=20261332", "does not exist"),
        ("FREQ=DAILY\nEXDATE:20261225", "without a time of day"),
        ("FREQ=DAILY\nFREQ=WEEKLY", "two RRULE lines"),
        ("FREQ=DAILY\nEXRULE:FREQ=WEEKLY", "not part of a recurrence rule"),
        ("DTSTART:20260101T000000\nDTSTART:20260101T000000\nRRULE:FREQ=DAILY", "two DTSTART"),
        ("DTSTART:2026-01-01\nRRULE:FREQ=DAILY", "not a date"),
        ("DTSTART:20260101T000000", "no RRULE line"),
        ("FREQ=DÄILY", "plain ASCII"),
        ("BEGIN:VEVENT\nRRULE:FREQ=DAILY", "not part of a recurrence rule"),
    ],
)
def test_a_rule_that_cannot_be_is_refused_with_its_reason(text: str, word: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        Schedule.parse(text, anchor=NOW)
    assert word in caught.value.message
    assert caught.value.pointer == "/schedule"


def test_a_rule_that_needs_a_first_day_asks_for_it() -> None:
    with pytest.raises(ScheduleError, match="add a line 'DTSTART"):
        Schedule.parse("FREQ=WEEKLY;INTERVAL=2;BYDAY=MO")


def test_a_zone_inside_the_rule_is_used_and_a_second_one_refused() -> None:
    text = "DTSTART;TZID=Europe/Berlin:20260105T090000\nRRULE:FREQ=DAILY"
    assert Schedule.parse(text).timezone == "Europe/Berlin"
    with pytest.raises(ScheduleError) as caught:
        Schedule.parse(text, timezone="Asia/Tokyo")
    assert caught.value.pointer == "/timezone"


def test_rules_that_mean_the_same_share_one_stored_form() -> None:
    first = Schedule.parse("RRULE:FREQ=WEEKLY;BYDAY=FR,MO;BYHOUR=9", anchor=NOW)
    second = Schedule.parse({"rrule": "FREQ=WEEKLY;INTERVAL=1;WKST=MO;BYHOUR=9;BYDAY=MO,FR"}, anchor=NOW + YEAR)
    assert first.to_stored() == second.to_stored()


@pytest.mark.parametrize(
    "rule",
    [
        "FREQ=YEARLY;BYYEARDAY=-1,365,-306,60,366",
        "FREQ=YEARLY;BYYEARDAY=1,-366;BYDAY=MO,TH",
        "FREQ=YEARLY;BYWEEKNO=1,53;WKST=SU",
        "FREQ=YEARLY;BYWEEKNO=-1,1,52;BYDAY=SU,MO",
        "FREQ=YEARLY;BYWEEKNO=53;WKST=WE;BYDAY=TU",
        "FREQ=YEARLY;INTERVAL=3;BYWEEKNO=-53,-1;WKST=TH",
        "FREQ=YEARLY;BYDAY=53MO,-53FR,20TU",
        "FREQ=YEARLY;BYMONTH=2,5;BYDAY=5SU,-5SU,-1WE",
        "FREQ=MONTHLY;BYDAY=5MO,-5MO;BYMONTHDAY=29,30,31,-31",
        "FREQ=MONTHLY;INTERVAL=5;BYMONTHDAY=-29,31",
        "FREQ=YEARLY;INTERVAL=3;BYMONTH=2;BYMONTHDAY=29,28;BYSETPOS=-1",
        "FREQ=YEARLY;BYDAY=MO,WE;BYHOUR=3,15;BYSETPOS=1,-1,100,-366",
        "FREQ=WEEKLY;INTERVAL=3;WKST=SU;BYDAY=SA,SU,MO;BYSETPOS=-1,2",
        "FREQ=WEEKLY;INTERVAL=4;BYMONTH=1,12;BYDAY=MO,SU;WKST=FR",
        "FREQ=DAILY;INTERVAL=13;BYMONTH=1,2;BYDAY=MO,FR",
        "FREQ=DAILY;INTERVAL=7;BYMONTHDAY=29,-29",
    ],
)
@pytest.mark.parametrize("start", ["20240101T093000", "20240229T000000", "20271231T235900"])
def test_days_on_masks_of_years_are_those_of_dateutil(rule: str, start: str) -> None:
    """Each from DTSTART on, and again from the middle, over leap years and the ends of years."""
    text = f"DTSTART:{start}\nRRULE:{rule}"
    expected = list(itertools.islice(dateutil_rrule.rrulestr(text), 30))
    ticks = [tick.replace(tzinfo=UTC) for tick in expected]
    for skipped in (0, 11):
        schedule = Schedule.parse(text)
        after = ticks[skipped] - timedelta(seconds=1)
        assert schedule.between(after, ticks[-1], 100) == ticks[skipped:]
        assert schedule.count_between(after, ticks[-1]) == 30 - skipped
        assert schedule.latest(ticks[0], ticks[-1] - timedelta(seconds=1)) == ticks[-2]


def draw_rule(draw: random.Random) -> tuple[str, datetime]:
    freq = draw.choice(["YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY", "MINUTELY"])
    parts = [f"FREQ={freq}"]
    if draw.random() < 0.5:
        parts.append(f"INTERVAL={draw.randint(1, 5)}")
    if freq not in ("HOURLY", "MINUTELY") and draw.random() < 0.3:
        parts.append(f"BYMONTH={','.join(map(str, draw.sample(range(1, 13), 3)))}")
    if freq != "WEEKLY" and draw.random() < 0.3:
        parts.append(f"BYMONTHDAY={draw.choice(['1', '15', '-1', '1,2,3', '28,-2', '31'])}")
    elif draw.random() < 0.5:
        days = draw.sample(["MO", "TU", "WE", "TH", "FR", "SA", "SU"], 3)
        if freq in ("MONTHLY", "YEARLY") and draw.random() < 0.5:
            days = [f"{draw.choice([1, 2, -1])}{day}" for day in days]
        parts.append(f"BYDAY={','.join(days)}")
        if draw.random() < 0.3:
            parts.append(f"BYSETPOS={draw.choice(['1', '-1', '1,2', '1,-1'])}")
    if draw.random() < 0.4:
        parts.append(f"BYHOUR={','.join(map(str, draw.sample(range(24), 2)))}")
    if freq != "MINUTELY" and draw.random() < 0.4:
        parts.append(f"BYMINUTE={draw.randint(0, 59)}")
    if draw.random() < 0.3:
        parts.append(f"WKST={draw.choice(['SU', 'MO', 'TH'])}")
    start = datetime(2024, 1, 1) + timedelta(minutes=draw.randrange(600 * 1440))
    return ";".join(parts), start


def same_as_dateutil(rule: str, start: datetime, draw: random.Random) -> bool:
    """Compares a stretch long after DTSTART, forwards and backwards, with dateutil walking there from DTSTART."""
    text = f"DTSTART:{start:%Y%m%dT%H%M%S}\nRRULE:{rule}"
    try:
        schedule = Schedule.parse(text)
    except ScheduleError as error:
        assert "never comes" in error.message, text
        return False  # dateutil would walk to the year 9999 to find out the same
    after = start + timedelta(days=draw.randint(0, 20 if "HOURLY" in rule or "MINUTELY" in rule else 2_000))
    expected = list(itertools.islice(dateutil_rrule.rrulestr(text).xafter(after), 25))
    got = schedule.between(after.replace(tzinfo=UTC), expected[-1].replace(tzinfo=UTC), 100)
    assert [tick.replace(tzinfo=None) for tick in got] == expected, text
    assert schedule.count_between(after.replace(tzinfo=UTC), got[-1]) == len(got), text
    for earlier, later in itertools.pairwise(got):
        assert schedule.latest(got[0], later - timedelta(seconds=1)) == earlier, text
    return True


def test_random_rules_agree_with_dateutil_walking_from_dtstart() -> None:
    draw = random.Random("rules")
    drawn = [draw_rule(draw) for _ in range(100)]
    assert sum(same_as_dateutil(rule, start, draw) for rule, start in drawn) > 60


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_two_thousand_random_rules_agree_with_dateutil() -> None:
    draw = random.Random("many rules")
    drawn = [draw_rule(draw) for _ in range(2_000)]
    assert sum(same_as_dateutil(rule, start, draw) for rule, start in drawn) > 1_500
