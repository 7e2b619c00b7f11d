"""What happens to past ticks: RUN_ONCE, SKIP and RUN_ALL, by grace and interval."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detent.domain import misfire
from detent.domain.misfire import (
    AUTOMATIC,
    RUN_ALL,
    RUN_ONCE,
    SHORTEST_GRACE,
    SKIP,
    THRESHOLD,
    CatchUp,
    MisfireDecision,
    MisfirePolicy,
    MissedRange,
    grace_period,
    nth_tick,
    split_by_day,
)
from detent.domain.schedule import Schedule

TICK = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)
SECOND, MINUTE, HOUR, DAY = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


def decide(
    schedule: Schedule, tick: datetime, now: datetime, grace: int, missed: int = RUN_ONCE, most: int = 100
) -> MisfireDecision:
    return misfire.decide(schedule, tick, now, MisfirePolicy(missed, grace, most), JOB)


def every(text: str) -> Schedule:
    """An interval as it comes from its shared row: without the anchor, which is the job's own."""
    return Schedule.from_stored(Schedule.parse(f"every {text}").to_stored())


def test_a_single_late_tick_inside_its_grace_is_fired_itself() -> None:
    assert decide(every("1h"), TICK, TICK + 20 * MINUTE, AUTOMATIC) == MisfireDecision(TICK, [])


def test_of_several_the_latest_runs_and_those_before_it_are_merged() -> None:
    decision = decide(every("10m"), TICK, TICK + 35 * MINUTE, AUTOMATIC)
    merged = MissedRange(TICK, TICK + 20 * MINUTE, 3, "merged")
    assert decision == MisfireDecision(TICK + 30 * MINUTE, [merged])


def test_ticks_that_are_merely_late_are_not_merged_into_a_misfire() -> None:
    decision = decide(every("10s"), TICK, TICK + 100 * SECOND, AUTOMATIC)
    assert decision == MisfireDecision(TICK + 30 * SECOND, [MissedRange(TICK, TICK + 20 * SECOND, 3, "merged")])


def test_a_tick_exactly_a_minute_late_is_merely_late() -> None:
    decision = decide(every("10m"), TICK, TICK + 21 * MINUTE, AUTOMATIC)
    assert decision == MisfireDecision(TICK + 10 * MINUTE, [MissedRange(TICK, TICK, 1, "merged")])


def test_a_tick_merely_late_fires_even_where_the_grace_is_shorter_than_its_lateness() -> None:
    decision = decide(every("50s"), TICK, TICK + 95 * SECOND, 10)
    assert decision == MisfireDecision(TICK + 50 * SECOND, [MissedRange(TICK, TICK, 1, "grace")])


def test_when_even_the_latest_is_beyond_its_grace_none_runs() -> None:
    decision = decide(every("1d"), TICK, TICK + 2 * DAY + 13 * HOUR, 3600)
    assert decision.next_tick == TICK + 3 * DAY
    assert [(missed.first, missed.ticks, missed.reason) for missed in decision.missed] == [
        (TICK, 1, "grace"),
        (TICK + DAY, 1, "grace"),
        (TICK + 2 * DAY, 1, "grace"),
    ]


@pytest.mark.parametrize(("late", "runs"), [(HOUR, True), (HOUR + timedelta(milliseconds=1), False)])
def test_the_end_of_the_grace_is_still_inside(late: timedelta, runs: bool) -> None:
    decision = decide(every("1d"), TICK, TICK + late, 3600)
    assert (decision.next_tick == TICK) == runs
    assert bool(decision.missed) != runs


def test_no_grace_at_all_runs_nothing_that_is_late() -> None:
    decision = decide(every("10m"), TICK, TICK + 15 * MINUTE, 0)
    assert decision == MisfireDecision(TICK + 20 * MINUTE, [MissedRange(TICK, TICK + 10 * MINUTE, 2, "grace")])


