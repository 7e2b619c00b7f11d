"""The ledger: compares the expected ticks of a job with the recorded ones. Pure: the database's time is an argument.

Expected are the ticks of the schedules in force, segment by segment, computed again from the schedule; the cursor only
distinguishes a tick that is yet to fire from one that was passed. Recorded are history, live runs and catch-ups. Every
expected tick must be recorded exactly once, or be still to come:

    accounted for   one entry in history covers it, by itself or as one of a range
    open            it waits or runs, is to be caught up, is due, or belongs to a pause that is not over
    missing         nothing is recorded, and the cursor has passed it
    doubled         more than one entry covers it
    extra           an entry that covers no expected tick, or a range with a wrong count of ticks
    unknown         a span whose schedule cannot be read: its expected ticks are unknown, so it is not clean
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

from detent.domain.schedule import Schedule

MILLISECOND = timedelta(milliseconds=1)
MAX_NAMED = 100
DUE = "due"
PAUSED = "paused"
CATCHING_UP = "catching up"


class LedgerSegment(NamedTuple):
    """The ticks of `schedule` in (since, until] are expected; until None: still. `paused`: they do not run.

    `tzdata` is the zone data that computed them, None where it does not matter. `optional`: they were backfilled, and
    may be recorded whatever the schedule of that time was. `job` is the number of the job, on which jitter depends."""

    since: datetime
    until: datetime | None
    schedule: Schedule
    paused: bool = False
    tzdata: str | None = None
    optional: bool = False
    job: int = 0

    def fires_at(self, tick: datetime) -> datetime:
        """When a tick is to fire: its time plus jitter."""
        return tick + self.schedule.jitter(self.job, tick)


WITHOUT_CURSOR = "The job has no cursor, so it does not fire: edit the job, or delete it and create it again."


class Unread(NamedTuple):
    """A span whose expected ticks are unknown, and why; until None: still."""

    since: datetime
    until: datetime | None
    why: str
    optional: bool = False

    def covers(self, tick: datetime) -> bool:
        return self.since < tick and (self.until is None or tick <= self.until)


class Entry(NamedTuple):
    """The record of one tick, or of all from the first to the last. `started` is when the first attempt started."""

    first: datetime
    last: datetime
    ticks: int
    status: str
    reason: str | None = None
    started: datetime | None = None
    open: bool = False

    @property
    def words(self) -> str:
        return f"{self.status}: {self.reason}" if self.reason and self.status in ("skipped", "missed") else self.status


@dataclass(slots=True)
class Account:
    """The sums of one job's ticks. Of the wrong ticks, the first MAX_NAMED are listed. `overdue`: how many of the due
    ticks should have fired long ago. `unknown`: the spans that could not be compared."""

    expected: int = 0
    accounted: Counter[str] = field(default_factory=Counter)
    open: Counter[str] = field(default_factory=Counter)
    missing_count: int = 0
    doubled_count: int = 0
    extra_count: int = 0
    other_zone_data: int = 0
    missing: list[datetime] = field(default_factory=list)
    doubled: list[datetime] = field(default_factory=list)
    extra: list[Entry] = field(default_factory=list)
    lateness: Counter[int] = field(default_factory=Counter)
    late: int = 0
    oldest_due: datetime | None = None
    overdue: int = 0
    unknown: list[Unread] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Unknown is not clean: neither a span that cannot be read, nor a tick that depends on other zone data."""
        wrong = self.missing_count or self.doubled_count or self.extra_count or self.overdue
        return not (wrong or self.unknown or self.other_zone_data)

    def add_unknown(self, span: Unread) -> None:
        """Add a span once, even when several parts of the window contain it."""
        if span not in self.unknown and len(self.unknown) < MAX_NAMED:
            self.unknown.append(span)


Expected = Callable[[LedgerSegment, datetime, datetime], Sequence[datetime]]


def expected_ticks(segment: LedgerSegment, after: datetime, until: datetime) -> list[datetime]:
    """The ticks of a segment in (after, until]."""
    after = max(after, segment.since)
    until = until if segment.until is None else min(until, segment.until)
    if after >= until:
        return []
    return segment.schedule.between(after, until, 1 + segment.schedule.count_between(after, until))


