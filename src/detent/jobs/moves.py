"""Where a change moves a job's cursor, and which ticks it skips. No I/O.

A change ends one span of ticks and begins the next (see the table `segments`). It is computed from the row as it was
read: ticks up to that time belong to the old span. Those that have not fired are recorded as skipped, with the reason.
A pause is a span too: its ticks are skipped, or run, when it ends.

Counting the ticks of a pause takes up to two milliseconds for each of its days, so callers compute a move in a thread.
`steps` counts what that costs; a limit of theirs refuses the move.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Literal

import msgspec

from detent.contract.job import OnResume
from detent.domain.job import JobSpec
from detent.domain.job_schedule import schedule_in_force
from detent.domain.misfire import AUTOMATIC, CatchUp, MissedRange, nth_tick, split_by_day
from detent.domain.registration import CursorPlace, PreparedJob, next_tick
from detent.domain.schedule import Schedule, tzdata_version
from detent.domain.schedule.schedule import NO_LIMIT, SEARCHED
from detent.domain.schedule.steps import Steps
from detent.errors import UsageError
from detent.jobs.edits import NOWHERE, Edit
from detent.store.db import Row
from detent.store.job_writes import CursorMove, FirstSpan, NewJob, TickSpan

MICROSECOND = timedelta(microseconds=1)
MILLISECOND = timedelta(milliseconds=1)


def new_jobs(placed: Sequence[tuple[PreparedJob, CursorPlace]], now: datetime) -> list[NewJob]:
    """Jobs with their first spans, which are computed once for each schedule that jobs share."""
    known: dict[int, FirstSpan] = {}
    jobs: list[NewJob] = []
    for job, where in placed:
        span = known.get(id(job.schedule))
        if span is None:
            since, _, anchor, tzdata = span_of(job.schedule, now, "created", where.next_tick)
            span = (None if since == now else since, anchor, tzdata)
            if job.schedule.kind != "once":
                known[id(job.schedule)] = span
        jobs.append(NewJob(job, where, span))
    return jobs


def stopped(row: Row, status: Literal["paused", "deleted"], steps: Steps = NO_LIMIT) -> CursorMove:
    """No tick after the reading. Ticks that are due by then and have not fired are skipped."""
    end = end_of(row)
    span = TickSpan(end, status, row["anchor"], None)
    if status == "paused":
        span = span_of(schedule_of_row(row), end, status, None) if _readable(row) else span
    return CursorMove(row, NOWHERE, status, status, _closing(row, end), span, _unfired(row, end, status, steps))


def edited(job: PreparedJob, row: Row, edit: Edit, steps: Steps) -> CursorMove | None:
    """None: the next tick does not change. A paused job stays paused, and the ticks of the former schedule in its pause
    are skipped or run as the pause says."""
    if edit.place is None:
        return None
    after_revision = {**row, "generation": row["generation"] + 1}
    end = end_of(row)
    until = _closing(row, end)
    if row["status"] != "paused":
        span = span_of(job.schedule, end, "edited", edit.place.next_tick)
        unfired = _unfired(row, end, "edited", steps)
        return CursorMove(after_revision, edit.place, "active", "edited", until, span, unfired, task=job.schedule.never)
    skipped: list[MissedRange] = []
    owed: CatchUp | None = None
    if _readable(row):
        skipped, owed = _ticks_of_pause(row, schedule_of_row(row, steps), end, row["on_resume"])
    span = span_of(job.schedule, end, "paused", None)
    return CursorMove(after_revision, NOWHERE, "paused", "edited", until, span, skipped, owed)


def resumed(row: Row, on_resume: OnResume, steps: Steps = NO_LIMIT) -> CursorMove:
    """The job continues where the pause ended: now, or at the time set as its end."""
    end = end_of(row)
    if row["paused_until"] is not None:
        end = min(end, max(row["paused_until"] - MICROSECOND, row["since"]))
    schedule = schedule_of_row(row, steps)
    skipped, owed = _ticks_of_pause(row, schedule, end, on_resume)
    through = max((tick for tick in (row["last_tick"], owed and owed.last) if tick), default=None)
    tick = None if row["runs_left"] == 0 else next_tick(schedule, end, through)
    where = NOWHERE if tick is None else CursorPlace(tick, tick + schedule.jitter(row["job"], tick), AUTOMATIC)
    span = span_of(schedule, end, "resumed", tick)
    return CursorMove(row, where, "active", "resumed", _closing(row, end), span, skipped, owed, schedule.never)


def span_of(schedule: Schedule, since: datetime, opened: str, tick: datetime | None) -> TickSpan:
    """The span of a schedule whose cursor moves to `tick`."""
    if schedule.kind == "once":
        # The job allows a tick in the past, so a late tick is expected too.
        late = tick is not None and tick <= since
        return TickSpan(tick - MILLISECOND if late and tick else since, opened, tick or schedule.at, None)
    zoned = schedule.kind in SEARCHED and schedule.timezone != "UTC"
    return TickSpan(since, opened, schedule.anchor, tzdata_version() if zoned else None)


def end_of(row: Row) -> datetime:
    """The end of the old span: the time of the reading, or the last tick if a clock stepped back."""
    last: datetime | None = row["last_tick"]
    now: datetime = row["now"]
    return now if last is None else max(now, last)


def _closing(row: Row, end: datetime) -> datetime:
    """A job that has used all its runs expects no tick after the last one."""
    return row["last_tick"] or row["since"] if row["runs_left"] == 0 else end


def _unfired(row: Row, end: datetime, reason: str, steps: Steps) -> list[MissedRange]:
    """Ticks up to `end` that did not fire: due ones, or those of the pause that ends."""
    first: datetime | None = row["next_tick"]
    if row["status"] == "paused":
        return _ticks_of_pause(row, schedule_of_row(row, steps), end, "skip")[0] if _readable(row) else []
    if first is None or first > end or (_readable(row) and schedule_of_row(row).delay is not None):
        return []  # a delay has no tick until it fires
    if not _readable(row):
        return [MissedRange(first, first, 1, reason)]
    schedule = schedule_of_row(row, steps).anchored(first)
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
        skipped = [] if before is None else split_by_day(schedule, first, before, "paused")
        return skipped, CatchUp(latest, latest, 1)
    return _oldest(schedule, first, latest, row["max_missed"])


def _oldest(
    schedule: Schedule, first: datetime, latest: datetime, most: int
) -> tuple[list[MissedRange], CatchUp | None]:
    """The oldest ticks run, at most `most`; the others are skipped."""
    count = 1 + schedule.count_between(first, latest)
    if count <= most:
        return [], CatchUp(first, latest, count)
    if most == 0:
        return split_by_day(schedule, first, latest, "paused"), None
    last = nth_tick(schedule, first, latest, most)
    return split_by_day(schedule, schedule.next_after(last) or latest, latest, "paused"), CatchUp(first, last, most)


def schedule_of_row(row: Row, steps: Steps = NO_LIMIT) -> Schedule:
    spec = msgspec.json.decode(row["definition"], type=JobSpec)
    return schedule_in_force(spec, row["cron"], row["tenant"], row["created_at"], steps)


def _readable(row: Row) -> bool:
    try:
        schedule_of_row(row)
    except UsageError:  # for example, its zone was removed from the zone data
        return False
    return True