@pytest.mark.parametrize(
    ("following", "grace"),
    [(MINUTE, HOUR), (2 * HOUR, HOUR), (DAY, 12 * HOUR), (7 * DAY, 84 * HOUR), (None, SHORTEST_GRACE)],
)
def test_the_automatic_grace_is_an_hour_or_half_the_way_to_the_next_tick(
    following: timedelta | None, grace: timedelta
) -> None:
    assert grace_period(AUTOMATIC, TICK, None if following is None else TICK + following) == grace


def test_a_chosen_grace_is_taken_as_it_is() -> None:
    assert grace_period(0, TICK, TICK + DAY) == timedelta(0)
    assert grace_period(90, TICK, None) == timedelta(seconds=90)


def test_a_nightly_job_still_runs_after_two_hours_of_outage() -> None:
    nightly = Schedule.parse("0 3 * * *")
    tick = datetime(2026, 3, 10, 3, 0, tzinfo=UTC)
    assert decide(nightly, tick, tick + 2 * HOUR, AUTOMATIC) == MisfireDecision(tick, [])


# --- one-offs ---


def once(at: datetime = TICK) -> Schedule:
    return Schedule.from_stored(Schedule.parse(at.isoformat()).to_stored())


def test_a_late_one_off_runs_within_its_grace() -> None:
    assert decide(once(), TICK, TICK + 50 * MINUTE, AUTOMATIC) == MisfireDecision(TICK, [])


def test_a_one_off_beyond_its_grace_is_missed_and_has_no_tick_to_come() -> None:
    decision = decide(once(), TICK, TICK + 2 * HOUR, AUTOMATIC)
    assert decision == MisfireDecision(None, [MissedRange(TICK, TICK, 1, "grace")])


def test_a_schedule_that_ended_meanwhile_runs_its_last_tick() -> None:
    schedule = Schedule.parse("every 10m", anchor=TICK, ends_at=TICK + 25 * MINUTE)
    decision = decide(schedule, TICK, TICK + 40 * MINUTE, AUTOMATIC)
    assert decision == MisfireDecision(TICK + 20 * MINUTE, [MissedRange(TICK, TICK + 10 * MINUTE, 2, "merged")])


# --- ranges ---


def test_a_range_ends_with_its_day() -> None:
    start = datetime(2026, 3, 10, 22, 0, tzinfo=UTC)
    decision = decide(every("1h"), start, start + 28 * HOUR + 2 * MINUTE, AUTOMATIC)
    assert decision.next_tick == start + 28 * HOUR
    assert decision.missed == [
        MissedRange(start, start + HOUR, 2, "merged"),
        MissedRange(start + 2 * HOUR, start + 25 * HOUR, 24, "merged"),
        MissedRange(start + 26 * HOUR, start + 27 * HOUR, 2, "merged"),
    ]


def test_a_tick_at_midnight_belongs_to_the_day_it_begins() -> None:
    midnight = datetime(2026, 3, 11, tzinfo=UTC)
    ranges = split_by_day(every("12h").anchored(midnight), midnight - 12 * HOUR, midnight, "grace")
    assert ranges == [
        MissedRange(midnight - 12 * HOUR, midnight - 12 * HOUR, 1, "grace"),
        MissedRange(midnight, midnight, 1, "grace"),
    ]


def test_days_are_utc_days_whatever_the_jobs_zone() -> None:
    tokyo = Schedule.parse("0 * * * *", timezone="Asia/Tokyo")
    first = datetime(2026, 3, 10, 20, 0, tzinfo=UTC)
    ranges = split_by_day(tokyo, first, first + 6 * HOUR, "merged")
    assert [(item.first.day, item.ticks) for item in ranges] == [(10, 4), (11, 3)]


def test_a_job_in_the_hour_that_happens_twice_is_counted_by_its_schedule() -> None:
    berlin = Schedule.parse("*/30 * * * *", timezone="Europe/Berlin")
    first = datetime(2026, 10, 24, 23, 0, tzinfo=UTC)
    last = berlin.latest(first, first + 4 * HOUR)
    assert last is not None
    ranges = split_by_day(berlin, first, last, "merged")
    assert sum(item.ticks for item in ranges) == 1 + len(berlin.between(first, last, 100))