def recorded_ticks(
    segment: LedgerSegment, recorded: Sequence[datetime], after: datetime, until: datetime, next_tick: datetime | None
) -> list[datetime]:
    """The ticks of a delay that counts from the end of a run: those that are recorded, and the one that is next."""
    known = {*recorded, *([next_tick] if next_tick is not None and segment.until is None else [])}
    end = until if segment.until is None else min(until, segment.until)
    return sorted(tick for tick in known if max(after, segment.since) < tick <= end)


def settle_account(
    account: Account,
    segments: Sequence[LedgerSegment],
    entries: Sequence[Entry],
    window: tuple[datetime, datetime],
    next_tick: datetime | None,
    *,
    expected: Expected = expected_ticks,
    zone_data: str | None = None,
    late_after: timedelta = timedelta(seconds=1),
    unread: Sequence[Unread] = (),
    overdue_before: datetime | None = None,
) -> None:
    """Compare the expected ticks of the window (after, until] with the recorded ones, and add the result to the
    account.

    `next_tick` is the cursor. `zone_data` is the release in use: differences in a segment of another release are
    counted apart, since they may have been right then. `unread` are the spans that cannot be compared; ticks that were
    to fire before `overdue_before` are overdue."""
    after, until = window
    for span in unread:
        account.add_unknown(span)
    backfilled = [segment for segment in segments if segment.optional]
    segments = [segment for segment in segments if not segment.optional]
    _count_lateness(account, segments, entries, after, late_after)
    singles = sorted((entry for entry in entries if entry.first == entry.last), key=_first)
    ranges = [entry for entry in entries if entry.first != entry.last]
    firsts = [entry.first for entry in singles]
    unclaimed = bisect_right(firsts, after), bisect_right(firsts, until)
    used = 0
    for segment in segments:
        if segment.schedule.delay is None:
            ticks = expected(segment, after, until)
        else:
            ticks = recorded_ticks(segment, firsts, after, until, next_tick)
        if not ticks:
            continue
        account.expected += len(ticks)
        low, high = bisect_left(firsts, ticks[0]), bisect_right(firsts, ticks[-1])
        if not ranges and firsts[low:high] == list(ticks):
            _tally(account, singles[low:high])
            used += len(ticks)
            continue
        unfired = partial(_without_entry, account, segment, next_tick, zone_data, overdue_before)
        used += _compare(account, ticks, singles[low:high], ranges, unfired)
    if used < unclaimed[1] - unclaimed[0]:
        allowed = {tick for segment in backfilled for tick in expected(segment, after, until)}
        others = [
            entry
            for entry in singles[slice(*unclaimed)]
            if entry.first not in allowed and not any(span.covers(entry.first) for span in unread)
        ]
        _name_extras(account, segments, others, window, expected, zone_data)
    judged = [entry for entry in ranges if not any(span.covers(entry.last) for span in unread)]
    _check_ranges(account, segments, judged, window, expected, zone_data)


def _first(entry: Entry) -> datetime:
    return entry.first


def _compare(
    account: Account,
    ticks: Sequence[datetime],
    singles: Sequence[Entry],
    ranges: Sequence[Entry],
    unfired: Callable[[datetime], None],
) -> int:
    """Compare tick by tick; returns how many single entries belong to ticks. `unfired` gets ticks without an entry."""
    by_tick: dict[datetime, list[Entry]] = {}
    for entry in singles:
        by_tick.setdefault(entry.first, []).append(entry)
    used = 0
    for tick in ticks:
        found = by_tick.get(tick, [])
        used += len(found)
        claims = [*found, *(entry for entry in ranges if entry.first <= tick <= entry.last)]
        if len(claims) == 1:
            _add(account, claims[0], 1)
        elif claims:
            account.doubled_count += 1
            _name(account.doubled, tick)
        else:
            unfired(tick)
    return used


