"""What to do with a due cursor: fire its tick, or, where that is missed, pass over the ticks that do not run.

Decided one cursor at a time, so that one that cannot be planned (a schedule this version cannot read) fails alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from detent.domain.delay_rules import next_look
from detent.domain.misfire import AUTOMATIC, SUSPENDED, MisfirePolicy, MissedRange, decide, skip_all
from detent.domain.run import Claim
from detent.domain.schedule import Schedule
from detent.runtime.clock import monotonic
from detent.store.cursors import Advance, Cursor, Leap

LATE = timedelta(seconds=1)
IN_TIME = timedelta(milliseconds=50)
SHORTEST_PAUSE_MS = 20
LONGEST_PAUSE_MS = 1000
MAX_FOLLOWINGS = 10_000
MAX_BLOCKED = 100_000
TRIES_PER_INTERVAL = 16
LATE_RUNS = 30
NEVER = float("-inf")


class FireMode(Enum):
    """Which statement fires a tick, in the order in which the ticks of a batch are sent."""

    PLAIN = "plain"  # the fastest
    CAREFUL = "careful"  # for jobs with a limited number of runs; skips locked cursors
    PATIENT = "patient"  # as careful, and a tick without a free lane stays due
    DELAYED = "delayed"  # as patient, after a look at the run before: the tick counts from its end


# None: to be fired although it is late. An error: it cannot be decided.
MissedTickPlan = Leap | Exception | None
# Whether a job is catching up.
Crowded = Callable[[int], bool]


class Blocked(NamedTuple):
    """A job whose late ticks may be blocked by the run before. `since`: when one was first blocked (None: not yet).
    `pause_ms`: before the next try. `late_runs`: how many late ticks have run. `lag`: how late the job was when the
    last few began."""

    tick: datetime
    since: float | None
    pause_ms: int = SHORTEST_PAUSE_MS
    late_runs: int = 0
    lag: timedelta = timedelta.max


class Patience:
    """After a stall the late ticks of a job fire close together. On time, the previous run would have ended, so they
    must not be skipped for overlapping with it. A late tick, and those after it until one is on time, wait for a free
    lane, for as long as the interval between two ticks. So do ticks of a job that is catching up: the run that
    blocks them may be one of the missed ticks.

    A run that takes longer than that does overlap, with all of the late ticks: they wait for each blocking run once,
    not once per late tick. If runs are so long that the job does not catch up, its late ticks overlap too. So a job
    does not stay late, however long its runs take. (When each tick waited its own interval, a stall of two seconds made
    an every-second job with runs of 40 s a minute late permanently.)"""

    def __init__(self) -> None:
        self._blocked: dict[int, Blocked] = {}

    @property
    def concerned(self) -> bool:
        """Whether late ticks of any job may be blocked."""
        return bool(self._blocked)

    def modes(
        self, alike: Sequence[Cursor], following: datetime | None, now: datetime, crowded: Crowded | None
    ) -> list[FireMode]:
        """How to fire cursors with the same tick and time, decided at each try. Usually a check of the first shows that
        all are fired in their usual mode. `crowded`: whether a job is catching up; None: no job is."""
        if not self._blocked and crowded is None and not _previous_tick_may_be_late(alike[0], following, now):
            return [_usual_mode(alike[0])] * len(alike)
        return [self.mode(each, following, now, crowded=crowded is not None and crowded(each.job)) for each in alike]

    def mode(self, cursor: Cursor, following: datetime | None, now: datetime, *, crowded: bool = False) -> FireMode:
        """How to fire a tick. `crowded`: its job is catching up."""
        usual = _usual_mode(cursor)
        blocked = self._blocked.get(cursor.job)
        if following is None or (
            blocked is None and not crowded and not _previous_tick_may_be_late(cursor, following, now)
        ):
            return usual
        tick = tick_of(cursor)
        if blocked is None:
            blocked = Blocked(tick, None)
        in_time = blocked.tick != tick and crowded and not is_late(cursor, now)
        since = monotonic() if blocked.since is None or in_time else blocked.since
        if since != blocked.since or tick != blocked.tick:
            self._remember(cursor.job, blocked._replace(tick=tick, since=since))
        return FireMode.PATIENT if monotonic() - since < (following - tick).total_seconds() else usual

    def _remember(self, job: int, blocked: Blocked) -> None:
        if len(self._blocked) >= MAX_BLOCKED:
            self._blocked.clear()  # at worst some ticks wait once more than they should
        self._blocked[job] = blocked

    def blocked(self, job: int) -> bool:
        """Whether a tick of this job was refused because a run blocked it."""
        blocked = self._blocked.get(job)
        return blocked is not None and blocked.pause_ms > SHORTEST_PAUSE_MS

    def pause(self, advance: Advance) -> int:
        """Milliseconds before a refused tick is tried again: longer after each refusal, but a small part of its
        interval, or the pauses themselves would make it late."""
        blocked = self._blocked.get(advance.cursor.job)
        if blocked is None or advance.next_tick is None:
            return SHORTEST_PAUSE_MS
        interval_ms = (advance.next_tick - tick_of(advance.cursor)).total_seconds() * 1000
        longest = max(SHORTEST_PAUSE_MS, min(LONGEST_PAUSE_MS, int(interval_ms / TRIES_PER_INTERVAL)))
        self._blocked[advance.cursor.job] = blocked._replace(pause_ms=min(longest, 2 * blocked.pause_ms))
        return min(longest, blocked.pause_ms)

    def fired(self, advance: Advance, now: datetime, *, ran: bool) -> None:
        """`ran`: its tick became a run, which may block the next one from now on; otherwise it was skipped, and the
        run that blocked it still blocks."""
        job = advance.cursor.job
        if advance.next_tick is None or not is_late(advance.cursor, now, IN_TIME):
            self._blocked.pop(job, None)
        elif ran and (blocked := self._blocked.get(job)) is not None:
            self._blocked[job] = _after_late_run(blocked, now - tick_of(advance.cursor))


def _after_late_run(blocked: Blocked, lag: timedelta) -> Blocked:
    """The state after a late run has started: only this run can block the next tick now. If the job is as late as it
    was `LATE_RUNS` late runs ago, waiting does not help it to catch up: then this run overlaps every tick until it
    ends."""
    runs = blocked.late_runs + 1
    if runs % LATE_RUNS:
        return Blocked(blocked.tick, None, late_runs=runs, lag=blocked.lag)
    since = None if lag < blocked.lag else NEVER
    return Blocked(blocked.tick, since, late_runs=runs, lag=lag)


class Following(NamedTuple):
    """What was computed last for a schedule."""

    schedule: Schedule
    tick: datetime
    following: datetime | None
    jittered: bool


class TickPlanner:
    """`grace`: the grace time of jobs that set none."""

    def __init__(self, grace: int = AUTOMATIC) -> None:
        self.patience = Patience()
        self._grace = grace
        self._followings: dict[int, Following] = {}

    def plan_all(
        self,
        cursors: Iterable[Cursor],
        schedules: Mapping[int, Schedule],
        now: datetime,
        crowded: Crowded | None,
        failed: Callable[[Cursor, Exception], None],
    ) -> dict[FireMode, list[Advance]]:
        """Where these cursors move, by mode and in the order in which they are sent. Neighbours that agree in
        `_what_decides` are planned together, as are most jobs that are due together. A cursor that cannot be planned
        fails alone."""
        planned: dict[FireMode, list[Advance]] = {mode: [] for mode in FireMode}
        for _, some in groupby(cursors, _what_decides):
            self._plan_some(list(some), schedules, now, crowded, failed, planned)
        return planned

    def _plan_some(
        self,
        alike: Sequence[Cursor],
        schedules: Mapping[int, Schedule],
        now: datetime,
        crowded: Crowded | None,
        failed: Callable[[Cursor, Exception], None],
        planned: dict[FireMode, list[Advance]],
    ) -> None:
        try:
            modes, advances = self._plan_alike(alike, schedules[alike[0].schedule], now, crowded)
        except Exception as error:
            if len(alike) == 1:
                failed(alike[0], error)
            else:
                for cursor in alike:
                    self._plan_some([cursor], schedules, now, crowded, failed, planned)
            return
        if modes.count(modes[0]) == len(modes):
            planned[modes[0]] += advances
            return
        for mode, advance in zip(modes, advances, strict=True):
            planned[mode].append(advance)

    def _plan_alike(
        self, alike: Sequence[Cursor], schedule: Schedule, now: datetime, crowded: Crowded | None
    ) -> tuple[list[FireMode], list[Advance]]:
        tick = tick_of(alike[0])
        following, jittered = self._following(alike[0].schedule, schedule, tick)
        if following is None and schedule.delay is not None:
            # They move to the next look at the run that is fired.
            look = next_look(schedule, max(now, tick))
            return [FireMode.DELAYED] * len(alike), [Advance(cursor, look, look) for cursor in alike]
        if jittered:
            advances = [Advance(cursor, following, _fire_at(schedule, cursor.job, following)) for cursor in alike]
        else:
            advances = [_advance((cursor, following, following)) for cursor in alike]
        return self.patience.modes(alike, following, now, crowded), advances

    def _following(self, number: int, schedule: Schedule, tick: datetime) -> tuple[datetime | None, bool]:
        """The tick after, and whether the schedule spreads its jobs: remembered, because a herd comes in many
        batches."""
        known = self._followings.get(number)
        if known is not None and known.schedule is schedule and known.tick == tick:
            return known.following, known.jittered
        known = Following(schedule, tick, schedule.next_after(tick), schedule.spreads)
        if len(self._followings) >= MAX_FOLLOWINGS:
            self._followings.clear()
        self._followings[number] = known
        return known.following, known.jittered

    def decide(self, cursor: Cursor, schedule: Schedule, now: datetime) -> Leap | None:
        """For a cursor whose tick is missed. None: the tick is to be fired although it is late. Called in a thread, so
        it must not touch the planner's state."""
        if schedule.delay is not None:
            return None  # there is nothing to catch up: the run before ended long ago
        grace = self._grace if cursor.grace == AUTOMATIC else cursor.grace
        policy = MisfirePolicy(cursor.missed, grace, cursor.max_missed)
        decision = decide(schedule, tick_of(cursor), now, policy, cursor.job)
        passed = decision.passed
        if passed is None:
            return None
        fire_at = _fire_at(schedule, cursor.job, decision.next_tick)
        return Leap(cursor, decision.next_tick, fire_at, passed, decision.missed, decision.catch_up)

    def skip(self, cursor: Cursor, schedule: Schedule, now: datetime) -> Leap:
        """For a due cursor of a suspended tenant. Called in a thread, as `decide`."""
        if schedule.delay is not None:
            # A run of before may end during the suspension: the delay still counts from there.
            tick, following = tick_of(cursor), schedule.after_end(max(now, tick_of(cursor)))
            return Leap(cursor, following, following, None, [MissedRange(tick, tick, 1, SUSPENDED)], suspended=True)
        decision = skip_all(schedule, tick_of(cursor), now, SUSPENDED)
        passed = decision.passed or tick_of(cursor)
        fire_at = _fire_at(schedule, cursor.job, decision.next_tick)
        return Leap(cursor, decision.next_tick, fire_at, passed, decision.missed, suspended=True)