# --- SKIP ---


@pytest.mark.parametrize("grace", [AUTOMATIC, 0, 86_400])
def test_under_skip_nothing_missed_runs_whatever_the_grace(grace: int) -> None:
    decision = decide(every("10m"), TICK, TICK + 35 * MINUTE, grace, SKIP)
    assert decision == MisfireDecision(TICK + 40 * MINUTE, [MissedRange(TICK, TICK + 30 * MINUTE, 4, "policy")])


def test_under_skip_a_tick_that_is_merely_late_fires() -> None:
    decision = decide(every("10m"), TICK, TICK + 20 * MINUTE + 30 * SECOND, AUTOMATIC, SKIP)
    assert decision == MisfireDecision(TICK + 20 * MINUTE, [MissedRange(TICK, TICK + 10 * MINUTE, 2, "policy")])


def test_under_skip_a_one_off_that_was_missed_is_over() -> None:
    assert decide(once(), TICK, TICK + 2 * MINUTE, AUTOMATIC, SKIP) == MisfireDecision(
        None, [MissedRange(TICK, TICK, 1, "policy")]
    )


# --- RUN_ALL ---


def test_under_run_all_every_tick_inside_the_grace_is_caught_up_in_addition_to_live_ticks() -> None:
    decision = decide(every("10m"), TICK, TICK + 35 * MINUTE, AUTOMATIC, RUN_ALL)
    assert decision == MisfireDecision(TICK + 40 * MINUTE, [], CatchUp(TICK, TICK + 30 * MINUTE, 4))
    assert decision.passed == TICK + 30 * MINUTE


def test_what_is_older_than_the_grace_is_not_made_up_for() -> None:
    decision = decide(every("10m"), TICK, TICK + 95 * MINUTE, 1800, RUN_ALL)
    assert decision.missed == [MissedRange(TICK, TICK + 60 * MINUTE, 7, "grace")]
    assert decision.catch_up == CatchUp(TICK + 70 * MINUTE, TICK + 90 * MINUTE, 3)


def test_of_more_than_may_be_made_up_for_the_oldest_are() -> None:
    decision = decide(every("10m"), TICK, TICK + 95 * MINUTE, 86_400, RUN_ALL, most=3)
    assert decision.catch_up == CatchUp(TICK, TICK + 20 * MINUTE, 3)
    assert decision.missed == [MissedRange(TICK + 30 * MINUTE, TICK + 90 * MINUTE, 7, "limit")]
    assert decision.passed == TICK + 90 * MINUTE


def test_what_is_too_old_and_what_is_too_much_are_both_reported() -> None:
    decision = decide(every("10m"), TICK, TICK + 95 * MINUTE, 3600, RUN_ALL, most=2)
    assert decision.missed == [
        MissedRange(TICK, TICK + 30 * MINUTE, 4, "grace"),
        MissedRange(TICK + 60 * MINUTE, TICK + 90 * MINUTE, 4, "limit"),
    ]
    assert decision.catch_up == CatchUp(TICK + 40 * MINUTE, TICK + 50 * MINUTE, 2)


def test_a_single_tick_to_make_up_for_is_fired_as_itself() -> None:
    assert decide(every("1d"), TICK, TICK + 2 * HOUR, AUTOMATIC, RUN_ALL) == MisfireDecision(TICK, [])
    decision = decide(every("1h"), TICK, TICK + 6 * HOUR + 2 * MINUTE, AUTOMATIC, RUN_ALL)
    assert decision == MisfireDecision(TICK + 6 * HOUR, [MissedRange(TICK, TICK + 5 * HOUR, 6, "grace")])


def test_a_daily_job_makes_up_for_days_only_with_a_grace_that_long() -> None:
    now = TICK + 3 * DAY + 2 * HOUR
    assert decide(every("1d"), TICK, now, AUTOMATIC, RUN_ALL).catch_up is None
    assert decide(every("1d"), TICK, now, 7 * 86_400, RUN_ALL).catch_up == CatchUp(TICK, TICK + 3 * DAY, 4)


