"""The incidents of the demo's history: deadlines that its runs missed. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from detent.devtools.demo.history import MISSED, SECOND, SKIPPED, SUCCEEDED, RunRow
from detent.domain.job import JobSpec


class IncidentRow(NamedTuple):
    """As columns of incidents."""

    job: int
    kind: str
    within: timedelta
    tick: datetime
    misses: int
    opened_at: datetime
    closed_at: datetime | None


def incidents(spec: JobSpec, rows: Sequence[RunRow], now: datetime) -> Iterator[IncidentRow]:
    for kind, seconds in (("start", spec.expect_start_within), ("finish", spec.expect_finish_within)):
        if seconds is not None:
            yield from _of_kind(kind, timedelta(seconds=seconds), spec.notify_after, rows, now)


def _of_kind(kind: str, within: timedelta, after: int, rows: Iterable[RunRow], now: datetime) -> Iterator[IncidentRow]:
    streak, opened = 0, None
    for row in sorted(rows, key=lambda each: each.scheduled_at):
        deadline = row.scheduled_at + within + SECOND
        if row.status == SKIPPED or deadline > now:
            continue
        if _kept(kind, within, row):
            if opened is not None:
                yield opened._replace(closed_at=deadline)
            streak, opened = 0, None
            continue
        streak += row.ticks or 1
        if opened is None and streak >= after:
            opened = IncidentRow(row.job, kind, within, row.until or row.scheduled_at, streak, deadline, None)
    if opened is not None:
        yield opened


def _kept(kind: str, within: timedelta, row: RunRow) -> bool:
    if row.status == MISSED:
        return False
    if kind == "start":
        return row.started_at is not None and row.started_at <= row.scheduled_at + within
    return row.status == SUCCEEDED and row.finished_at <= row.scheduled_at + within
