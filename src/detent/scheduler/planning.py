"""What to do with a due cursor: fire its tick, or leap over ticks that are missed.

Decided one cursor at a time, so that one that cannot be planned (a schedule this version cannot read) stands still
alone."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from detent.clock import monotonic
from detent.misfire import AUTOMATIC, THRESHOLD, Policy, judge
from detent.schedule import Schedule
from detent.store.cursors import Advance, Cursor, Leap

LATE = timedelta(seconds=1)
SHORTEST_PAUSE_MS = 20
LONGEST_PAUSE_MS = 1000
MOST_FOLLOWINGS = 10_000

# plain: the fast statement. careful: for bounded jobs, and past locked cursors. patient: careful, and a tick for which
# no lane is free is left where it is.
Way = Literal["plain", "careful", "patient"]
WAYS: tuple[Way, ...] = ("plain", "careful", "patient")


class Planned(NamedTuple):
    """A tick to fire: the cursor as it is and as it will be."""

    before: Cursor
    after: Cursor
    way: Way

    @property
    def advance(self) -> Advance:
        fire_at = self.after.fire_at if self.after.fire_at != self.after.next_tick else None
        return Advance(self.before.job, tick_of(self.before), self.before.generation, self.after.next_tick, fire_at)


class Waiting(NamedTuple):
    tick: datetime
    since: float
    pause_ms: int


class Patience:
    """After a fail-over the late ticks of a job come one upon another. Had they come in time, the run before would have
    been over, so they must not be skipped for overlapping with it. A late tick, and the first one in time after it,
    wait for a free lane for as long as the schedule leaves between two ticks; a run that takes longer does overlap. So
    do ticks of a job whose missed ticks are made up for at the same time: the run in their way may be one of those."""

    def __init__(self) -> None:
        self._waiting: dict[int, Waiting] = {}

    def way(self, cursor: Cursor, following: datetime | None, now: datetime, *, crowded: bool = False) -> Way:
        """How to fire a tick; asked again each time it is tried. `crowded`: missed ticks of its job are made up for."""
        careful: Way = "careful" if cursor.bounded else "plain"
        waiting = self._waiting.get(cursor.job)
        if following is None or (waiting is None and not crowded and not _comes_upon_another(cursor, following, now)):
            return careful
        tick = tick_of(cursor)
        if waiting is None or waiting.tick != tick:
            waiting = self._waiting[cursor.job] = Waiting(tick, monotonic(), SHORTEST_PAUSE_MS)
        return "patient" if monotonic() - waiting.since < (following - tick).total_seconds() else careful

    def pause(self, job: int) -> int:
        """Milliseconds before a refused tick is tried again: longer each time it waits in vain."""
        waiting = self._waiting.get(job)
        if waiting is None:
            return SHORTEST_PAUSE_MS
        self._waiting[job] = waiting._replace(pause_ms=min(LONGEST_PAUSE_MS, 2 * waiting.pause_ms))
        return waiting.pause_ms

    def fired(self, planned: Planned, now: datetime) -> None:
        if not self._waiting:
            return
        if planned.after.next_tick is None or not is_late(planned.before, now):
            self._waiting.pop(planned.before.job, None)


class Following(NamedTuple):
    """What was computed last for a schedule."""

    schedule: Schedule
    tick: datetime
    following: datetime | None
    jittered: bool


class Planner:
    """`grace` is what a job gets that leaves it to us."""

    def __init__(self, grace: int = AUTOMATIC) -> None:
        self.patience = Patience()
        self._grace = grace
        self._followings: dict[int, Following] = {}

    def plan(self, cursor: Cursor, schedule: Schedule, now: datetime, *, crowded: bool = False) -> Planned | Leap:
        tick = tick_of(cursor)
        if cursor.fire_at is not None and cursor.fire_at < now - THRESHOLD:
            leap = self._leap(cursor, schedule, tick, now)
            if leap is not None:
                return leap
        following, jittered = self._following(cursor.schedule, schedule, tick)
        fire_at = _fire_at(schedule, cursor.job, following) if jittered else following
        # As _replace, at a third of its cost.
        after = Cursor._make((cursor.job, following, fire_at, *cursor[3:]))
        return Planned(cursor, after, self.patience.way(cursor, following, now, crowded=crowded))

    def _following(self, number: int, schedule: Schedule, tick: datetime) -> tuple[datetime | None, bool]:
        """The tick after, and whether jobs of this schedule are spread. Jobs that are due together mostly agree in
        schedule and tick; to compute it for each took a twentieth of what a run cost."""
        known = self._followings.get(number)
        if known is not None and known.schedule is schedule and known.tick == tick:
            return known.following, known.jittered
        known = Following(schedule, tick, schedule.next_after(tick), schedule.jitter_seconds > 0)
        if len(self._followings) >= MOST_FOLLOWINGS:
            self._followings.clear()
        self._followings[number] = known
        return known.following, known.jittered

    def _leap(self, cursor: Cursor, schedule: Schedule, tick: datetime, now: datetime) -> Leap | None:
        """None: the tick is to be fired although it is late."""
        grace = self._grace if cursor.grace == AUTOMATIC else cursor.grace
        verdict = judge(schedule, tick, now, Policy(cursor.missed, grace, cursor.max_missed), cursor.job)
        passed = verdict.passed
        if passed is None:
            return None
        fire_at = _fire_at(schedule, cursor.job, verdict.next_tick)
        return Leap(cursor, verdict.next_tick, fire_at, passed, verdict.missed, verdict.catch_up)


def tick_of(cursor: Cursor) -> datetime:
    assert cursor.next_tick is not None
    return cursor.next_tick


def _comes_upon_another(cursor: Cursor, following: datetime, now: datetime) -> bool:
    """Whether the tick before may have been late too. Where ticks are further apart than this one is late, twice over,
    the one before came in time: a run of it that is still under way would have overlapped in any case."""
    return is_late(cursor, now) and following - tick_of(cursor) <= 2 * (now - tick_of(cursor))


def is_late(cursor: Cursor, now: datetime) -> bool:
    return cursor.fire_at is not None and now - cursor.fire_at >= LATE


def _fire_at(schedule: Schedule, job: int, tick: datetime | None) -> datetime | None:
    return None if tick is None else tick + schedule.jitter(job, tick)
