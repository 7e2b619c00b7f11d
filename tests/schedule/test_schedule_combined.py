"""Schedules of several parts: what they mean, what they say, what is refused."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from detent.domain.misfire import RUN_ALL, MisfirePolicy, decide
from detent.domain.schedule import Schedule, ScheduleError
from detent.domain.schedule.explain import explain_text
from detent.domain.schedule.instants import to_ms
from detent.domain.schedule.schedule import COMBINED
from detent.domain.schedule.steps import CostlySchedule, Steps

NOW = datetime(2026, 12, 20, 12, tzinfo=UTC)
WORKDAYS = {"cron": "0 9 * * MON-FRI"}


def parse(spec: Any, **options: Any) -> Schedule:
    return Schedule.parse(spec, **{"anchor": NOW, **options})


def ticks(schedule: Schedule, count: int, after: datetime = NOW) -> list[str]:
    return [f"{tick:%m-%d %H:%M}" for tick in schedule.between(after, after + timedelta(days=3660), count)]


def test_a_job_ticks_when_any_of_its_schedules_does() -> None:
    schedule = parse({**WORKDAYS, "also": ["0 11 * * SAT", {"every": "36h"}, "2026-12-23T07:30:00Z"]})
    assert schedule.kind == COMBINED
    assert ticks(schedule, 6) == [
        "12-21 09:00",
        "12-22 00:00",
        "12-22 09:00",
        "12-23 07:30",
        "12-23 09:00",
        "12-23 12:00",
    ]


def test_a_tick_that_two_schedules_share_is_one_tick() -> None:
    schedule = parse({"cron": "0 * * * *", "also": ["0 */2 * * *", "RRULE:FREQ=DAILY;BYHOUR=12", "every 1h"]})
    day = NOW + timedelta(days=1)
    assert schedule.count_between(NOW, day) == len(schedule.between(NOW, day, 100)) == 24


def test_two_equal_schedules_are_one() -> None:
    assert parse({"cron": "0 9 * * 1-5", "also": ["0 9 * * MON-FRI"], "exclude": ["2026-12-21"]}).to_stored()[
        "members"
    ] == [{"cron": "0 9 * * 1-5"}]


@pytest.mark.parametrize("empty", [{"also": []}, {"exclude": []}, {"also": None, "exclude": None}])
def test_empty_lists_mean_a_plain_schedule(empty: dict[str, Any]) -> None:
    assert parse({**WORKDAYS, **empty}) == parse("0 9 * * MON-FRI")


@pytest.mark.parametrize(
    ("exclusion", "left"),
    [
        ("2026-12-21", ["12-21 23:00", "12-22 23:00"]),
        ("2026-12-21/2026-12-23", ["12-23 23:00", "12-24 23:00"]),
        ("2026-12-21T00:00/2026-12-22T12:00", ["12-22 23:00", "12-23 23:00"]),
        ({"dates": "2026-12-21/2026-12-22"}, ["12-22 23:00", "12-23 23:00"]),
        ("* * * * MON-THU", ["12-24 23:00", "12-25 23:00"]),
        ({"cron": "* 0 22,23 12 *"}, ["12-20 23:00", "12-23 23:00"]),
        ("0 0 21-23 * *", ["12-23 23:00", "12-24 23:00"]),
        ("RRULE:FREQ=WEEKLY;BYDAY=MO,TU,WE", ["12-23 23:00", "12-24 23:00"]),
        ({"rrule": "DTSTART:20261221\nRRULE:FREQ=DAILY;COUNT=2"}, ["12-22 23:00", "12-23 23:00"]),
    ],
)
def test_exclusions_are_local_times(exclusion: Any, left: list[str]) -> None:
    """Midnight in Berlin is 23:00 UTC of the day before."""
    schedule = parse({"cron": "0 0 * * *", "exclude": [exclusion]}, timezone="Europe/Berlin")
    after = datetime(2026, 12, 20, 23, tzinfo=UTC) if left[0] == "12-21 23:00" else NOW
    assert ticks(schedule, 2, after) == left
    assert Schedule.from_stored(schedule.to_stored()) == schedule


def test_a_five_field_expression_excludes_whole_minutes_and_six_fields_exclude_seconds() -> None:
    every_second = {"cron": "* * * * * *"}
    after = datetime(2026, 12, 20, 12, 29, 58, tzinfo=UTC)
    whole = parse({**every_second, "exclude": ["30 12 * * *"]})
    assert [tick.strftime("%M:%S") for tick in whole.between(after, after + timedelta(hours=1), 2)] == [
        "29:59",
        "31:00",
    ]
    some = parse({**every_second, "exclude": ["0-10,20 30 12 * * *"]})
    found = [tick.strftime("%M:%S") for tick in some.between(after, after + timedelta(hours=1), 11)]
    assert found[:3] == ["29:59", "30:11", "30:12"] and found[-2:] == ["30:19", "30:21"]


def test_both_passes_of_a_repeated_time_are_excluded_and_a_moved_tick_counts_where_it_comes() -> None:
    berlin = {"timezone": "Europe/Berlin"}
    overlap = datetime(2026, 10, 24, 22, tzinfo=UTC)
    twice = parse({"cron": "0,30 2 * * *", "exclude": ["30 2 * * *"]}, dst_overlap="both", anchor=overlap, **berlin)
    assert ticks(twice, 3, overlap) == ["10-25 00:00", "10-25 01:00", "10-26 01:00"]
    gap = datetime(2027, 3, 27, 23, tzinfo=UTC)
    moved = {"cron": "30 2 * * *", "exclude": ["* 3 * * *"]}
    assert ticks(parse(moved, anchor=gap, **berlin), 1, gap) == ["03-29 00:30"]  # 03:00 on the 28th is excluded
    kept = {"cron": "30 2 * * *", "exclude": ["* 2 28 3 *"]}
    assert ticks(parse(kept, anchor=gap, **berlin), 1, gap) == ["03-28 01:00"]  # 02:30 does not exist, 03:00 does


@pytest.mark.parametrize(("day", "last", "count"), [("2027-03-28", "22:30", 53), ("2026-10-25", "21:30", 51)])
def test_the_last_tick_before_an_excluded_day_is_found_on_the_day_of_a_change(day: str, last: str, count: int) -> None:
    """The day began under the other offset."""
    schedule = parse({"cron": "0,30 * * * *", "exclude": [day]}, timezone="Europe/Berlin", anchor=None)
    evening = datetime.fromisoformat(f"{day}T20:00:00Z")
    found = schedule.latest(evening - timedelta(days=2), evening)
    assert found is not None and f"{found:%H:%M}" == last
    assert schedule.count_between(evening - timedelta(days=2), evening) == count


def test_long_stretches_are_leapt_over() -> None:
    """A second for each step would be a year of them."""
    schedule = parse({"cron": "* * * * * *", "exclude": ["2026-12-21/2027-12-31", "* * * * MON-FRI"]})
    steps = Steps(5_000)
    metered = Schedule.parse({"cron": "* * * * * *", "exclude": ["2026-12-21/2027-12-31"]}, anchor=NOW, steps=steps)
    start = datetime(2026, 12, 20, 23, 59, 59, tzinfo=UTC)
    assert schedule.next_after(start) == datetime(2028, 1, 1, tzinfo=UTC)
    assert metered.count_between(start, datetime(2028, 1, 1, tzinfo=UTC)) == 1
    assert schedule.latest(start, datetime(2028, 1, 1, tzinfo=UTC) - timedelta(seconds=1)) == start


@pytest.mark.parametrize(
    "exclude",
    [
        ["* * * * *"],
        ["* * * * SAT,SUN", "* * * * MON-FRI"],
        ["1971-01-01/9000-12-31"],
        ["RRULE:FREQ=DAILY"],
        ["0 9 * * *"],
        ["* 0-11 * * *", "* 12-23 * * *"],
    ],
)
def test_exclusions_that_leave_no_tick_are_refused(exclude: list[str]) -> None:
    with pytest.raises(ScheduleError, match="excluded") as refused:
        parse({**WORKDAYS, "exclude": exclude})
    assert refused.value.pointer == "/schedule/exclude"


def test_a_schedule_whose_last_ticks_are_excluded_ends() -> None:
    schedule = parse({"at": "2026-12-24T10:00:00Z", "also": ["2026-12-26T10:00:00Z"], "exclude": ["2026-12-26"]})
    assert ticks(schedule, 5) == ["12-24 10:00"]


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
@pytest.mark.parametrize("exclusion", ["2026-12-24/9000-12-31", "DTSTART:20261224\nRRULE:FREQ=DAILY"])
def test_an_exclusion_that_never_ends_ends_the_schedule(exclusion: str, zone: str) -> None:
    schedule = parse({"cron": "0 9 * * *", "exclude": [exclusion]}, timezone=zone)
    (*_, last) = schedule.between(NOW, NOW + timedelta(days=30), 10)
    assert last.day == 23 and schedule.next_after(last) is None
    assert schedule.next_after(last + timedelta(days=3000)) is None
    assert schedule.latest(last, last + timedelta(days=9000)) == last


@pytest.mark.parametrize(
    ("edge", "before", "first"),
    [
        ("2026-10-25T02:30/2036-01-10T00:00", "2026-10-25T00:30", "2026-10-25T01:00"),  # the clock goes back out of it
        (
            "2025-10-25T00:00/2026-03-29T02:30",
            "2026-03-29T00:59",
            "2026-03-29T01:00",
        ),  # it ends in an hour that is left out
        ("2020-01-01T00:00/2026-10-25T02:30", "2026-10-25T00:29", "2026-10-25T00:30"),
    ],
)
def test_a_long_exclusion_may_begin_and_end_at_a_change_of_the_clock(edge: str, before: str, first: str) -> None:
    schedule = parse({"cron": "* * * * *", "exclude": [edge]}, timezone="Europe/Berlin", dst_overlap="both")
    after = datetime.fromisoformat(before).replace(tzinfo=UTC)
    assert schedule.next_after(after) == datetime.fromisoformat(first).replace(tzinfo=UTC)


def test_a_long_exclusion_is_leapt_over_in_a_few_steps() -> None:
    steps = Steps()
    spec = {"cron": "0 9 * * *", "exclude": ["2027-01-01/2085-12-31"]}
    schedule = Schedule.parse(spec, timezone="Europe/Berlin", anchor=NOW, steps=steps)
    ticks = schedule.ticks
    steps.spent = 0
    assert ticks.next(to_ms(datetime(2026, 12, 31, 12, tzinfo=UTC))) == to_ms(datetime(2086, 1, 1, 8, tzinfo=UTC))
    assert ticks.latest(to_ms(NOW), to_ms(datetime(2085, 12, 31, tzinfo=UTC))) == to_ms(
        datetime(2026, 12, 31, 8, tzinfo=UTC)
    )
    assert steps.spent < 10


@pytest.mark.parametrize("zone", ["UTC", "Australia/Lord_Howe"])
@pytest.mark.parametrize("often", ["*/5 * * *", "*/10 * * * *", "1-59 0-22 * *"])
def test_ticks_that_are_excluded_one_by_one_for_months_come_back(often: str, zone: str) -> None:
    schedule = parse({"cron": f"{often} *", "exclude": [f"{often.removesuffix(' *')} 3-10 *"]}, timezone=zone)
    last = schedule.next_after(datetime(2027, 3, 3, tzinfo=UTC))
    assert last is not None and last.astimezone(ZoneInfo(zone)).strftime("%m-%d") == "11-01"
    before = schedule.latest(NOW, last - timedelta(seconds=1))
    assert before is not None and before.astimezone(ZoneInfo(zone)).strftime("%m-%d") == "02-28"


@pytest.mark.parametrize("gap", ["run", "shift", "skip"])
@pytest.mark.parametrize(
    ("zone", "change"),
    [
        ("Europe/Berlin", "2027-03-28"),
        ("Australia/Lord_Howe", "2027-10-03"),
        ("America/Santiago", "2027-09-05"),
        ("Pacific/Apia", "2011-12-30"),
    ],
)
def test_days_that_an_expression_excludes_as_a_whole_are_judged_by_the_wall_clock_at_a_change(
    zone: str, change: str, gap: str
) -> None:
    """Ticks that a gap has moved may come at a time of the day that is not excluded."""
    start = datetime.fromisoformat(f"{change}T00:00:00Z") - timedelta(days=3)
    window = (start, start + timedelta(days=6), 1000)
    options: dict[str, Any] = {"timezone": zone, "anchor": None}
    for minutes, days in itertools.product(("10,50", "0,20,30"), ("SUN,MON", "FRI,SAT", "*")):
        text, exclusion = f"{minutes} 0-23 * * *", f"{minutes} 0-23 * 2-12 {days}"
        hidden = parse(exclusion, dst_gap="skip", dst_overlap="both", **options).between(*window)
        every = parse(text, dst_gap=gap, **options).between(*window)
        some = parse({"cron": text, "exclude": [exclusion]}, dst_gap=gap, **options)
        left = [tick for tick in every if tick not in hidden]
        assert some.between(*window) == left
        assert some.count_between(*window[:2]) == len(left)
        assert [some.latest(start, tick - timedelta(seconds=1)) for tick in every[1:]] == [
            max((other for other in left if other < tick), default=None) for tick in every[1:]
        ]


@pytest.mark.parametrize(
    ("parts", "pointer", "words"),
    [
        ({"also": "0 11 * * SAT"}, "/schedule/also", "not a list"),
        ({"also": ["0 60 * * *"]}, "/schedule/also/0", "60"),
        ({"also": ["@daily", {"cron": "* * 31 2 *"}]}, "/schedule/also/1/cron", "no year has"),
        ({"also": [{"cron": "@daily", "exclude": ["2030-01-01"]}]}, "/schedule/also/0", "of its own"),
        ({"also": [None]}, "/schedule/also/0", "null"),
        ({"also": [{"every": "1h", "after": "finish"}]}, "/schedule/also/0", "goes with no other schedule"),
        ({"also": ["@daily"] * 21}, "/schedule/also", "at most 20"),
        ({"also": ["CRON_TZ=Asia/Tokyo 0 9 * * *"]}, "/timezone", "a job has one"),
        ({"exclude": ["2026-12-24"] * 201}, "/schedule/exclude", "at most 200"),
        ({"exclude": ["2026-02-30"]}, "/schedule/exclude/0", "does not exist"),
        ({"exclude": ["2026-12-27/2026-12-24"]}, "/schedule/exclude/0", "ends before it starts"),
        ({"exclude": ["2026-12-24T10:00:00Z/2026-12-24T11:00:00Z"]}, "/schedule/exclude/0", "has an offset"),
        ({"exclude": ["2026-12-24T10:00"]}, "/schedule/exclude/0", "single moment"),
        ({"exclude": ["2026-12-24/2026-12-25T10:00"]}, "/schedule/exclude/0", "cannot be read"),
        ({"exclude": ["every 5m"]}, "/schedule/exclude/0", "is an interval"),
        ({"exclude": ["@daily"]}, "/schedule/exclude/0", "excludes one minute"),
        ({"exclude": [{"at": "2026-12-24"}]}, "/schedule/exclude/0", "cannot be read"),
        ({"exclude": [7]}, "/schedule/exclude/0", "cannot be read"),
        ({"exclude": ["CRON_TZ=Asia/Tokyo * * * * SAT"]}, "/schedule/exclude/0", "time zone"),
        ({"exclude": ["FREQ=HOURLY"]}, "/schedule/exclude/0", "names whole days"),
        ({"exclude": ["FREQ=DAILY;BYHOUR=9"]}, "/schedule/exclude/0", "names whole days"),
        ({"exclude": ["DTSTART:20300101T090000\nRRULE:FREQ=DAILY"]}, "/schedule/exclude/0", "names whole days"),
        ({"exclude": ["* * 1 * MON"]}, "/day_match", "day_match"),
        ({"exclude": ["2026-12-24", "* * ? * 1"]}, "/schedule/exclude/1", "has two readings"),
        ({"exclude": ["cron(* * ? * SAT *)"]}, "/schedule/exclude/0", "set dialect to 'aws'"),
    ],
)
def test_what_cannot_be_decided_is_refused_with_its_place(parts: dict[str, Any], pointer: str, words: str) -> None:
    with pytest.raises(ScheduleError) as refused:
        parse({**WORKDAYS, **parts})
    assert (refused.value.pointer, words in refused.value.message) == (pointer, True), refused.value.message


@pytest.mark.parametrize(
    ("schedule", "same"),
    [
        ({"cron": "rate(1 hour)", "exclude": ["cron(* * ? * SAT *)"]}, {"every": "1h", "exclude": ["* * * * SAT"]}),
        (
            {
                "cron": "cron(0 9 ? * MON *)",
                "also": ["at(2026-12-27T10:00:00)", "0 10 ? * 2 *"],
                "exclude": ["2026-12-28"],
            },
            {"cron": "0 9 * * MON", "also": ["2026-12-27T10:00:00Z", "0 10 * * MON"], "exclude": ["2026-12-28"]},
        ),
    ],
)
def test_forms_of_eventbridge_are_read_in_every_part(schedule: dict[str, Any], same: dict[str, Any]) -> None:
    assert parse(schedule, dialect="aws") == parse(same)


@pytest.mark.parametrize("exclusion", ["rate(5 minutes)", "at(2026-12-24T10:00:00)"])
def test_single_moments_of_eventbridge_are_not_excluded(exclusion: str) -> None:
    with pytest.raises(ScheduleError, match="single moments") as refused:
        parse({"cron": "cron(0 9 ? * MON *)", "exclude": [exclusion]}, dialect="aws")
    assert refused.value.pointer == "/schedule/exclude/0"


def test_day_match_applies_to_the_expressions_that_need_it() -> None:
    spec = {"every": "1d", "also": ["0 9 1 * MON"], "exclude": ["* * 24 12 THU"]}
    schedule = parse(spec, day_match="and")
    assert Schedule.from_stored(schedule.to_stored()) == schedule
    with pytest.raises(ScheduleError, match="take it out"):
        parse({"every": "1d", "exclude": ["2026-12-24"]}, day_match="and")


def test_words_name_the_schedules_and_the_exclusions() -> None:
    spec = {**WORKDAYS, "also": ["every 6h"], "exclude": ["2026-12-24/2027-01-01", "* * * * SAT", "* 2-4 * * *"]}
    assert parse(spec).describe() == (
        "At 09:00 Monday to Friday; and every 6 hours; except from 2026-12-24 to 2027-01-01, on Saturday and every "
        "minute, from 02:00 to 04:59"
    )
    many = parse({**WORKDAYS, "exclude": [f"2027-01-{day:02}" for day in range(1, 10)]}).describe()
    assert many.endswith("on 2027-01-05 and 4 more exclusions")


def test_a_preview_lists_what_is_excluded_and_what_a_clock_change_does() -> None:
    spec = {"cron": "30 2 * * *", "also": ["0 12 * * *"], "exclude": ["2027-03-26", "2027-03-30/2027-03-31"]}
    found = explain_text(spec, "Europe/Berlin", 9, datetime(2027, 3, 24, 22, tzinfo=UTC))
    assert found["skipped"] == [
        {"local": "2027-03-26T02:30:00", "why": "excluded by '2027-03-26'"},
        {"local": "2027-03-30T02:30:00", "why": "excluded by '2027-03-30/2027-03-31'"},
    ]
    assert {tick["local"]: tick["dst"] for tick in found["ticks"] if tick["dst"]} == {
        "2027-03-28T03:00:00+02:00": "moved"
    }
    assert found["warnings"] == ["02:30 does not exist on 2027-03-28: runs at 03:00"]
    quiet = explain_text({**spec, "exclude": ["2027-03-28"]}, "Europe/Berlin", 8, datetime(2027, 3, 24, tzinfo=UTC))
    assert quiet["warnings"] == []


def test_an_exclusion_of_one_minute_is_warned_about() -> None:
    found = explain_text({**WORKDAYS, "exclude": ["0 0 25 12 *"]}, "UTC", 1, NOW)
    assert found["warnings"] == [
        "The exclusion '0 0 25 12 *' excludes the minute 00:00 only; for whole days write '* * 25 12 *'."
    ]


def test_missed_ticks_are_those_that_are_not_excluded() -> None:
    schedule = parse({"cron": "0 * * * *", "also": ["30 12 * * *"], "exclude": ["2026-12-21"]})
    first = datetime(2026, 12, 20, 13, tzinfo=UTC)
    now = datetime(2026, 12, 22, 12, 45, tzinfo=UTC)
    decision = decide(schedule, first, now, MisfirePolicy(RUN_ALL, 3600, 100))
    assert decision.catch_up is not None and decision.catch_up.ticks == 2  # 12:00 and 12:30
    assert sum(missed.ticks for missed in decision.missed) == 11 + 12
    assert decision.next_tick == datetime(2026, 12, 22, 13, tzinfo=UTC)


def test_a_question_beyond_its_steps_is_refused() -> None:
    spec = {"cron": "* * * * * *", "also": ["*/7 * * * * *"]}
    schedule = Schedule.parse(spec, anchor=NOW, steps=Steps(30_000))
    with pytest.raises(CostlySchedule):
        schedule.count_between(NOW, NOW + timedelta(days=30))


def test_equal_schedules_share_what_is_remembered_and_h_differs_by_job() -> None:
    spec = {**WORKDAYS, "exclude": ["2026-12-21"]}
    assert parse(spec) == parse(dict(spec)) and hash(parse(spec)) == hash(parse(dict(spec)))
    hashed = {"cron": "H H * * *", "exclude": ["2026-12-21"]}
    assert parse(hashed, hash_key="1") != parse(hashed, hash_key="2")
