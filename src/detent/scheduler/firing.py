"""The fire: due cursors become runs, in batches that form while the batches before them are under way.

At most `STATEMENTS` are in flight, so at low load a tick is sent alone the moment it is due, and under load batches
grow by themselves. A job's next tick is computed before the fire and enters the wheel only after the reply.

What a reply can say:

    nothing about a job   its tick is a run in lane 0; ours already, if it was handed off
    a lane                a run in another lane of a job that allows overlap; below zero: it waits for the one before
    overlap               the lane was taken: the tick is in the ledger as skipped, the cursor has moved
    by request            somebody asked that this tick be skipped: as above
    refused               the cursor was not as expected, or the tick is to wait: read it again
    no reply              perhaps all of it happened: read the cursors again; the worker finds its runs by reconciling
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import chain, compress
from operator import attrgetter, not_

from detent.cluster.membership import Membership
from detent.domain.identity import first_token
from detent.domain.misfire import THRESHOLD
from detent.domain.run import Claim
from detent.domain.schedule import Schedule
from detent.errors import DetentError
from detent.runtime import failpoints
from detent.runtime.clock import DatabaseClock
from detent.runtime.service import Failing
from detent.scheduler.handing import CatchUps, Handoff, Reservation, Waiting
from detent.scheduler.misses import MissedTicks
from detent.scheduler.planning import SHORTEST_PAUSE_MS, WAYS, Planned, Planner, Way
from detent.scheduler.set_aside import SetAside
from detent.scheduler.telling import first_claim, observed, tell_fired
from detent.store import Store
from detent.store.cursors import Cursor, Exceptional
from detent.store.db import LockTimeout, OutcomeUnknown, Rejected
from detent.telemetry.log import logger
from detent.telemetry.metrics import Metrics
from detent.worker.queues.book import QueueBook
from detent.worker.queues.rounds import FairLine

log = logger("firing")

STATEMENTS = 2
BATCH = 1000
# One batch in so many begins with the lowest priority, so that none starves.
LOWEST_FIRST_EVERY = 8
# While very many are due, one place in so many is for what came due last: it shall not wait until the others are done.
NEWEST_EVERY = 8
FINISH_SECONDS = 0.5
_job_of = attrgetter("before.job")


class Firing:
    def __init__(
        self,
        store: Store,
        membership: Membership,
        clock: DatabaseClock,
        handoff: Handoff | None,
        *,
        moved: Callable[[Iterable[Cursor]], None],
        reload: Callable[[int, int], None],
        announce: Callable[[], None],
        unknown: Callable[[], None],
        metrics: Metrics,
        planner: Planner,
        book: QueueBook,
    ) -> None:
        self._store = store
        self._membership = membership
        self._clock = clock
        self._handoff = handoff
        self._moved = moved
        self._reload = reload
        self._announce = announce
        self._unknown = unknown
        self._metrics = metrics
        self._ready: dict[int, Cursor] = {}
        self._order: FairLine[int] = FairLine(book.weight_of)
        self._book = book
        self._tasks: dict[asyncio.Task[None], Sequence[Cursor]] = {}
        self._unplanned: list[Sequence[Cursor]] = []
        self.aside = SetAside(store, membership)
        self._planner = planner
        self._patience = planner.patience
        self._firing: dict[int, Cursor] = {}
        self.catch_ups: CatchUps | None = None
        self.waiting = Waiting(handoff)
        self._batches = 0
        self._closed = False
        self._failing = Failing()
        self.misses = MissedTicks(
            store, membership, clock, planner, metrics, self, moved=moved, reload=self._read_again
        )
        # Missed ticks that were judged: they run although they are late.
        self._run_late: dict[int, Cursor] = {}

    def offer(self, cursors: Iterable[Cursor]) -> None:
        """Due cursors, to be fired as soon as a statement is free. A newer cursor of a job replaces one that waits."""
        missed_before = self._clock.now() - THRESHOLD
        aside = self.aside if self.aside else None  # nearly always: asked once, not for every tick
        for cursor in cursors:
            if aside is not None and aside.holds(cursor):
                continue
            if cursor.fire_at is not None and cursor.fire_at < missed_before:
                self._ready.pop(cursor.job, None)
                self.misses.add(cursor)
            else:
                self._enqueue(cursor)
        self.pump()

    def _enqueue(self, cursor: Cursor) -> None:
        if cursor.job not in self._ready:
            self._order.append(self._book.tenant_of(cursor.queue), cursor.job, cursor.priority)
        self._ready[cursor.job] = cursor

    def run_late(self, cursors: Iterable[Cursor]) -> None:
        """Missed ticks that are to run after all."""
        for cursor in cursors:
            self._run_late[cursor.job] = cursor
            self._enqueue(cursor)
        self.pump()

    def begin_catch_ups(self, jobs: Collection[int], ticks: int) -> None:
        if self.catch_ups is not None:
            self.catch_ups.begin(jobs, ticks)

    def foresee(self, cursors: Iterable[Cursor]) -> None:
        """These are due within seconds: our own worker may prepare for those that it is likely to get."""
        handoff = self._handoff
        if handoff is not None:
            handoff.foresee([(cursor.job, cursor.revision) for cursor in cursors if handoff.takes(cursor.queue)])

    def under_way(self, job: int) -> bool:
        """Whether a statement about its cursor is under way. Only that: what merely waits here is offered again by the
        sweep, whatever we believe about who will wake us."""
        return job in self._firing or self.misses.under_way(job)

    def waits_for_lane(self, job: int) -> bool:
        """A late tick that is tried again until the run before it is over, or has taken too long."""
        return self._patience.blocked(job)

    @property
    def waiting_ticks(self) -> int:
        return len(self._ready) + len(self.misses)

    @property
    def behind(self) -> bool:
        """Whether ticks are due that no statement has been free for."""
        return bool(self._ready) or bool(self.misses)

    @property
    def failing_seconds(self) -> float:
        """For how long no fire has succeeded although some were tried; 0: the last one did."""
        return self._failing.seconds

    def unsent(self, before: datetime) -> Iterator[datetime]:
        """When those were due that are held here, in a statement or not, and were due before this."""
        for cursor in chain(self._ready.values(), self._firing.values(), self.misses.waiting()):
            if cursor.fire_at is not None and cursor.fire_at < before:
                yield cursor.fire_at

    async def finish(self, partitions: Collection[int]) -> None:
        """Nothing of these partitions is begun any more; wait for the fires under way, but not for ever: a fire that
        comes after the hand-over is harmless."""
        for job in [job for job, cursor in self._ready.items() if cursor.partition in partitions]:
            del self._ready[job]
        self.misses.forget(partitions)
        firing = any(cursor.partition in partitions for cursor in self._firing.values())
        if firing or self.misses.concerns(partitions):
            await asyncio.wait(self._under_way(), timeout=FINISH_SECONDS)

    def _under_way(self) -> list[asyncio.Task[None]]:
        return [*self._tasks] + ([self.misses.task] if self.misses.task is not None else [])

    async def drain(self) -> None:
        """Wait for the fires under way; nothing new is started."""
        self._close()
        await asyncio.gather(*self._under_way(), return_exceptions=True)

    def _close(self) -> None:
        self._closed = True
        self._ready.clear()
        self._order.clear()
        self.misses.forget()

    async def abandon(self) -> None:
        """The membership is lost: what is under way is refused by the server in any case."""
        self._close()
        tasks = self._under_way()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def pump(self) -> None:
        """Send what is due, as long as a statement is free and our own worker is not about to have room for it. Called
        when any of that changes, and by every pass of the scheduler: none of those calls is needed for another to do
        its work."""
        if self._closed or self._failing.pausing:
            return
        self.misses.pump()
        if self._ready and not self._order:
            self._line_up_again()
        while len(self._tasks) < STATEMENTS:
            batch = self._next_batch(self._room_for_next())
            if not batch:
                return
            self._unplanned.append(batch)
            self._count_promised()
            task = asyncio.create_task(self._fire_batch(batch))
            self._tasks[task] = batch
            task.add_done_callback(self._done)

    def _line_up_again(self) -> None:
        """Whatever took these out of the line without sending them: they are due."""
        for job, cursor in self._ready.items():
            self._order.append(self._book.tenant_of(cursor.queue), job, cursor.priority)

    def _room_for_next(self) -> int:
        first = self._ready.get(self._order.first()) if self._order else None
        if first is None or first.fire_at is None:
            return BATCH
        late = self._clock.seconds() - first.fire_at.timestamp()
        return self.waiting.batch(first.queue, late, min(BATCH, len(self._ready)))

    def _next_batch(self, most: int) -> list[Cursor]:
        """By priority, but for one batch in so many. A job is in one batch at a time: its next tick is sent only after
        the reply to the one before."""
        batch: list[Cursor] = []
        not_yet: list[int] = []
        self._batches += 1
        lowest_first = self._batches % LOWEST_FIRST_EVERY == 0
        newest_every = NEWEST_EVERY if len(self._ready) > BATCH else BATCH + 1
        while self._order and len(batch) < most:
            newest = len(batch) % newest_every == newest_every - 1
            job = self._order.popleft(lowest_first, newest)
            if job in self._firing:
                not_yet.append(job)
            elif job in self._ready:
                cursor = self._firing[job] = self._ready.pop(job)
                batch.append(cursor)
        for job in not_yet:
            cursor = self._firing[job]
            self._order.append(self._book.tenant_of(cursor.queue), job, cursor.priority)
        return batch

    def _done(self, task: asyncio.Task[None]) -> None:
        """What is not answered for in the end is read again, also where the task never began."""
        batch = self._tasks.pop(task)
        self._planned(batch)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, DetentError):
            self.not_fired(error)
        elif error is not None:
            log.error("a batch failed", error=repr(error))
            self._failing.note(repr(error))
        self._read_again([cursor.job for cursor in batch if self._firing.get(cursor.job) is cursor])
        self.pump()

    def not_fired(self, error: Exception) -> None:
        """The database refuses us, or does not answer: the next try comes later each time, and so does the log."""
        if self._failing.note(str(error)):
            failures, seconds = self._failing.count, round(self._failing.seconds, 1)
            log.warning(
                "batch not fired, its ticks are tried again", error=str(error), failures=failures, seconds=seconds
            )

    async def _fire_batch(self, batch: Sequence[Cursor]) -> None:
        """Plan a batch, cursor by cursor, and do it."""
        planned = await self._prepare(batch)
        for way in WAYS:
            chosen = [item for item in planned if item.way == way]
            if chosen:
                await self._fire_by_place(chosen, way)

    async def _prepare(self, batch: Sequence[Cursor]) -> list[Planned]:
        try:
            return self._plan(batch, await self._store.cursors.schedules({cursor.schedule for cursor in batch}))
        finally:
            self._planned(batch)

    def _planned(self, batch: Sequence[Cursor]) -> None:
        """From here on it reserves the room that it needs."""
        self._unplanned = [other for other in self._unplanned if other is not batch]
        self._count_promised()

    def _count_promised(self) -> None:
        self.waiting.promised = sum(map(len, self._unplanned))

    def _plan(self, cursors: Iterable[Cursor], schedules: dict[int, Schedule]) -> list[Planned]:
        planned: list[Planned] = []
        now = self._clock.now()
        missed_before = now - THRESHOLD
        releasing = self.catch_ups if self.catch_ups is not None and self.catch_ups.busy else None
        for cursor in cursors:
            missed = cursor.fire_at is not None and cursor.fire_at < missed_before
            if missed and self._run_late.get(cursor.job) != cursor:
                self._answered(cursor.job)
                self.misses.add(cursor)
                continue
            crowded = releasing is not None and releasing.pending(cursor.job)
            try:
                planned.append(self._planner.plan(cursor, schedules[cursor.schedule], now, crowded=crowded))
            except Exception as error:
                self.set_aside(cursor, error)
        return planned

    # --- the fire itself ---

    async def _fire_by_place(self, planned: list[Planned], way: Way) -> None:
        """Two statements at most: the runs our own worker takes at once, and those that wait in their queue. Room is
        given by priority, statements are sent in the order of jobs."""
        by_priority = sorted(planned, key=lambda item: -item.before.priority)
        queues = [item.before.queue for item in by_priority]
        ours = self._handoff.reserve(queues) if self._handoff is not None else [False] * len(queues)
        for hand_off in (True, False):
            chosen = list(compress(by_priority, ours if hand_off else map(not_, ours)))
            if chosen:
                chosen.sort(key=_job_of)
                reservation = Reservation(self._handoff, len(chosen) if hand_off else 0)
                try:
                    await failpoints.hit("S3")
                    await self._fire(chosen, way, reservation, hand_off)
                finally:
                    reservation.close()

    async def _fire(self, batch: Sequence[Planned], way: Way, reservation: Reservation, hand_off: bool) -> None:
        sent = self._clock.now()
        try:
            exceptions = await self._store.cursors.fire(
                self._membership.node,
                self._membership.incarnation,
                hand_off,
                [item.advance for item in batch],
                careful=way == "careful",
                patient=way == "patient",
            )
            await failpoints.hit("S6")
        except LockTimeout as error:
            if way == "plain":
                await self._fire(batch, "careful", reservation, hand_off)
            else:
                await self._fire_apart(batch, way, reservation, hand_off, error)
        except Rejected as error:
            await self._fire_apart(batch, way, reservation, hand_off, error)
        except OutcomeUnknown as error:
            self.not_fired(error)
            self._unknown()
        else:
            self._failing.over()
            found = {item.job: item for item in exceptions}
            if observed():
                tell_fired(batch, found, self._membership, sent, self._clock.now(), hand_off)
            self._fired(batch, way, reservation, hand_off, found)
            await failpoints.hit("S7")
            await self._promote([item.job for item in exceptions if item.lane is not None and item.lane < 0])

    async def _promote(self, jobs: list[int]) -> None:
        """These wait for the run before them, which is asked to make way (REPLACE), or may have ended while this fire
        was on its way: whoever ended it has looked for runs that wait before these were there."""
        if jobs:
            try:
                if await self._store.live_runs.promote(jobs):
                    self._announce()
            except DetentError as error:
                log.warning("runs that wait have not moved up yet", jobs=len(jobs), error=str(error))

    async def _fire_apart(
        self,
        batch: Sequence[Planned],
        way: Way,
        reservation: Reservation,
        hand_off: bool,
        error: LockTimeout | Rejected,
    ) -> None:
        """One row holds the others up, or breaks a constraint: halve until it stands alone. A held one is read again, a
        broken one is set aside, and tried again later."""
        if len(batch) == 1:
            if isinstance(error, Rejected):
                self.set_aside(batch[0].before, error)
            return
        half = len(batch) // 2
        try:
            await self._fire(batch[:half], way, reservation, hand_off)
        finally:
            await self._fire(batch[half:], way, reservation, hand_off)

    def _fired(
        self,
        batch: Sequence[Planned],
        way: Way,
        reservation: Reservation,
        hand_off: bool,
        exceptions: dict[int, Exceptional],
    ) -> None:
        claims: list[Claim] = []
        moved: list[Cursor] = []
        now, token = self._clock.now(), first_token(self._membership.incarnation)
        for item in batch:
            before, after, _ = item
            exception = exceptions.get(before.job) if exceptions else None
            if exception is not None and exception.why == "refused":
                self._read_again([before.job], self._patience.pause(item) if way == "patient" else None)
                continue
            self._answered(before.job)
            lane = 0 if exception is None else exception.lane
            self._patience.fired(item, now, ran=lane is not None)
            moved.append(after)
            if hand_off and lane is not None and lane >= 0:
                claims.append(first_claim(before, lane, token))
        overlaps = sum(exception.why == "overlap" for exception in exceptions.values())
        self._metrics.overlaps += overlaps
        self._metrics.fired += len(moved) - overlaps - sum(item.why == "by request" for item in exceptions.values())
        if way != "patient":  # there, to be refused is to wait
            self._metrics.refused_fires += len(batch) - len(moved)
        if len(moved) < len(batch) and not self._membership.trusted:
            log.warning("fires refused: others have taken this node's place", jobs=len(batch) - len(moved))
        if self.catch_ups is not None and self.catch_ups.busy:
            self.catch_ups.fired(cursor.job for cursor in moved)
        reservation.accept(claims)
        if moved and not hand_off:
            self._announce()
        self._moved(moved)

    # --- bookkeeping ---

    def _answered(self, job: int) -> None:
        self._firing.pop(job, None)
        if self._run_late:
            self._run_late.pop(job, None)

    def _read_again(self, jobs: Iterable[int], pause_ms: int | None = None) -> None:
        for job in jobs:
            self._answered(job)
            self._reload(job, SHORTEST_PAUSE_MS if pause_ms is None else pause_ms)

    def set_aside(self, cursor: Cursor, error: Exception) -> None:
        self._answered(cursor.job)
        self.aside.add(cursor, error)