def test_a_one_off_under_run_all_runs_inside_its_grace_and_not_beyond() -> None:
    assert decide(once(), TICK, TICK + 50 * MINUTE, AUTOMATIC, RUN_ALL) == MisfireDecision(TICK, [])
    assert decide(once(), TICK, TICK + 2 * HOUR, AUTOMATIC, RUN_ALL).missed == [MissedRange(TICK, TICK, 1, "grace")]


def test_a_bounded_schedule_that_ended_meanwhile_makes_up_for_its_last_ticks() -> None:
    schedule = Schedule.parse("every 10m", anchor=TICK, ends_at=TICK + 25 * MINUTE)
    decision = decide(schedule, TICK, TICK + 40 * MINUTE, AUTOMATIC, RUN_ALL)
    assert decision == MisfireDecision(None, [], CatchUp(TICK, TICK + 20 * MINUTE, 3))


@pytest.mark.parametrize("number", [1, 2, 63, 64, 65, 66, 1000, 5000])
@pytest.mark.parametrize(
    "schedule",
    [every("7s"), Schedule.parse("*/5 * * * *"), Schedule.parse("0 9 * * mon-fri", timezone="Europe/Berlin")],
    ids=["interval", "cron", "weekdays"],
)
def test_the_tick_of_a_number_is_found_without_walking_to_it(schedule: Schedule, number: int) -> None:
    first = schedule.next_after(TICK)
    assert first is not None
    ticks = schedule.anchored(first)
    walked = [first, *ticks.between(first, datetime(2060, 1, 1, tzinfo=UTC), 5001)]
    assert nth_tick(ticks, first, walked[5000], number) == walked[number - 1]


# --- jitter ---


def test_a_tick_that_jitter_puts_off_is_not_missed_before_its_time() -> None:
    schedule = Schedule.parse("0 * * * *", jitter_seconds=3000)
    tick = next(at for at in (TICK + number * HOUR for number in range(100)) if schedule.jitter(JOB, at) > 30 * MINUTE)
    decision = decide(schedule, tick - HOUR, tick + 5 * MINUTE, 3 * 3600, RUN_ALL)
    assert decision == MisfireDecision(tick - HOUR, []), "the tick before is late, this one is still to come"
    decision = decide(schedule, tick - HOUR, tick + 5 * MINUTE, AUTOMATIC, SKIP)
    assert (decision.next_tick, decision.passed) == (tick, tick - HOUR)


def test_the_grace_of_a_tick_begins_when_it_was_to_be_fired() -> None:
    schedule = Schedule.parse("0 12 * * *", jitter_seconds=6 * 3600)
    delay = schedule.jitter(JOB, TICK)
    assert delay > HOUR
    assert decide(schedule, TICK, TICK + delay + 10 * MINUTE, 3600) == MisfireDecision(TICK, [])
    assert decide(schedule, TICK, TICK + delay + 61 * MINUTE, 3600).missed == [MissedRange(TICK, TICK, 1, "grace")]


# --- all of them, against an oracle that walks ---