def _without_entry(
    account: Account,
    segment: LedgerSegment,
    next_tick: datetime | None,
    zone_data: str | None,
    overdue_before: datetime | None,
    tick: datetime,
) -> None:
    if segment.paused and segment.until is None:
        account.open[PAUSED] += 1
    elif next_tick is not None and tick >= next_tick:
        account.open[DUE] += 1
        account.oldest_due = min(account.oldest_due or tick, tick)
        account.overdue += overdue_before is not None and segment.fires_at(tick) < overdue_before
    elif _of_other_zone_data(segment, zone_data):
        account.other_zone_data += 1
    else:
        account.missing_count += 1
        _name(account.missing, tick)


def _of_other_zone_data(segment: LedgerSegment, zone_data: str | None) -> bool:
    return zone_data is not None and segment.tzdata is not None and segment.tzdata != zone_data


def _tally(account: Account, entries: Sequence[Entry]) -> None:
    for (words, is_open), count in Counter((entry.words, entry.open) for entry in entries).items():
        (account.open if is_open else account.accounted)[words] += count


def _add(account: Account, entry: Entry, ticks: int) -> None:
    (account.open if entry.open else account.accounted)[entry.words] += ticks


def _name_extras(
    account: Account,
    segments: Sequence[LedgerSegment],
    singles: Sequence[Entry],
    window: tuple[datetime, datetime],
    expected: Expected,
    zone_data: str | None,
) -> None:
    """Add single entries that match no expected tick of a segment."""
    for segment in segments:
        ticks = set(expected(segment, *window))
        end = segment.until or window[1]
        for entry in singles:
            if segment.since < entry.first <= end and entry.first not in ticks:
                _add_extra(account, entry, segment, zone_data)


def _check_ranges(
    account: Account,
    segments: Sequence[LedgerSegment],
    ranges: Sequence[Entry],
    window: tuple[datetime, datetime],
    expected: Expected,
    zone_data: str | None,
) -> None:
    """Check the tick counts of ranges; a range that reaches beyond the window is not checked here."""
    after, until = window
    for entry in ranges:
        if entry.open or not after < entry.first <= entry.last <= until:
            continue
        inside = [segment for segment in segments if segment.since < entry.last]
        count = sum(
            bisect_right(ticks, entry.last) - bisect_left(ticks, entry.first)
            for ticks in (expected(segment, after, until) for segment in inside)
        )
        if inside and count != entry.ticks:
            _add_extra(account, entry, inside[-1], zone_data)


def _add_extra(account: Account, entry: Entry, segment: LedgerSegment, zone_data: str | None) -> None:
    if _of_other_zone_data(segment, zone_data):
        account.other_zone_data += 1
        return
    account.extra_count += 1
    if len(account.extra) < MAX_NAMED:
        account.extra.append(entry)


def _name(named: list[datetime], tick: datetime) -> None:
    if len(named) < MAX_NAMED:
        named.append(tick)


# --- lateness ---


def _count_lateness(
    account: Account,
    segments: Sequence[LedgerSegment],
    entries: Sequence[Entry],
    after: datetime,
    late_after: timedelta,
) -> None:
    bound = late_after // MILLISECOND
    jittered = [segment for segment in segments if segment.schedule.spreads]
    milliseconds = [
        max((entry.started - (_fires_at(jittered, entry.first) if jittered else entry.first)) // MILLISECOND, 0)
        for entry in entries
        if entry.started is not None and entry.first > after
    ]
    account.lateness.update(map(rounded_up, milliseconds))
    account.late += sum(late > bound for late in milliseconds)


def _fires_at(segments: Sequence[LedgerSegment], tick: datetime) -> datetime:
    for segment in segments:
        if segment.since < tick and (segment.until is None or tick <= segment.until):
            return segment.fires_at(tick)
    return tick


def rounded_up(milliseconds: int) -> int:
    """Round up to two significant digits: few distinct numbers, each at most a tenth too large."""
    step = 1
    while milliseconds >= 100 * step:
        step *= 10
    return -(-milliseconds // step) * step


def quantile(values: Counter[int], share: float) -> int | None:
    """The smallest value that at least this share of all values does not exceed."""
    enough = share * values.total()
    seen = 0
    for value in sorted(values):
        seen += values[value]
        if seen >= enough:
            return value
    return None
