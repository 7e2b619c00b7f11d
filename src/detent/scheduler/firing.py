"""The fire: due cursors become runs, in batches that form while the batches before them are under way.

At most `STATEMENTS` are in flight, so at low load a tick is sent alone the moment it is due, and under load batches
grow by themselves. A job's next tick is computed before the fire and enters the wheel only after the reply.

What a reply can say:

    nothing about a job   its tick is a run in lane 0; ours already, if it was handed off
    a lane                a run in another lane of a job that allows overlap
    overlap               the lane was taken: the tick is in the ledger as skipped, the cursor has moved
    refused               the cursor was not as expected: read it again
    no reply              perhaps all of it happened: read the cursors again; the worker finds its runs by reconciling
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Literal, NamedTuple, Protocol

from detent import failpoints
from detent.clock import DatabaseClock, monotonic
from detent.coordination.membership import Membership
from detent.log import logger
from detent.misfire import THRESHOLD, Verdict, judge
from detent.model import Claim
from detent.schedule import Schedule
from detent.store import Store
from detent.store.cursors import Advance, Cursor, Exceptional, Leap
from detent.store.db import LockTimeout, OutcomeUnknown, Rejected

log = logger("firing")

STATEMENTS = 2
BATCH = 1000
LATE = timedelta(seconds=1)

Way = Literal["plain", "careful", "patient"]
WAYS: tuple[Way, ...] = ("plain", "careful", "patient")


class Handoff(Protocol):
    """The co-located worker, as the fire sees it."""

    def reserve(self, queues: Sequence[int]) -> list[bool]: ...
    def release(self, count: int) -> None: ...
    def accept_handed_off(self, claims: Sequence[Claim]) -> None: ...


class Fired(NamedTuple):
    """One batch: the cursors as they were and as they will be."""

    before: Sequence[Cursor]
    after: Sequence[Cursor]


class Patience:
    """After a fail-over the late ticks of a job come one upon another. Had they come in time, the run before would have
    been over, so they must not be skipped for overlapping with it. A late tick, and the first one in time after it,
    wait for a free lane for as long as the schedule leaves between two ticks; a run that takes longer does overlap."""

    def __init__(self) -> None:
        self._tried: dict[int, tuple[datetime, float]] = {}

    def way(self, cursor: Cursor, schedule: Schedule, now: datetime) -> Way:
        """How to fire a tick; asked again each time it is tried."""
        careful: Way = "careful" if cursor.bounded else "plain"
        tick = _tick(cursor)
        tried = self._tried.get(cursor.job)
        if tried is None and not _late(cursor, now):
            return careful
        if tried is None or tried[0] != tick:
            tried = self._tried[cursor.job] = (tick, monotonic())
        following = schedule.next_after(tick)
        waits = following is not None and monotonic() - tried[1] < (following - tick).total_seconds()
        return "patient" if waits else careful

    def fired(self, cursor: Cursor, now: datetime) -> None:
        if not _late(cursor, now):
            self._tried.pop(cursor.job, None)


class Firing:
    def __init__(
        self,
        store: Store,
        membership: Membership,
        clock: DatabaseClock,
        handoff: Handoff | None,
        *,
        moved: Callable[[Iterable[Cursor]], None],
        reload: Callable[[Iterable[int]], None],
        announce: Callable[[], None],
        unknown: Callable[[], None],
    ) -> None:
        self._store = store
        self._membership = membership
        self._clock = clock
        self._handoff = handoff
        self._moved = moved
        self._reload = reload
        self._announce = announce
        self._unknown = unknown
        self._ready: list[Cursor] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._quarantined: set[tuple[int, int]] = set()
        self._patience = Patience()
        self.busy: dict[int, Cursor] = {}

    def offer(self, cursors: Iterable[Cursor]) -> None:
        """Due cursors, to be fired as soon as a statement is free."""
        for cursor in cursors:
            if (cursor.job, cursor.generation) not in self._quarantined:
                self.busy[cursor.job] = cursor
                self._ready.append(cursor)
        self._pump()

    async def drain(self) -> None:
        """Wait for the fires under way; nothing new is started."""
        self._drop(self._ready)
        self._ready = []
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _pump(self) -> None:
        while self._ready and len(self._tasks) < STATEMENTS:
            batch, self._ready = self._ready[:BATCH], self._ready[BATCH:]
            task = asyncio.create_task(self._fire_batch(batch))
            self._tasks.add(task)
            task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a batch failed", error=repr(task.exception()))
        self._pump()

    async def _fire_batch(self, batch: list[Cursor]) -> None:
        """Sort a batch by what must happen to it, and do that; whatever fails is read again."""
        try:
            schedules = await self._store.cursors.schedules({cursor.schedule for cursor in batch})
            late, live = self._split(batch)
            if late:
                live += await self._settle_misfires(late, schedules)
            ways = [self._patience.way(cursor, schedules[cursor.schedule], self._clock.now()) for cursor in live]
            for way in WAYS:
                chosen = [cursor for cursor, its_way in zip(live, ways, strict=True) if its_way == way]
                if chosen:
                    await self._fire_by_place(chosen, schedules, way)
        finally:
            self._drop(batch)

    def _split(self, batch: Sequence[Cursor]) -> tuple[list[Cursor], list[Cursor]]:
        limit = self._clock.now() - THRESHOLD
        late = [cursor for cursor in batch if cursor.fire_at is not None and cursor.fire_at < limit]
        return late, [cursor for cursor in batch if cursor.fire_at is not None and cursor.fire_at >= limit]

    async def _settle_misfires(self, late: list[Cursor], schedules: dict[int, Schedule]) -> list[Cursor]:
        """Pass over what is missed; the cursors that stand on a tick to run now."""
        now = self._clock.now()
        fire, leaps = [], []
        for cursor in late:
            assert cursor.next_tick is not None
            schedule = schedules[cursor.schedule]
            verdict: Verdict = judge(schedule, cursor.next_tick, now, cursor.grace)
            if verdict.missed:
                fire_at = _fire_at(schedule, cursor.job, verdict.next_tick)
                leaps.append(Leap(cursor, verdict.next_tick, fire_at, verdict.missed))
            else:
                fire.append(cursor)
        return fire + await self._leap(sorted(leaps, key=lambda leap: leap.cursor.job))

    async def _leap(self, leaps: list[Leap]) -> list[Cursor]:
        if not leaps:
            return []
        try:
            moved = await self._store.cursors.miss(self._membership.node, leaps)
        except (OutcomeUnknown, LockTimeout):
            moved = set()
        except Rejected as error:
            return await self._leap_apart(leaps, error)
        self._read_again([leap.cursor.job for leap in leaps if leap.cursor.job not in moved])
        now = self._clock.now()
        run: list[Cursor] = []
        later: list[Cursor] = []
        for leap in leaps:
            if leap.cursor.job not in moved:
                continue
            log.warning("ticks missed", job=leap.cursor.job, ticks=sum(m.ticks for m in leap.missed))
            cursor = leap.cursor._replace(next_tick=leap.next_tick, fire_at=leap.fire_at)
            (run if leap.fire_at is not None and leap.fire_at <= now else later).append(cursor)
        self._moved(later)
        return run

    async def _leap_apart(self, leaps: list[Leap], error: Rejected) -> list[Cursor]:
        if len(leaps) == 1:
            self._set_aside(leaps[0].cursor, error)
            return []
        half = len(leaps) // 2
        return await self._leap(leaps[:half]) + await self._leap(leaps[half:])

    async def _fire_by_place(self, cursors: list[Cursor], schedules: dict[int, Schedule], way: Way) -> None:
        """Two statements at most: the runs our own worker takes at once, and those that wait in their queue."""
        cursors.sort(key=lambda cursor: cursor.job)
        taken = self._handoff.reserve([c.queue for c in cursors]) if self._handoff else [False] * len(cursors)
        for hand_off in (True, False):
            before = [cursor for cursor, ours in zip(cursors, taken, strict=True) if ours == hand_off]
            if before:
                after = [_advanced(cursor, schedules[cursor.schedule]) for cursor in before]
                await failpoints.hit("S3")
                await self._fire(Fired(before, after), hand_off, way)

    async def _fire(self, batch: Fired, hand_off: bool, way: Way) -> None:
        advances = [
            Advance(b.job, _tick(b), b.generation, a.next_tick, a.fire_at if a.fire_at != a.next_tick else None)
            for b, a in zip(batch.before, batch.after, strict=True)
        ]
        jobs = [cursor.job for cursor in batch.before]
        try:
            exceptions = await self._store.cursors.fire(
                self._membership.node,
                self._membership.incarnation,
                hand_off,
                advances,
                careful=way == "careful",
                patient=way == "patient",
            )
            await failpoints.hit("S6")
        except LockTimeout:
            await self._after_lock_timeout(batch, hand_off, way)
        except Rejected as error:
            await self._bisect(batch, hand_off, way, error)
        except OutcomeUnknown as error:
            log.warning("fire of unknown outcome", jobs=len(jobs), error=str(error))
            self._give_room_back(hand_off, len(jobs))
            self._read_again(jobs)
            self._unknown()
        except Exception:
            self._give_room_back(hand_off, len(jobs))
            self._read_again(jobs)
            raise
        else:
            self._fired(batch, hand_off, {item.job: item for item in exceptions})
            await failpoints.hit("S7")

    async def _after_lock_timeout(self, batch: Fired, hand_off: bool, way: Way) -> None:
        """Somebody holds one of the rows: fire the others, and come back to it."""
        if way != "plain":
            self._give_room_back(hand_off, len(batch.before))
            self._read_again([cursor.job for cursor in batch.before])
        else:
            await self._fire(batch, hand_off, "careful")

    async def _bisect(self, batch: Fired, hand_off: bool, way: Way, error: Rejected) -> None:
        """A row broke a constraint: its neighbours fire, it alone is set aside until its job changes."""
        size = len(batch.before)
        if size == 1:
            self._give_room_back(hand_off, 1)
            self._set_aside(batch.before[0], error)
            return
        half = size // 2
        await self._fire(Fired(batch.before[:half], batch.after[:half]), hand_off, way)
        await self._fire(Fired(batch.before[half:], batch.after[half:]), hand_off, way)

    def _set_aside(self, cursor: Cursor, error: Rejected) -> None:
        self._quarantined.add((cursor.job, cursor.generation))
        log.error("job set aside until it is changed: its tick cannot be fired", job=cursor.job, error=str(error))

    def _fired(self, batch: Fired, hand_off: bool, exceptions: dict[int, Exceptional]) -> None:
        claims, moved, refused = [], [], []
        now = self._clock.now()
        for before, after in zip(batch.before, batch.after, strict=True):
            self.busy.pop(before.job, None)
            exception = exceptions.get(before.job)
            if exception is not None and exception.why == "refused":
                refused.append(before.job)
                continue
            moved.append(after)
            self._patience.fired(before, now)
            if hand_off and (exception is None or exception.lane is not None):
                lane = 0 if exception is None or exception.lane is None else exception.lane
                claims.append(self._claim(before, lane))
        self._give_room_back(hand_off, len(batch.before) - len(claims))
        if claims and self._handoff:
            self._handoff.accept_handed_off(claims)
        elif not hand_off:
            self._announce()
        self._moved(moved)
        self._read_again(refused)

    def _claim(self, cursor: Cursor, lane: int) -> Claim:
        token = self._membership.incarnation << 32 | 1
        return Claim(cursor.job, lane, _tick(cursor), 0, token, cursor.revision, once=cursor.once)

    def _give_room_back(self, hand_off: bool, count: int) -> None:
        if hand_off and count and self._handoff:
            self._handoff.release(count)

    def _drop(self, cursors: Iterable[Cursor]) -> None:
        """No longer under way, unless a later tick of the same job already is."""
        for cursor in cursors:
            if self.busy.get(cursor.job) is cursor:
                del self.busy[cursor.job]

    def _read_again(self, jobs: Iterable[int]) -> None:
        jobs = list(jobs)
        for job in jobs:
            self.busy.pop(job, None)
        self._reload(jobs)


def _tick(cursor: Cursor) -> datetime:
    assert cursor.next_tick is not None
    return cursor.next_tick


def _late(cursor: Cursor, now: datetime) -> bool:
    return cursor.fire_at is not None and now - cursor.fire_at >= LATE


def _advanced(cursor: Cursor, schedule: Schedule) -> Cursor:
    following = schedule.next_after(_tick(cursor))
    return cursor._replace(next_tick=following, fire_at=_fire_at(schedule, cursor.job, following))


def _fire_at(schedule: Schedule, job: int, tick: datetime | None) -> datetime | None:
    return None if tick is None else tick + schedule.jitter(job, tick)
