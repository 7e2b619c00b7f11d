"""What to do with ticks that are past. Pure: the database's time is an argument.

A tick up to `THRESHOLD` late is merely late and fires by itself, so a fail-over of some seconds loses nothing of an
every-second job. Older ticks are misfires, and are settled together: the latest of them runs if it is inside the grace
period, under its own key; those before it are recorded as `missed: merged`. When even the latest is beyond grace, all
are `missed: grace`. The cursor then stands on the first tick that is merely late, or on the next one to come.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from detent.schedule import Schedule

THRESHOLD = timedelta(seconds=60)
AUTOMATIC = -1
SHORTEST_GRACE = timedelta(hours=1)
SHORTEST_STEP = timedelta(milliseconds=1)


class MissedRange(NamedTuple):
    """Ticks of one UTC day that did not run: the first, the last, how many, why."""

    first: datetime
    last: datetime
    ticks: int
    reason: str


class Verdict(NamedTuple):
    """The next tick to fire (None: there is none), and what is passed over to get there."""

    next_tick: datetime | None
    missed: list[MissedRange]


def judge(schedule: Schedule, tick: datetime, now: datetime, grace: int) -> Verdict:
    """RUN_ONCE for a cursor that stands on `tick`, a misfire. An empty `missed` means: fire `tick` itself."""
    schedule = schedule.anchored(tick)
    latest = schedule.latest(tick, now - THRESHOLD - timedelta(microseconds=1)) or tick
    following = schedule.next_after(latest)
    if now - latest > grace_period(grace, latest, following):
        return Verdict(following, split_by_day(schedule, tick, latest, "grace"))
    if latest == tick:
        return Verdict(tick, [])
    last_missed = schedule.latest(tick, latest - SHORTEST_STEP) or tick
    return Verdict(latest, split_by_day(schedule, tick, last_missed, "merged"))


def grace_period(grace: int, latest: datetime, following: datetime | None) -> timedelta:
    """Automatic: the longer of one hour and half the way to the next tick, so that a nightly job still runs after
    two hours of outage while a minutely one does not pile up."""
    if grace != AUTOMATIC:
        return timedelta(seconds=grace)
    if following is None:
        return SHORTEST_GRACE
    return max(SHORTEST_GRACE, (following - latest) / 2)


def split_by_day(schedule: Schedule, first: datetime, last: datetime, reason: str) -> list[MissedRange]:
    """The ticks from `first` to `last` as ranges that end with their UTC day, as history is kept by the day."""
    ranges: list[MissedRange] = []
    start: datetime | None = first
    while start is not None and start <= last:
        midnight = start.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
        end = schedule.latest(start, min(last, midnight - SHORTEST_STEP)) or start
        ranges.append(MissedRange(start, end, 1 + schedule.count_between(start, end), reason))
        start = schedule.next_after(end)
    return ranges
