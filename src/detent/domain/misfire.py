"""The misfire policies: which past ticks run. Pure: the database's time is an argument.

A tick up to `THRESHOLD` late is merely late and fires by itself, so a fail-over of some seconds loses nothing of an
every-second job. Older ticks are misfires, and are settled together, as the job's `missed_window` says:

    RUN_ONCE  the latest of them runs if it is inside the grace period, under its own key; the others are
              `missed: merged`, or `missed: grace` when even the latest is too old
    SKIP      none runs: all are `missed: policy`
    RUN_ALL   those inside the grace period run, oldest first and at most `max_missed` of them, next to the live ticks;
              those before are `missed: grace`, those after are `missed: limit`

The cursor then stands on the first tick that is merely late, or on the next one to come; under RUN_ONCE it stands on
the tick that is to run. Misfires are counted, never walked through.

A job with jitter is late from the instant at which its tick was to be fired, not from the tick. That is before the
next tick, so it is a question of one tick at either end.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from detent.domain.schedule import Schedule

THRESHOLD = timedelta(seconds=60)
AUTOMATIC = -1
SHORTEST_GRACE = timedelta(hours=1)
SHORTEST_STEP = timedelta(milliseconds=1)
INSTANT = timedelta(microseconds=1)
FEW = 64

# Why ticks of a suspended tenant are skipped.
SUSPENDED = "tenant suspended"

# How cursors.missed says it.
RUN_ONCE, SKIP, RUN_ALL = 1, 2, 3
MISSED = {"RUN_ONCE": RUN_ONCE, "SKIP": SKIP, "RUN_ALL": RUN_ALL}
MAX_MISSED = 100


class MissedRange(NamedTuple):
    """Ticks of one UTC day that did not run: the first, the last, how many, why."""

    first: datetime
    last: datetime
    ticks: int
    reason: str


class CatchUp(NamedTuple):
    """Past ticks that are to run: the first, the last, how many."""

    first: datetime
    last: datetime
    ticks: int


class MisfirePolicy(NamedTuple):
    """The misfire policy of a job: RUN_ONCE, SKIP or RUN_ALL, seconds of grace, and how many may be caught up."""

    missed: int = RUN_ONCE
    grace: int = AUTOMATIC
    max_missed: int = MAX_MISSED


class MisfireDecision(NamedTuple):
    """The next tick to fire (None: there is none), the ticks missed before it, and those that are caught up."""

    next_tick: datetime | None
    missed: list[MissedRange]
    catch_up: CatchUp | None = None

    @property
    def passed(self) -> datetime | None:
        """The last tick that the cursor passes; None: it stays where it is, and its tick fires."""
        ends = [missed.last for missed in self.missed[-1:]]
        if self.catch_up is not None:
            ends.append(self.catch_up.last)
        return max(ends, default=None)


def decide(schedule: Schedule, tick: datetime, now: datetime, policy: MisfirePolicy, job: int = 0) -> MisfireDecision:
    """Decide what to do with the missed ticks of a job (its number) whose cursor is at `tick`."""
    schedule = schedule.anchored(tick)
    latest = _latest_before(schedule, tick, now - THRESHOLD, job)
    if policy.missed == SKIP:
        return MisfireDecision(schedule.next_after(latest), split_by_day(schedule, tick, latest, "policy"))
    inside = _first_inside(schedule, (tick, latest), now, policy.grace, job)
    if inside is None:
        return MisfireDecision(schedule.next_after(latest), split_by_day(schedule, tick, latest, "grace"))
    if policy.missed == RUN_ALL and inside < latest:
        return _run_all(schedule, (tick, inside, latest), policy.max_missed)
    reason = "merged" if policy.missed == RUN_ONCE else "grace"
    return MisfireDecision(latest, _between(schedule, tick, latest, reason))


def skip_all(schedule: Schedule, tick: datetime, now: datetime, reason: str) -> MisfireDecision:
    """For a cursor at `tick`, which is due: no tick up to now runs, whatever the job's policy is. As in a pause."""
    schedule = schedule.anchored(tick)
    latest = schedule.latest(tick, now) or tick
    return MisfireDecision(schedule.next_after(latest), split_by_day(schedule, tick, latest, reason))


def _latest_before(schedule: Schedule, tick: datetime, limit: datetime, job: int) -> datetime:
    """The latest that was to be fired before the limit; `tick` was."""
    latest = schedule.latest(tick, limit - INSTANT) or tick
    if latest > tick and latest + schedule.jitter(job, latest) >= limit:
        return schedule.latest(tick, latest - SHORTEST_STEP) or tick
    return latest


def _first_inside(
    schedule: Schedule, ticks: tuple[datetime, datetime], now: datetime, grace: int, job: int
) -> datetime | None:
    """The first misfire inside its grace; all later ones are too. The automatic grace of a tick is longer than an hour
    only when its next tick is in the future, which is true only of the latest; jitter does not lengthen the grace of an
    earlier one."""
    first, latest = ticks
    late = now - latest - schedule.jitter(job, latest)
    if late > grace_period(grace, latest, schedule.next_after(latest)):
        return None
    oldest = now - grace_period(grace, latest, None)
    if first >= oldest:
        return first
    before = schedule.latest(first, oldest - INSTANT) or first
    if before + schedule.jitter(job, before) >= oldest:
        return min(before, latest)
    inside = schedule.next_after(oldest - INSTANT)
    return latest if inside is None else min(inside, latest)


def _run_all(schedule: Schedule, ticks: tuple[datetime, datetime, datetime], most: int) -> MisfireDecision:
    first, inside, latest = ticks
    missed = _between(schedule, first, inside, "grace")
    count = 1 + schedule.count_between(inside, latest)
    last = latest if count <= most else nth_tick(schedule, inside, latest, most)
    if count > most:
        beyond = schedule.next_after(last) if most else inside
        missed += split_by_day(schedule, beyond or latest, latest, "limit")
    made_up = CatchUp(inside, last, min(count, most)) if most else None
    return MisfireDecision(schedule.next_after(latest), missed, made_up)


def nth_tick(schedule: Schedule, first: datetime, latest: datetime, number: int) -> datetime:
    """The tick of this number, counted from 1 at `first`; `latest` if there are fewer."""
    if number <= FEW:
        return ([first, *schedule.between(first, latest, number - 1)] if number > 1 else [first])[-1]
    low, high = first, latest
    while high - low > SHORTEST_STEP:
        middle = low + (high - low) / 2
        if 1 + schedule.count_between(first, middle) >= number:
            high = middle
        else:
            low = middle
    return schedule.latest(first, high) or first


def grace_period(grace: int, latest: datetime, following: datetime | None) -> timedelta:
    """Automatic: the longer of one hour and half the way to the next tick, so that a nightly job still runs after
    two hours of outage while a minutely one does not pile up."""
    if grace != AUTOMATIC:
        return timedelta(seconds=grace)
    if following is None:
        return SHORTEST_GRACE
    return max(SHORTEST_GRACE, (following - latest) / 2)


def _between(schedule: Schedule, first: datetime, end: datetime, reason: str) -> list[MissedRange]:
    """The ticks from `first` up to the one before `end`."""
    if end <= first:
        return []
    return split_by_day(schedule, first, schedule.latest(first, end - SHORTEST_STEP) or first, reason)


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
