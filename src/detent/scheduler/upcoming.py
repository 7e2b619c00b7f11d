"""The ticks of the near future that this node leads: each waits in the wheel, or is in a statement.

What a load brings is compared with what is known. A cursor never moves back, so of two with the same generation the one
with the later tick is newer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta

from detent.domain.identity import from_milliseconds, milliseconds
from detent.runtime.clock import DatabaseClock
from detent.runtime.wakeups import Wakeups
from detent.scheduler.wheel import TimingWheel
from detent.store.cursors import Advance, Cursor
from detent.telemetry.log import logger

log = logger("scheduler")

STEP_BACK_MS = 1000


class UpcomingTicks:
    def __init__(self, clock: DatabaseClock, wakeups: Wakeups, window: timedelta) -> None:
        self._clock = clock
        self._wakeups = wakeups
        self._window = window
        self._wheel = TimingWheel(clock.milliseconds())
        self._known: dict[int, Cursor] = {}
        self._postponed: set[int] = set()
        self._led: frozenset[int] = frozenset()
        # By job: the cursors in a statement that fires them, and those whose missed ticks are being decided.
        self.in_flight: dict[int, Cursor] = {}
        self.deciding: dict[int, Cursor] = {}
        # Jobs whose cursor was not as expected, and for how many milliseconds to postpone it if it has not moved.
        self.to_read: dict[int, int] = {}

    def lead(self, partitions: frozenset[int]) -> None:
        """Drop the cursors of all other partitions."""
        lost, self._led = self._led - partitions, partitions
        if lost:
            self._drop_all([job for job, cursor in self._known.items() if cursor.partition in lost])

    def admit(self, cursors: Iterable[Cursor]) -> None:
        """Take in what was read, or what a fire has moved."""
        horizon = self._clock.now() + self._window
        for cursor in cursors:
            self._admit(cursor, horizon)

    def admit_again(self, cursors: Iterable[Cursor], pauses: dict[int, int]) -> None:
        """Take in cursors that were read again; those that have not moved wait for their pause."""
        now, horizon = self._clock.milliseconds(), self._clock.now() + self._window
        for cursor in cursors:
            self._admit(cursor, horizon, now + pauses[cursor.job] if cursor.job in pauses else 0)

    def answered(self, jobs: Iterable[int]) -> None:
        """No statement about their cursors is under way any more."""
        for job in jobs:
            self.in_flight.pop(job, None)

    def fired(self, advances: Iterable[Advance]) -> None:
        """These ticks have fired. Most jobs have no other tick within the window, and are known again when the window
        reaches it."""
        horizon = self._clock.now() + self._window
        gone: list[int] = []
        for advance in advances:
            cursor, _, fire_at = advance
            if (fire_at is None or fire_at > horizon) and self._known.get(cursor.job) is cursor:
                gone.append(cursor.job)
            else:
                self._admit(advance.moved, horizon)
        self._drop_all(gone)
        self._wakeups.cursors_moved()

    def moved(self, cursors: Iterable[Cursor]) -> None:
        """Their ticks have fired; these are the moved cursors."""
        self.admit(cursors)
        self._wakeups.cursors_moved()

    def read_again(self, job: int, pause_ms: int) -> None:
        """Read the cursor again in the scheduler's next pass, because it was not as expected."""
        self.to_read[job] = pause_ms
        self._wakeups.cursors_moved()

    def take_due(self, now: int) -> list[Cursor]:
        if now < self._wheel.present - STEP_BACK_MS:
            self._turn_back(now)
        due = self._wheel.advance(now)
        if self._postponed:
            self._postponed.difference_update(due)
        return [cursor for job in due if (cursor := self._known.get(job)) is not None]

    def next_due(self) -> int | None:
        """When the next tick is due, at the earliest, in milliseconds since 1970."""
        return self._wheel.next_due()

    def under_way(self, job: int) -> bool:
        """Whether a statement about its cursor is under way. Ticks that merely wait for a statement do not count: the
        sweep offers them again, so that a lost wake-up cannot strand them."""
        return job in self.in_flight or job in self.deciding

    def overdue_in_wheel(self, before: datetime) -> tuple[int, datetime | None]:
        """How many ticks were due before this and are still in the wheel, and when the first was due."""
        count = self._wheel.passed(milliseconds(before))
        return count, from_milliseconds(self._wheel.next_due() or 0) if count else None

    def to_be_tried_again(self) -> Iterator[Cursor]:
        """Cursors to be read again, and those postponed for a moment."""
        for job in self.to_read.keys() | self._postponed:
            if job in self._known:
                yield self._known[job]

    def _admit(self, cursor: Cursor, horizon: datetime, earliest: int = 0) -> None:
        job = cursor.job
        known = self._known.get(job)
        if known is not None:
            newer = _newer(known, cursor)
            if newer < 0 or (newer == 0 and (self.under_way(job) or (not earliest and job in self._wheel))):
                return
        if cursor.fire_at is None or cursor.fire_at > horizon or cursor.partition not in self._led:
            self._drop(job)
            return
        if earliest:
            self._postponed.add(job)
        self._known[job] = cursor
        self._wheel.add(job, max(milliseconds(cursor.fire_at), earliest))

    def _drop(self, job: int) -> None:
        self._known.pop(job, None)
        self._wheel.discard(job)
        self._postponed.discard(job)

    def _drop_all(self, jobs: Sequence[int]) -> None:
        for job in jobs:
            del self._known[job]
        self._wheel.discard_all(jobs)
        self._postponed.difference_update(jobs)

    def _turn_back(self, now: int) -> None:
        """The database's clock stepped back, and a wheel cannot: everything in it would count as due."""
        log.warning("the database's clock stepped back", milliseconds=self._wheel.present - now)
        self._wheel = TimingWheel(now)
        for job, cursor in self._known.items():
            if cursor.fire_at is not None and not self.under_way(job):
                self._wheel.add(job, milliseconds(cursor.fire_at))


def _newer(known: Cursor, read: Cursor) -> int:
    """Above zero: what was read is newer than what is known. 0: it is the same. Generations only rise, and within one
    the tick only rises."""
    if known.generation != read.generation:
        return read.generation - known.generation
    if known.next_tick == read.next_tick:
        return 0
    return -1 if read.next_tick is not None and known.next_tick is not None and known.next_tick > read.next_tick else 1
