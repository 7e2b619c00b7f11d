"""One node's scheduler: it looks ahead, keeps the near future in a wheel, and offers what is due to the fire.

The poll is the guarantee, the wheel is the speed, notifications are hints. Every half window the next window of cursors
is loaded; every `SWEEP_EVERY` seconds a sweep without a lower bound looks at everything that should fire before the
next sweep, so that a registration that committed late, or one whose notification was lost, is never missed for longer.
What a load brings is compared with what is known: a cursor never returns, so of two with the same generation the later
tick is the newer truth.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime, timedelta
from itertools import islice

from detent.cluster.membership import Membership
from detent.domain.identity import from_milliseconds, milliseconds
from detent.runtime.clock import DatabaseClock, monotonic
from detent.runtime.service import Loop
from detent.scheduler.firing import Firing
from detent.scheduler.releasing import Releaser
from detent.scheduler.wheel import TimingWheel
from detent.store import Store
from detent.store.cursors import Cursor
from detent.telemetry.log import logger

log = logger("scheduler")

SWEEP_EVERY = 10.0
SWEEP_SOON = 1.0
LONGEST_WITHOUT_SWEEP = 30.0
MANY_DUE = 10_000
SWEEP_AHEAD = timedelta(seconds=12)
# While a herd is fired, half a million ticks may wait: to count them all for a scrape would itself make them late.
MOST_COUNTED = 100_000
FIRST_LIMIT = 400
FULL_LIMIT = 5_000
FULL_CHUNK = 16
MUCH = 2_000
STEP_BACK_MS = 1000
HELD_PAUSE = 0.5
# While due ticks wait to be sent, the fire is asked this often whether it can send them, whoever else does.
UNSENT_PAUSE = 0.05
UNSENT_AFTER = timedelta(seconds=1)


class Scheduler:
    def __init__(self, store: Store, membership: Membership, clock: DatabaseClock, window_seconds: float) -> None:
        self._store = store
        self._membership = membership
        self._clock = clock
        self._window = timedelta(seconds=window_seconds)
        self._known: dict[int, Cursor] = {}
        self._wheel = TimingWheel(clock.milliseconds())
        self._partitions: list[int] = []
        self._leads: frozenset[int] = frozenset()
        self._loaded_until: datetime | None = None
        self._load_next = 0.0
        self._sweep_next = 0.0
        self._swept_at = 0.0
        self._overfull = False
        self._read = 0
        self._held = False
        self._changed: set[int] = set()
        self._again: dict[int, int] = {}
        self._put_off: set[int] = set()
        self.firing: Firing | None = None
        self.releaser: Releaser | None = None
        self.loop = Loop("scheduler", self.tick)

    def lead(self, partitions: Collection[int]) -> None:
        """The partitions this node leads now; the cursors of new ones are loaded at the next pass."""
        before, self._leads = self._leads, frozenset(partitions)
        self._partitions = sorted(partitions)
        self._forget(before - self._leads)
        if self.releaser is not None:
            self.releaser.lead(self._partitions)
        if not before >= self._leads:
            self._load_next = self._sweep_next = 0.0
            self._loaded_until = None
            self.loop.wake()

    async def stop_leading(self, partitions: Collection[int]) -> None:
        """Fire nothing of these any more, and wait for what is under way."""
        self.lead([number for number in self._partitions if number not in partitions])
        if self.firing is not None:
            await self.firing.finish(partitions)

    def _forget(self, partitions: frozenset[int]) -> None:
        if partitions:
            for job in [job for job, cursor in self._known.items() if cursor.partition in partitions]:
                del self._known[job]
                self._wheel.discard(job)
                self._put_off.discard(job)

    def jobs_changed(self, jobs: set[int] | None) -> None:
        """A hint: these jobs changed, or (None) some did."""
        if not self._partitions:
            return  # whoever leads next loads everything
        if jobs is None:
            self._sweep_next = 0.0
        else:
            self._changed |= jobs
        if self.releaser is not None:
            self.releaser.look()
        self.loop.wake()

    def reload(self, job: int, pause_ms: int) -> None:
        """Its cursor was not as we thought; if it still stands there, it is tried again after the pause."""
        self._again[job] = pause_ms
        self.loop.wake()

    def moved(self, cursors: Iterable[Cursor]) -> None:
        """Their ticks have fired; this is where they stand now."""
        horizon = self._horizon()
        for cursor in cursors:
            self._admit(cursor, horizon)
        self.loop.wake()

    async def tick(self) -> float:
        if not self._partitions or not self._membership.trusted:
            return 0.5
        if self._membership.held:
            self._held = True
            return HELD_PAUSE
        if self._held:
            self._look_anew()
        self._offer_due()
        await self._read_changes()
        await self._look_ahead()
        self._offer_due()
        return self._pause()

    def _look_anew(self) -> None:
        """After a hold: what fell into it is late or missed, by each job's own rule."""
        self._held = False
        self._load_next = self._sweep_next = 0.0
        self._loaded_until = None

    async def _read_changes(self) -> None:
        changed, again = self._changed, self._again
        if not (changed or again):
            return
        self._changed, self._again = set(), {}
        try:
            found = await self._store.cursors.load(sorted(changed | again.keys()))
        except BaseException:
            self._changed |= changed
            self._again = again | self._again
            raise
        now, horizon = self._clock.milliseconds(), self._horizon()
        for cursor in found:
            self._admit(cursor, horizon, earliest=now + again[cursor.job] if cursor.job in again else 0)

    async def _look_ahead(self) -> None:
        if monotonic() >= self._sweep_next and self._may_wait():
            self._sweep_next = monotonic() + SWEEP_SOON
        if monotonic() >= self._sweep_next:
            self._swept_at = monotonic()
            await self._load(None, self._clock.now() + SWEEP_AHEAD)
            self._sweep_next = monotonic() + (SWEEP_EVERY if not self._overfull else SWEEP_SOON)
        if monotonic() >= self._load_next:
            upper = self._clock.now() + self._window
            await self._load(self._loaded_until, upper)
            self._loaded_until = upper
            self._load_next = monotonic() + self._window.total_seconds() / 2

    def _may_wait(self) -> bool:
        """A sweep while very many ticks are due reads them all once more, and holds the others up meanwhile. What it is
        there for, a registration that committed late, can wait until there are fewer; but not for ever."""
        many = self.firing is not None and self.firing.waiting_ticks > MANY_DUE
        return many and monotonic() - self._swept_at < LONGEST_WITHOUT_SWEEP

    async def _load(self, lower: datetime | None, upper: datetime) -> None:
        """One statement for all partitions; those with more than it brings are read in chunks, so that no load holds
        the loop for long. What is more than a chunk brings is left to the next sweep, which then comes soon. Where the
        load before brought very much, all are read in chunks: ticks that are due meanwhile must not wait for it."""
        step = FULL_CHUNK if self._read > MUCH else len(self._partitions)
        self._read = 0
        full = [
            partition
            for start in range(0, len(self._partitions), max(step, 1))
            for partition in await self._load_some(self._partitions[start : start + step], lower, upper, FIRST_LIMIT)
        ]
        overfull = [
            await self._load_some(full[start : start + FULL_CHUNK], lower, upper, FULL_LIMIT)
            for start in range(0, len(full), FULL_CHUNK)
        ]
        self._overfull = any(overfull)

    async def _load_some(self, partitions: list[int], lower: datetime | None, upper: datetime, limit: int) -> list[int]:
        """The partitions that may hold more than the limit."""
        cursors = await self._store.cursors.window(partitions, lower, upper, limit)
        self._read += len(cursors)
        counts: Counter[int] = Counter(cursor.partition for cursor in cursors)
        horizon = self._horizon()
        for cursor in cursors:
            self._admit(cursor, horizon)
        self._offer_due()
        if lower is None and self.firing is not None:
            self.firing.foresee(cursors)
        return [partition for partition, count in counts.items() if count >= limit]

    def _admit(self, cursor: Cursor, horizon: datetime, earliest: int = 0) -> None:
        known = self._known.get(cursor.job)
        if known is not None:
            news = _news(known, cursor)
            if news < 0 or (
                news == 0 and (self._under_way(cursor.job) or (not earliest and cursor.job in self._wheel))
            ):
                return
        if cursor.fire_at is None or cursor.fire_at > horizon or cursor.partition not in self._leads:
            self._known.pop(cursor.job, None)
            self._wheel.discard(cursor.job)
            self._put_off.discard(cursor.job)
            return
        if earliest:
            self._put_off.add(cursor.job)
        self._known[cursor.job] = cursor
        self._wheel.add(cursor.job, max(milliseconds(cursor.fire_at), earliest))

    def _under_way(self, job: int) -> bool:
        return self.firing is not None and self.firing.under_way(job)

    def _horizon(self) -> datetime:
        return self._clock.now() + self._window

    def _offer_due(self) -> None:
        now = self._clock.milliseconds()
        if self._membership.held:
            return  # asked after the time was read: a heartbeat tells of a hold first, of a new time second
        if now < self._wheel.present - STEP_BACK_MS:
            self._turn_back(now)
        due = self._wheel.advance(now)
        if self._put_off:
            self._put_off.difference_update(due)
        if self.firing is None:
            return
        if due:
            self.firing.offer([cursor for job in due if (cursor := self._known.get(job)) is not None])
        elif self.firing.behind:
            self.firing.pump()

    def _turn_back(self, now: int) -> None:
        """The database's clock stepped back, and a wheel does not: everything in it would count as due."""
        log.warning("the database's clock stepped back", milliseconds=self._wheel.present - now)
        self._wheel = TimingWheel(now)
        for job, cursor in self._known.items():
            if cursor.fire_at is not None and not self._under_way(job):
                self._wheel.add(job, milliseconds(cursor.fire_at))

    def unsent(self) -> tuple[int, float]:
        """How many ticks this node has held for longer than a second since they were due, and for how long the oldest:
        in the wheel, where a pass should have found them, or on their way."""
        now = self._clock.now()
        before = now - UNSENT_AFTER
        in_wheel = self._wheel.passed(milliseconds(before))
        held = [at for at in self._to_be_tried_again() if at is not None and at < before]
        if self.firing is not None:
            held += islice(self.firing.unsent(before), MOST_COUNTED)
        oldest = [now - min(held)] if held else []
        if in_wheel:
            oldest.append(now - from_milliseconds(self._wheel.next_due() or 0))
        return in_wheel + len(held), max(oldest, default=timedelta()).total_seconds()

    def _to_be_tried_again(self) -> Iterator[datetime | None]:
        """When those were due that are read again, or put off for a moment, for another reason than a run before."""
        for job in self._again.keys() | self._put_off:
            if job in self._known and not (self.firing is not None and self.firing.waits_for_lane(job)):
                yield self._known[job].fire_at

    def _pause(self) -> float:
        if self._again:
            return 0.0
        wait = min(self._sweep_next, self._load_next) - monotonic()
        if self.firing is not None and self.firing.behind:
            wait = min(wait, UNSENT_PAUSE)
        next_due = self._wheel.next_due()
        if next_due is not None:
            wait = min(wait, (next_due - self._clock.seconds() * 1000) / 1000)
        return max(wait, 0.0005)


def _news(known: Cursor, read: Cursor) -> int:
    """Below zero: what we know is newer than what was read. 0: it is the same. Generations only rise, and within one
    the tick only rises."""
    if known.generation != read.generation:
        return read.generation - known.generation
    if known.next_tick == read.next_tick:
        return 0
    return -1 if read.next_tick is not None and known.next_tick is not None and known.next_tick > read.next_tick else 1
