"""The ledger tick by tick: the status of every tick of a job in a window. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from detent.domain.ledger import DUE, PAUSED, Entry, LedgerSegment, Unread, recorded_ticks

MICROSECOND = timedelta(microseconds=1)
SCHEDULED = "scheduled"
TO_BE_SKIPPED = "to be skipped"
MISSING = "missing"
UNKNOWN = "unknown"
AT_A_TIME = 64


class TickStatus(NamedTuple):
    """A tick, or a range that is recorded as one entry, with its status. `entry` is None for a tick without one."""

    at: datetime
    entry: Entry | None
    status: str
    ticks: int = 1


def tick_statuses(
    segments: Sequence[LedgerSegment],
    entries: Sequence[Entry],
    after: datetime,
    until: datetime,
    next_tick: datetime | None,
    now: datetime,
    skips: Collection[datetime] = (),
    unread: Sequence[Unread] = (),
) -> Iterator[TickStatus]:
    """Every tick in (after, until] with its status, oldest first. A range that is recorded as one entry is one item. A
    future tick is `scheduled`, or `to be skipped` if it is in `skips`. A span that cannot be read is one item,
    `unknown`, followed by its recorded entries."""
    spans = [span for span in unread if not span.optional]
    for span in sorted(spans, key=lambda span: span.since):
        known = [segment for segment in segments if segment.since < span.since]
        yield from _known_statuses(known, entries, after, min(until, span.since), next_tick, now, skips)
        yield from _unknown_statuses(span, entries, after, until)
        segments = [segment for segment in segments if segment.since >= span.since]
    yield from _known_statuses(segments, entries, after, until, next_tick, now, skips)


def _unknown_statuses(span: Unread, entries: Sequence[Entry], after: datetime, until: datetime) -> Iterator[TickStatus]:
    first, last = max(after + MICROSECOND, span.since), until if span.until is None else min(until, span.until)
    if first > last:
        return
    yield TickStatus(first, Entry(first, last, 1, UNKNOWN, span.why, open=True), UNKNOWN)
    for entry in sorted(entries, key=lambda entry: entry.first):
        if span.covers(entry.first) and after < entry.first <= until:
            yield TickStatus(entry.first, entry, entry.status, entry.ticks)


def _known_statuses(
    segments: Sequence[LedgerSegment],
    entries: Sequence[Entry],
    after: datetime,
    until: datetime,
    next_tick: datetime | None,
    now: datetime,
    skips: Collection[datetime],
) -> Iterator[TickStatus]:
    singles = {entry.first: entry for entry in entries if entry.first == entry.last}
    ranges = [entry for entry in entries if entry.first != entry.last]
    done: Entry | None = None
    for segment, tick in _walk(segments, after, until, [*singles, *([] if next_tick is None else [next_tick])]):
        if done is not None and done.first <= tick <= done.last:
            continue
        single = singles.get(tick)
        if single is not None:
            yield TickStatus(tick, single, single.status)
            continue
        done = next((entry for entry in ranges if entry.first <= tick <= entry.last), None)
        if done is not None:
            yield TickStatus(tick, done, done.status, done.ticks)
        else:
            status = _status_without_entry(segment, tick, next_tick, now)
            yield TickStatus(tick, None, TO_BE_SKIPPED if status in (SCHEDULED, DUE) and tick in skips else status)


def _walk(
    segments: Sequence[LedgerSegment], after: datetime, until: datetime, known: Sequence[datetime]
) -> Iterator[tuple[LedgerSegment, datetime]]:
    """`known`: the recorded ticks and the next one, which are all that a delay after the end of a run has."""
    for segment in segments:
        if segment.optional:
            continue
        if segment.schedule.delay is not None:
            yield from ((segment, tick) for tick in recorded_ticks(segment, known, after, until, None))
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
