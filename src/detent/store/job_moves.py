"""Where a change takes a job's cursor, and what becomes of the ticks it takes away. No I/O.

A change ends the span of ticks that the job was in, and begins the next (see the table `segments`). It is computed from
the row as it was read: ticks up to that time belong to the old span. Those of them that had not fired are given up, and
are recorded as skipped with the reason; a pause is a span too, whose ticks are given up, or run, when it ends.

To count the ticks of a long pause takes up to half a second for some rules, so callers compute a move in a thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

import msgspec

from detent.contract.job import JobStatus, OnResume
from detent.domain.job import JobSpec
from detent.domain.misfire import AUTOMATIC, CatchUp, MissedRange, nth_tick, split_by_day
from detent.domain.registration import CursorPlace, PreparedJob, next_tick, schedule_of
from detent.domain.schedule import Schedule, tzdata_version
from detent.errors import UsageError
from detent.store.db import Row
from detent.store.job_rows import NOWHERE, Edit

MICROSECOND = timedelta(microseconds=1)
MILLISECOND = timedelta(milliseconds=1)


class Span(NamedTuple):
    """The span that begins: since when, by which change, and what its schedule has of its own."""

    since: datetime
    opened: str
    anchor: datetime | None
    tzdata: str | None


class Move(NamedTuple):
    """Where a cursor goes from where it was read, the spans that end and begin there, and what becomes of its ticks."""

    row: Row
    where: CursorPlace
    status: JobStatus
    closed: str
    until: datetime
    span: Span
    given_up: Sequence[MissedRange] = ()
    owed: CatchUp | None = None

    @property
    def through(self) -> datetime | None:
        """The last tick that this accounts for."""
        ends = [ticks.last for ticks in self.given_up]
        return max([*ends, self.owed.last] if self.owed else ends, default=None)


def stopped(row: Row, status: Literal["paused", "deleted"]) -> Move:
    """No tick after what was read; what is due by then and has not fired is given up."""
    end = end_of(row)
    span = Span(end, status, row["anchor"], None)
    if status == "paused":
        span = span_of(schedule_of_row(row), end, status, None) if _readable(row) else span
    return Move(row, NOWHERE, status, status, _closing(row, end), span, _unfired(row, end, status))


def edited(job: PreparedJob, row: Row, edit: Edit) -> Move | None:
    """None: the next tick stays as it is. A paused job stays paused; what was to become of the ticks of its pause, as
    far as the former schedule goes, stays as it was said."""
    if edit.place is None:
        return None
    after_revision = {**row, "generation": row["generation"] + 1}
    end = end_of(row)
    until = _closing(row, end)
    if row["status"] != "paused":
        span = span_of(job.schedule, end, "edited", edit.place.next_tick)
        return Move(after_revision, edit.place, "active", "edited", until, span, _unfired(row, end, "edited"))
    given_up, owed = _ticks_of_pause(row, schedule_of_row(row), end, row["on_resume"]) if _readable(row) else ([], None)
    span = span_of(job.schedule, end, "paused", None)
    return Move(after_revision, NOWHERE, "paused", "edited", until, span, given_up, owed)


def resumed(row: Row, on_resume: OnResume) -> Move:
    """The job goes on where the pause ended: now, or at the time until which it was to last."""
    end = end_of(row)
    if row["paused_until"] is not None:
        end = min(end, max(row["paused_until"] - MICROSECOND, row["since"]))
    schedule = schedule_of_row(row)
    given_up, owed = _ticks_of_pause(row, schedule, end, on_resume)
    through = max((tick for tick in (row["last_tick"], owed and owed.last) if tick), default=None)
    tick = None if row["runs_left"] == 0 else next_tick(schedule, end, through)
    where = NOWHERE if tick is None else CursorPlace(tick, tick + schedule.jitter(row["job"], tick), AUTOMATIC)
    span = span_of(schedule, end, "resumed", tick)
    return Move(row, where, "active", "resumed", _closing(row, end), span, given_up, owed)


def span_of(schedule: Schedule, since: datetime, opened: str, tick: datetime | None) -> Span:
    """The span of a schedule whose cursor comes to stand on `tick`."""
    if schedule.kind == "once":
        # One that is late was asked for although it is: it is expected nevertheless.
        late = tick is not None and tick <= since
        return Span(tick - MILLISECOND if late and tick else since, opened, tick or schedule.at, None)
    zoned = schedule.kind in ("cron", "rrule") and schedule.timezone != "UTC"
    return Span(since, opened, schedule.anchor, tzdata_version() if zoned else None)


def end_of(row: Row) -> datetime:
    """Up to here ticks belong to what was: the time of the reading, or the last tick if a clock stepped back."""
    last: datetime | None = row["last_tick"]
    now: datetime = row["now"]
    return now if last is None else max(now, last)


def _closing(row: Row, end: datetime) -> datetime:
    """After the last run of a bounded job nothing was expected any more."""
    return row["last_tick"] or row["since"] if row["runs_left"] == 0 else end


def _unfired(row: Row, end: datetime, reason: str) -> list[MissedRange]:
    """Ticks up to `end` that did not fire: those that were due, or those of the pause that ends."""
    first: datetime | None = row["next_tick"]
    if row["status"] == "paused":
        return _ticks_of_pause(row, schedule_of_row(row), end, "skip")[0] if _readable(row) else []
    if first is None or first > end:
        return []
    if not _readable(row):
        return [MissedRange(first, first, 1, reason)]
    schedule = schedule_of_row(row).anchored(first)
    return split_by_day(schedule, first, schedule.latest(first, end) or first, reason)


def _ticks_of_pause(
    row: Row, schedule: Schedule, end: datetime, on_resume: OnResume
) -> tuple[list[MissedRange], CatchUp | None]:
    since = max(row["since"], row["last_tick"] or row["since"])
    first = None if row["runs_left"] == 0 else schedule.next_after(since)
    latest = schedule.latest(first, end) if first is not None else None
    if first is None or latest is None:
        return [], None
    if on_resume == "skip":
        return split_by_day(schedule, first, latest, "paused"), None
    if on_resume == "once":
        before = schedule.latest(first, latest - MILLISECOND)
        given_up = [] if before is None else split_by_day(schedule, first, before, "paused")
        return given_up, CatchUp(latest, latest, 1)
    return _oldest(schedule, first, latest, row["max_missed"])


def _oldest(
    schedule: Schedule, first: datetime, latest: datetime, most: int
) -> tuple[list[MissedRange], CatchUp | None]:
    """As many of the ticks as may be made up for, from the oldest on; the others are given up."""
    count = 1 + schedule.count_between(first, latest)
    if count <= most:
        return [], CatchUp(first, latest, count)
    if most == 0:
        return split_by_day(schedule, first, latest, "paused"), None
    last = nth_tick(schedule, first, latest, most)
    return split_by_day(schedule, schedule.next_after(last) or latest, latest, "paused"), CatchUp(first, last, most)


def schedule_of_row(row: Row) -> Schedule:
    spec = msgspec.json.decode(row["definition"], type=JobSpec)
    return schedule_of(spec, row["job"], row["created_at"])


def _readable(row: Row) -> bool:
    try:
        schedule_of_row(row)
    except UsageError:  # its zone is gone from the zone data, for instance
        return False
    return True