JOB = 7
SCHEDULES = [
    every("40s"),
    every("7m"),
    every("5h"),
    Schedule.parse("*/5 * * * *"),
    Schedule.parse("30 2 * * *", timezone="Europe/Berlin"),
    Schedule.parse("0 9 * * mon-fri", timezone="America/New_York"),
    Schedule.parse("15,45 */3 * * *", timezone="Australia/Lord_Howe"),
    Schedule.parse("*/5 * * * *", jitter_seconds=240),
    Schedule.parse("0 */5 * * *", jitter_seconds=17_000),
    Schedule.parse("30 2 * * *", timezone="Europe/Berlin", jitter_seconds=30),
]


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(SCHEDULES),
    st.datetimes(datetime(2025, 1, 1), datetime(2027, 1, 1), timezones=st.just(UTC)),
    st.timedeltas(MINUTE, 3 * DAY),
    st.one_of(st.just(AUTOMATIC), st.integers(0, 200_000)),
    st.sampled_from([RUN_ONCE, SKIP, RUN_ALL]),
    st.integers(1, 200),
)
def test_every_tick_is_accounted_for_once(
    schedule: Schedule, moment: datetime, outage: timedelta, grace: int, missed: int, most: int
) -> None:
    """What is missed, what is made up for, the tick to run and those merely late are together the ticks of the outage,
    and each is what a walk through them says."""
    tick = schedule.next_after(moment.replace(microsecond=0))
    assert tick is not None
    ticks = schedule.anchored(tick)
    now = tick + schedule.jitter(JOB, tick) + outage
    decision = decide(schedule, tick, now, grace, missed, most)
    all_past = [tick, *ticks.between(tick, now, 1_000_000)]
    fates = {at: item.reason for item in decision.missed for at in _ticks_of(ticks, item)}
    if decision.catch_up is not None:
        fates |= dict.fromkeys(_ticks_of(ticks, decision.catch_up), "made up")
    rest = [decision.next_tick, *ticks.between(decision.next_tick, now, 1_000_000)] if decision.next_tick else []
    fates |= {at: "fires" for at in rest if at <= now}
    assert fates == _walked(ticks, all_past, now, MisfirePolicy(missed, grace, most))
    assert all(item.first.date() == item.last.date() for item in decision.missed)
    assert decision.passed is None or rest[:1] == [] or decision.passed < rest[0]


def _walked(schedule: Schedule, past: list[datetime], now: datetime, policy: MisfirePolicy) -> dict[datetime, str]:
    """The rule, word by word."""
    late = {at: now - at - schedule.jitter(JOB, at) for at in past}
    fates = {at: "fires" for at in past if late[at] <= THRESHOLD}
    misfires = [at for at in past if late[at] > THRESHOLD]
    if policy.missed == SKIP or not misfires:
        return fates | dict.fromkeys(misfires, "policy")
    following = {at: schedule.next_after(at) if at == misfires[-1] else None for at in misfires}
    inside = [at for at in misfires if late[at] <= grace_period(policy.grace, at, following[at])]
    if policy.missed == RUN_ONCE:
        runs = inside[-1:] if inside and inside[-1] == misfires[-1] else []
        fates |= dict.fromkeys(misfires, "merged" if runs else "grace")
        return fates | dict.fromkeys(runs, "fires")
    fates |= dict.fromkeys(misfires, "grace") | dict.fromkeys(inside, "limit")
    return fates | dict.fromkeys(inside[: policy.max_missed], "fires" if len(inside) == 1 else "made up")


def _ticks_of(schedule: Schedule, item: MissedRange | CatchUp) -> list[datetime]:
    found = [item.first, *schedule.between(item.first, item.last, 1_000_000)]
    assert len(found) == item.ticks
    return found


# --- suspended tenants ---


def test_all_ticks_up_to_now_are_skipped_by_the_day_and_the_next_one_is_to_come() -> None:
    now = TICK + DAY + 25 * MINUTE
    decision = misfire.skip_all(every("10m"), TICK, now, misfire.SUSPENDED)
    assert decision.next_tick == TICK + DAY + 30 * MINUTE
    assert decision.catch_up is None and decision.passed == TICK + DAY + 20 * MINUTE
    assert sum(missed.ticks for missed in decision.missed) == 24 * 6 + 3
    assert {missed.reason for missed in decision.missed} == {"tenant suspended"}
    assert all(missed.first.date() == missed.last.date() for missed in decision.missed)


def test_a_tick_that_is_just_due_is_skipped_alone() -> None:
    decision = misfire.skip_all(every("10m"), TICK, TICK, misfire.SUSPENDED)
    assert decision == MisfireDecision(TICK + 10 * MINUTE, [misfire.MissedRange(TICK, TICK, 1, misfire.SUSPENDED)])