# Rows made of tuples, at half of the cost of naming their fields.
_advance: Callable[[tuple[object, ...]], Advance] = partial(tuple.__new__, Advance)
_claim: Callable[[tuple[object, ...]], Claim] = partial(tuple.__new__, Claim)
_what_decides: Callable[[Cursor], object] = attrgetter("schedule", "next_tick", "fire_at", "bounded")


def tick_of(cursor: Cursor) -> datetime:
    assert cursor.next_tick is not None
    return cursor.next_tick


def first_claims(runs: Iterable[tuple[Advance, int]], token: int) -> list[Claim]:
    """The claims on runs that were handed off as they were fired, with their lanes."""
    return [
        _claim((cursor.job, lane, tick, 0, token, cursor.revision, 1, 0, cursor.once, False, cursor.queue, None, None))
        for (cursor, _, _), lane in runs
        if (tick := cursor.next_tick) is not None
    ]


def _usual_mode(cursor: Cursor) -> FireMode:
    return FireMode.CAREFUL if cursor.bounded else FireMode.PLAIN


def _previous_tick_may_be_late(cursor: Cursor, following: datetime | None, now: datetime) -> bool:
    """If ticks are more than twice as far apart as this one is late, the previous tick was on time: a run of it that is
    still unfinished would have overlapped in any case."""
    return following is not None and is_late(cursor, now) and following - tick_of(cursor) <= 2 * (now - tick_of(cursor))


def is_late(cursor: Cursor, now: datetime, least: timedelta = LATE) -> bool:
    return cursor.fire_at is not None and now - cursor.fire_at >= least


def _fire_at(schedule: Schedule, job: int, tick: datetime | None) -> datetime | None:
    return None if tick is None else tick + schedule.jitter(job, tick)
