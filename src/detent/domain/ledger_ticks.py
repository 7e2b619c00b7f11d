"""The ledger tick by tick: the status of every tick of a job in a window. Pure, like `ledger.py`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from detent.domain.ledger import DUE, PAUSED, Entry, LedgerSegment, Unread

MICROSECOND = timedelta(microseconds=1)
SCHEDULED = "scheduled"
TO_BE_SKIPPED = "to be skipped"
MISSING = "missing"
UNKNOWN = "unknown"
AT_A_TIME = 64


class Fate(NamedTuple):
    """A tick, or a range that is recorded as one entry, with its status. Without an entry, `status` says why."""

    at: datetime
    entry: Entry | None
    status: str
    ticks: int = 1


def fates(
    segments: Sequence[LedgerSegment],
    entries: Sequence[Entry],
    after: datetime,
    until: datetime,
    next_tick: datetime | None,
    now: datetime,
    skips: Collection[datetime] = (),
    unread: Sequence[Unread] = (),
) -> Iterator[Fate]:
    """Every tick in (after, until] with its status, oldest first; a range that is recorded as one entry comes as one. A
    future tick is `scheduled`, or `to be skipped` if it is among the skips. A span that cannot be read is one entry,
    `unknown`, followed by its recorded entries."""
    spans = [span for span in unread if not span.optional]
    for span in sorted(spans, key=lambda span: span.since):
        known = [segment for segment in segments if segment.since < span.since]
        yield from _known_fates(known, entries, after, min(until, span.since), next_tick, now, skips)
        yield from _unknown_fates(span, entries, after, until)
        segments = [segment for segment in segments if segment.since >= span.since]
    yield from _known_fates(segments, entries, after, until, next_tick, now, skips)


def _unknown_fates(span: Unread, entries: Sequence[Entry], after: datetime, until: datetime) -> Iterator[Fate]:
    first, last = max(after + MICROSECOND, span.since), until if span.until is None else min(until, span.until)
    if first > last:
        return
    yield Fate(first, Entry(first, last, 1, UNKNOWN, span.why, open=True), UNKNOWN)
    for entry in sorted(entries, key=lambda entry: entry.first):
        if span.covers(entry.first) and after < entry.first <= until:
            yield Fate(entry.first, entry, entry.status, entry.ticks)


def _known_fates(
    segments: Sequence[LedgerSegment],
    entries: Sequence[Entry],
    after: datetime,
    until: datetime,
    next_tick: datetime | None,
    now: datetime,
    skips: Collection[datetime],
) -> Iterator[Fate]:
    singles = {entry.first: entry for entry in entries if entry.first == entry.last}
    ranges = [entry for entry in entries if entry.first != entry.last]
    done: Entry | None = None
    for segment, tick in _walk(segments, after, until):
        if done is not None and done.first <= tick <= done.last:
            continue
        single = singles.get(tick)
        if single is not None:
            yield Fate(tick, single, single.status)
            continue
        done = next((entry for entry in ranges if entry.first <= tick <= entry.last), None)
        if done is not None:
            yield Fate(tick, done, done.status, done.ticks)
        else:
            status = _status_without_entry(segment, tick, next_tick, now)
            yield Fate(tick, None, TO_BE_SKIPPED if status in (SCHEDULED, DUE) and tick in skips else status)


def _walk(
    segments: Sequence[LedgerSegment], after: datetime, until: datetime
) -> Iterator[tuple[LedgerSegment, datetime]]:
    for segment in segments:
        if segment.optional:
            continue
        end = until if segment.until is None else min(until, segment.until)
        reached = max(after, segment.since)
        while ticks := segment.schedule.between(reached, end, AT_A_TIME) if reached < end else []:
            for tick in ticks:
                yield segment, tick
            reached = ticks[-1]


def _status_without_entry(segment: LedgerSegment, tick: datetime, next_tick: datetime | None, now: datetime) -> str:
    if segment.paused and segment.until is None:
        return PAUSED
    if segment.fires_at(tick) > now:
        return SCHEDULED
    return DUE if next_tick is not None and tick >= next_tick else MISSING
