"""Expected ticks compared with recorded ones, without a database."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from detent.domain.ledger import Account, Entry, LedgerSegment, quantile, rounded_up, settle_account
from detent.domain.ledger_ticks import tick_statuses
from detent.domain.schedule import Schedule

START = datetime(2026, 3, 1, tzinfo=UTC)
HOURLY = Schedule.parse("0 * * * *")
LONG_AGO = START - timedelta(days=30)
LAST, FOLLOWING = START + timedelta(hours=5), START + timedelta(hours=6)


def hour(number: float) -> datetime:
    return START + timedelta(hours=number)


def done(at: datetime, status: str = "succeeded", reason: str | None = None, **more: Any) -> Entry:
    return Entry(at, at, 1, status, reason, **more)


def span_of_ticks(first: datetime, last: datetime, ticks: int, status: str = "missed", reason: str = "merged") -> Entry:
    return Entry(first, last, ticks, status, reason)


def account_of(
    entries: list[Entry],
    *segments: LedgerSegment,
    until: datetime = LAST,
    next_tick: datetime | None = FOLLOWING,
    **options: Any,
) -> Account:
    account = Account()
    settle_account(
        account, segments or [LedgerSegment(LONG_AGO, None, HOURLY)], entries, (START, until), next_tick, **options
    )
    return account


def test_ticks_that_are_all_on_record_once_are_accounted_for_by_outcome() -> None:
    entries = [done(hour(1)), done(hour(2), "dead"), done(hour(3), "skipped", "overlap"), done(hour(4)), done(hour(5))]
    account = account_of(entries)
    assert account.clean
    assert (account.expected, account.accounted) == (
        5,
        Counter({"succeeded": 3, "dead": 1, "skipped: overlap": 1}),
    )


def test_a_tick_without_a_record_is_missing_and_named() -> None:
    account = account_of([done(hour(n)) for n in (1, 2, 4, 5)])
    assert (account.missing, account.missing_count, account.clean) == ([hour(3)], 1, False)


def test_a_tick_that_the_cursor_has_not_reached_is_due_and_not_missing() -> None:
    account = account_of([done(hour(n)) for n in (1, 2, 3)], next_tick=hour(4))
    assert (account.open, account.oldest_due, account.clean) == (Counter({"due": 2}), hour(4), True)


def test_a_cursor_that_leapt_over_a_tick_shows() -> None:
    assert account_of([done(hour(n)) for n in (1, 2, 3)], next_tick=hour(5)).missing == [hour(4)]


def test_a_job_without_a_cursor_has_lost_what_is_not_on_record() -> None:
    assert account_of([done(hour(n)) for n in (1, 2, 3, 4)], next_tick=None).missing == [hour(5)]


def test_runs_that_live_and_ticks_to_be_caught_up_with_are_open() -> None:
    live = done(hour(5), "running", open=True)
    owed = Entry(hour(2), hour(4), 3, "catching up", open=True)
    account = account_of([done(hour(1)), owed, live])
    assert account.clean
    assert account.open == Counter({"catching up": 3, "running": 1})


def test_a_range_accounts_for_all_its_ticks() -> None:
    account = account_of([span_of_ticks(hour(1), hour(4), 4), done(hour(5))])
    assert account.clean
    assert account.accounted == Counter({"missed: merged": 4, "succeeded": 1})


def test_a_range_that_counts_wrongly_is_extra() -> None:
    account = account_of([span_of_ticks(hour(1), hour(4), 3), done(hour(5))])
    assert (account.extra_count, account.extra[0].first) == (1, hour(1))


def test_a_tick_that_is_in_a_range_and_by_itself_is_doubled() -> None:
    account = account_of([span_of_ticks(hour(1), hour(4), 4), done(hour(2)), done(hour(5))])
    assert (account.doubled, account.missing) == ([hour(2)], [])


def test_a_run_at_an_instant_that_is_no_tick_is_extra() -> None:
    account = account_of([done(hour(n)) for n in (1, 2, 2.5, 3, 4, 5)])
    assert ([entry.first for entry in account.extra], account.expected) == ([hour(2.5)], 5)


def test_a_run_from_before_the_job_existed_is_ignored() -> None:
    segment = LedgerSegment(hour(2), None, HOURLY)
    account = account_of([done(hour(n)) for n in (1, 3, 4, 5)], segment)
    assert account.clean
    assert account.expected == 3


def test_segments_of_two_schedules_are_added_up_and_an_instant_at_the_seam_belongs_to_the_first() -> None:
    half_hourly = Schedule.parse("*/30 * * * *")
    segments = LedgerSegment(LONG_AGO, hour(2), HOURLY), LedgerSegment(hour(2), None, half_hourly)
    account = account_of([done(hour(n)) for n in (1, 2, 2.5, 3)], *segments, until=hour(3))
    assert account.clean
    assert account.expected == 4


def test_the_ticks_of_a_pause_that_is_not_over_are_open() -> None:
    segments = LedgerSegment(LONG_AGO, hour(2), HOURLY), LedgerSegment(hour(2), None, HOURLY, paused=True)
    account = account_of([done(hour(1)), done(hour(2), "skipped", "paused")], *segments, next_tick=None)
    assert account.clean
    assert account.open == Counter({"paused": 3})


def test_nothing_is_expected_after_the_end_of_the_last_segment() -> None:
    account = account_of([done(hour(1))], LedgerSegment(LONG_AGO, hour(1.5), HOURLY), next_tick=None)
    assert (account.expected, account.clean) == (1, True)


def test_the_ticks_of_other_zone_data_are_set_apart() -> None:
    segment = LedgerSegment(LONG_AGO, None, HOURLY, tzdata="2020a")
    account = account_of([done(hour(n)) for n in (1, 2, 3.5, 4, 5)], segment, zone_data="2026b")
    assert (account.clean, account.other_zone_data) == (False, 2)
    assert not account_of([], segment, zone_data="2020a").clean


def test_what_was_backfilled_may_be_on_record_whatever_the_schedule_of_that_time_was() -> None:
    half_hourly = Schedule.parse("*/30 * * * *")
    backfill = LedgerSegment(hour(1), hour(3), half_hourly, optional=True)
    entries = [done(hour(n)) for n in (1, 1.5, 2, 2.5, 3, 4, 5)]
    account = account_of(entries, backfill, LedgerSegment(LONG_AGO, None, HOURLY))
    assert (account.expected, account.clean) == (5, True)
    assert account_of([*entries, done(hour(4.5))], backfill, LedgerSegment(LONG_AGO, None, HOURLY)).extra_count == 1


def test_an_interval_is_counted_from_its_anchor() -> None:
    schedule = Schedule.parse("every 90m", anchor=hour(0.25))
    account = account_of([done(hour(n)) for n in (0.25, 1.75, 3.25, 4.75)], LedgerSegment(LONG_AGO, None, schedule))
    assert (account.clean, account.expected) == (True, 4)


def test_lateness_is_counted_over_a_bound() -> None:
    late = [timedelta(milliseconds=n) for n in (3, 40, 999, 1001, 7_300)]
    entries = [done(hour(n), started=hour(n) + by) for n, by in enumerate(late, 1)]
    account = account_of(entries)
    assert (account.late, quantile(account.lateness, 0.5), quantile(account.lateness, 0.99)) == (2, 1000, 7300)


@pytest.mark.parametrize(("exact", "rounded"), [(0, 0), (7, 7), (99, 99), (100, 100), (101, 110), (12_345, 13_000)])
def test_lateness_is_rounded_up_to_two_digits(exact: int, rounded: int) -> None:
    assert rounded_up(exact) == rounded


def test_the_quantile_of_nothing_is_nothing() -> None:
    assert quantile(Counter(), 0.99) is None


def test_each_tick_is_reported_with_its_fate_and_a_range_as_one() -> None:
    entries = [done(hour(1)), span_of_ticks(hour(2), hour(4), 3), done(hour(6), "pending", open=True)]
    told = tick_statuses(
        [LedgerSegment(LONG_AGO, None, HOURLY)], entries, START, hour(9), hour(7), hour(6.1), {hour(8)}
    )
    assert [(tick.at, tick.status, tick.ticks) for tick in told] == [
        (hour(1), "succeeded", 1),
        (hour(2), "missed", 3),
        (hour(5), "missing", 1),
        (hour(6), "pending", 1),
        (hour(7), "scheduled", 1),
        (hour(8), "to be skipped", 1),
        (hour(9), "scheduled", 1),
    ]


def test_many_ticks_are_compared_quickly_when_they_agree() -> None:
    schedule = Schedule.parse("* * * * *")
    ticks = schedule.between(START, START + timedelta(days=1), 2000)
    account = account_of(
        [done(tick) for tick in ticks], LedgerSegment(LONG_AGO, None, schedule), until=START + timedelta(days=1)
    )
    assert (account.expected, account.accounted["succeeded"], account.clean) == (1440, 1440, True)
