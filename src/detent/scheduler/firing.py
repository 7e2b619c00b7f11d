"""The fire: due cursors become runs, in batches that form while the batches before them are under way.

At most `STATEMENTS` are in flight, on two connections; the third is planned while it waits for one. At low load a tick
is sent alone the moment it is due, and under load batches grow. The next tick enters the wheel only after the reply.

What a reply can say:

    nothing about a job   its tick is a run in lane 0; ours already, if it was handed off
    a lane                a run in another lane of a job that allows overlap; below zero: it waits for the one before
    key                   a run that waits for a place of its concurrency key: it is not handed off
    overlap               the lane was taken: the tick is in the ledger as skipped, the cursor has moved
    by request            an operator asked to skip this tick: as above
    refused               the cursor was not as expected, or the tick is to wait: read it again
    no reply              perhaps all of it happened: read the cursors again; the worker finds its runs by reconciling
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain, compress
from operator import attrgetter, not_

from detent.cluster.membership import Membership
from detent.domain.identity import first_token
from detent.domain.misfire import THRESHOLD
from detent.domain.schedule import Schedule
from detent.errors import DetentError
from detent.runtime import failpoints
from detent.runtime.bisection import halve_until_alone
from detent.runtime.clock import DatabaseClock
from detent.runtime.service import Failing
from detent.runtime.wakeups import Wakeups
from detent.scheduler import fixed_delay
from detent.scheduler.catch_up_jobs import CatchUpJobs
from detent.scheduler.due import BATCH, DueTicks
from detent.scheduler.fire_log import count_fired, log_fired, observed
from detent.scheduler.handoff import Handoff, Reservation, WorkerWait, wait_for_slots
from detent.scheduler.missed_ticks import MissedTicks
from detent.scheduler.offering import OfferSender
from detent.scheduler.planning import SHORTEST_PAUSE_MS, FireMode, TickPlanner, first_claims
from detent.scheduler.set_aside import SetAside
from detent.scheduler.upcoming import UpcomingTicks
from detent.store import Store
from detent.store.cursors import Advance, Cursor, Exceptional
from detent.store.db import LockTimeout, OutcomeUnknown, Rejected
from detent.telemetry.log import logger
from detent.telemetry.metrics import Metrics
from detent.worker.queues.book import QueueBook

log = logger("firing")

STATEMENTS = 3
FINISH_SECONDS = 0.5
_job_of: Callable[[Advance], int] = attrgetter("cursor.job")


class Firing:
    def __init__(
        self,
        store: Store,
        membership: Membership,
        clock: DatabaseClock,
        *,
        ticks: UpcomingTicks,
        aside: SetAside,
        catch_ups: CatchUpJobs,
        planner: TickPlanner,
        worker: Handoff | None,
        offers: OfferSender | None,
        book: QueueBook,
        wakeups: Wakeups,
        metrics: Metrics,
    ) -> None:
        """`worker`: that of this node; None where the node only schedules. `offers`: None without a transport."""
        self._store = store
        self._membership = membership
        self._clock = clock
        self._ticks = ticks
        self._aside = aside
        self._catch_ups = catch_ups
        self._planner = planner
        self._patience = planner.patience
        self._worker = worker
        self._offers = offers
        self._wakeups = wakeups
        self._metrics = metrics
        self._book = book
        self._due = DueTicks(book)
        self._wait = WorkerWait(worker, wakeups)
        self._tasks: dict[asyncio.Task[None], Sequence[Cursor]] = {}
        self._unplanned: list[Sequence[Cursor]] = []
        self._closed = False
        self._failing = Failing()
        self.misses = MissedTicks(store, membership, clock, ticks, planner, catch_ups, metrics, fire=self, book=book)
        # Missed ticks that were decided: they run although they are late.
        self._run_late: dict[int, Cursor] = {}
        wakeups.capacity_freed.subscribe(self.pump)

    def offer(self, cursors: Iterable[Cursor]) -> None:
        """Due cursors, to be fired as soon as a statement is free."""
        missed_before = self._clock.now() - THRESHOLD
        aside = self._aside if self._aside else None  # usually nothing is set aside: checked once, not for every tick
        suspended = self._book.suspended or None
        due: list[Cursor] = []
        for cursor in cursors:
            if aside is not None and aside.holds(cursor):
                continue
            if (cursor.fire_at is not None and cursor.fire_at < missed_before) or (
                suspended is not None and cursor.queue in suspended
            ):
                self._due.discard(cursor.job)
                self.misses.add(cursor)
            else:
                due.append(cursor)
        self._due.add(due)
        self.pump()

    def run_late(self, cursors: Sequence[Cursor]) -> None:
        """Missed ticks that are to run after all."""
        self._run_late |= {cursor.job: cursor for cursor in cursors}
        self._due.add(cursors)
        self.pump()

    def prefetch(self, cursors: Iterable[Cursor]) -> None:
        """These are due within seconds: this node's worker may read the definitions that it is likely to need."""
        worker = self._worker
        if worker is not None:
            worker.prefetch([(cursor.job, cursor.revision) for cursor in cursors if worker.serves(cursor.queue)])

    def waits_for_lane(self, job: int) -> bool:
        """A late tick that is tried again until the run before it is over, or has taken too long."""
        return self._patience.blocked(job)

    @property
    def waiting_ticks(self) -> int:
        return len(self._due) + len(self.misses)

    @property
    def behind(self) -> bool:
        """Whether ticks are due that no statement has been free for."""
        return bool(self._due) or bool(self.misses)

    @property
    def failing_seconds(self) -> float:
        """For how long every fire has failed; 0 if the last one succeeded."""
        return self._failing.seconds

    def unsent(self, before: datetime) -> Iterator[datetime]:
        """The due times of all ticks that were due before this and are not fired yet, including those being sent."""
        for cursor in chain(self._due, self._ticks.in_flight.values(), self.misses.waiting()):
            if cursor.fire_at is not None and cursor.fire_at < before:
                yield cursor.fire_at

    async def finish(self, partitions: Collection[int]) -> None:
        """Begin nothing more of these partitions, and wait for the fires under way. The wait is bounded: a fire that
        comes after the hand-over is harmless."""
        self._due.drop(partitions)
        self.misses.drop(partitions)
        firing = any(cursor.partition in partitions for cursor in self._ticks.in_flight.values())
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
        self._due.clear()
        self.misses.drop()

    async def abandon(self) -> None:
        """The membership is lost: the server refuses what is under way in any case."""
        self._close()
        tasks = self._under_way()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def pump(self) -> None:
        """Send what is due while a statement is free, unless this node's worker is about to have capacity for it.
        Called when any of that changes, and by every pass of the scheduler: no call depends on another one."""
        if self._closed or self._failing.pausing:
            return
        self.misses.pump()
        while len(self._tasks) < STATEMENTS:
            batch = self._next_batch()
            if not batch:
                return
            self._unplanned.append(batch)
            self._count_promised()
            task = asyncio.create_task(self._fire_batch(batch))
            self._tasks[task] = batch
            task.add_done_callback(self._done)

    def _next_batch(self) -> list[Cursor]:
        """While ticks wait for this node's worker, those of tenants that it keeps a slot for go ahead of the others:
        one batch at a time, since more would find the slot taken."""
        limit = self._batch_limit()
        if limit or self._worker is None:
            return self._due.take(limit, self._ticks.in_flight)
        ahead = self._worker.with_free_slot(self._due.tenants)
        if ahead:
            ahead -= {self._book.tenant_of(cursor.queue) for batch in self._tasks.values() for cursor in batch}
        return self._due.take(BATCH, self._ticks.in_flight, ahead) if ahead else []

    def _batch_limit(self) -> int:
        first = self._due.first()
        if first is None or first.fire_at is None:
            return BATCH
        late = self._clock.seconds() - first.fire_at.timestamp()
        return self._wait.batch_limit(first.queue, late, min(BATCH, len(self._due)))

    def _done(self, task: asyncio.Task[None]) -> None:
        """Read again whatever has no answer, also where the task never began."""
        batch = self._tasks.pop(task)
        self._planned(batch)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, DetentError):
            self.not_fired(error)
        elif error is not None:
            log.error("a batch failed", error=repr(error))
            self._failing.note(repr(error))
        self._read_again([cursor.job for cursor in batch if self._ticks.in_flight.get(cursor.job) is cursor])
        self.pump()

    def not_fired(self, error: Exception) -> None:
        """The database refuses or does not answer: each next try comes later than the one before."""
        if self._failing.note(str(error)):
            failures, seconds = self._failing.count, round(self._failing.seconds, 1)
            log.warning("batch not fired, retrying its ticks", error=str(error), failures=failures, seconds=seconds)

    async def _fire_batch(self, batch: Sequence[Cursor]) -> None:
        try:
            schedules = await self._store.cursors.schedules({cursor.schedule for cursor in batch})
            planned = self._plan(batch, schedules)
        finally:
            self._planned(batch)
        for mode, chosen in planned.items():
            if chosen and mode is FireMode.DELAYED:
                store, by = self._store.cursors, self._membership.node
                chosen = await fixed_delay.ready(store, by, self._ticks, chosen, schedules)
            if chosen:
                await self._fire_with_handoff(chosen, mode)

    def _planned(self, batch: Sequence[Cursor]) -> None:
        """From now on the batch itself reserves the capacity that it needs."""
        self._unplanned = [other for other in self._unplanned if other is not batch]
        self._count_promised()

    def _count_promised(self) -> None:
        self._wait.promised = sum(map(len, self._unplanned))

    def _plan(self, cursors: Sequence[Cursor], schedules: dict[int, Schedule]) -> dict[FireMode, list[Advance]]:
        now = self._clock.now()
        crowded = self._catch_ups.pending if self._catch_ups.busy else None
        before = now - THRESHOLD
        due = [each for each in cursors if each.fire_at is None or each.fire_at >= before or not self._is_missed(each)]
        return self._planner.plan_all(due, schedules, now, crowded, failed=self.set_aside)

    def _is_missed(self, cursor: Cursor) -> bool:
        """Whether this late tick is still undecided. If so, it goes to `misses`, to be decided."""
        if self._run_late.get(cursor.job) == cursor:
            return False
        self._answered(cursor.job)
        self.misses.add(cursor)
        return True

    # --- the fire itself ---

    async def _fire_with_handoff(self, planned: Sequence[Advance], mode: FireMode) -> None:
        """Two statements at most: the runs that this node's worker takes at once, and those that wait in their queue.
        The worker's capacity is given by priority, statements are sent in the order of jobs."""
        by_priority = sorted(planned, key=attrgetter("cursor.priority"), reverse=True)
        queues = [item.cursor.queue for item in by_priority]
        ours = self._worker.reserve(queues) if self._worker is not None else [False] * len(queues)
        for hand_off in (True, False):
            chosen = list(compress(by_priority, ours if hand_off else map(not_, ours)))
            if chosen:
                chosen.sort(key=_job_of)
                reservation = Reservation(self._worker if hand_off else None, len(chosen))
                try:
                    await failpoints.hit("S3")
                    await self._fire(chosen, mode, reservation)
                finally:
                    reservation.close()

    async def _fire(self, batch: Sequence[Advance], mode: FireMode, reservation: Reservation) -> None:
        """A row that holds the others up, or breaks a constraint, is found by halving the batch. The cursor of a locked
        row is read again; one that breaks a constraint is set aside, and tried again later."""

        async def send(some: Sequence[Advance]) -> None:
            try:
                await self._send(some, mode, reservation)
            except LockTimeout:
                if mode is not FireMode.PLAIN:
                    raise
                await self._fire(some, FireMode.CAREFUL, reservation)

        await halve_until_alone(batch, send, self._not_fired_alone, (LockTimeout, Rejected))

    async def _not_fired_alone(self, item: Advance, error: DetentError) -> None:
        if isinstance(error, Rejected):
            self.set_aside(item.cursor, error)

    async def _send(self, batch: Sequence[Advance], mode: FireMode, reservation: Reservation) -> None:
        sent = self._clock.now()
        try:
            exceptions = await self._store.cursors.fire(
                self._membership.node,
                self._membership.incarnation,
                reservation.hand_off,
                batch,
                careful=mode is FireMode.CAREFUL,
                patient=mode in (FireMode.PATIENT, FireMode.DELAYED),
            )
            await failpoints.hit("S6")
        except OutcomeUnknown as error:
            self.not_fired(error)
            self._wakeups.reply_lost()
            return
        self._failing.over()
        found = {item.job: item for item in exceptions}
        if observed():
            log_fired(batch, found, self._membership, sent, self._clock.now(), reservation.hand_off)
        self._fired(batch, mode, reservation, found)
        await failpoints.hit("S7")
        await self._make_ready(exceptions)

    async def _make_ready(self, exceptions: Collection[Exceptional]) -> None:
        """Runs that wait for their previous run: it is asked to stop (REPLACE), or it may have ended during this fire,
        before anything waited for it. And runs whose concurrency key may have a free place. After a failure, the
        workers' own passes do it."""
        waiting = [item.job for item in exceptions if item.lane is not None and item.lane < 0]
        keyed = [item.job for item in exceptions if item.why == "key"]
        try:
            ready = bool(waiting) and await self._store.live_runs.promote(waiting)
            if (bool(keyed) and await self._store.live_runs.admit(keyed)) or ready:
                self._wakeups.runs_queued()
        except DetentError as error:
            log.warning("waiting runs are not ready yet", jobs=len(waiting) + len(keyed), error=str(error))

    def _fired(
        self, batch: Sequence[Advance], mode: FireMode, reservation: Reservation, exceptions: dict[int, Exceptional]
    ) -> None:
        fired = [item for item in batch if not self._refused(item, mode, exceptions)] if exceptions else batch
        self._ticks.answered(map(_job_of, fired))
        for item in fired if self._run_late else ():
            self._run_late.pop(item.cursor.job, None)
        self._note_late_runs(fired, exceptions)
        count_fired(self._metrics, self._membership, len(batch), len(fired), mode, exceptions)
        if self._catch_ups.busy:
            self._catch_ups.fired(map(_job_of, fired))
        self._pass_on(wait_for_slots(fired, exceptions), reservation)
        if fired and not reservation.hand_off and self._offers is None:
            self._wakeups.runs_queued()
        self._ticks.fired(fired)

    def _refused(self, item: Advance, mode: FireMode, exceptions: Mapping[int, Exceptional]) -> bool:
        """Whether its tick was refused: then its cursor is read again."""
        exception = exceptions.get(item.cursor.job)
        if exception is None or exception.why != "refused":
            return False
        self._read_again([item.cursor.job], self._patience.pause(item) if mode is FireMode.PATIENT else None)
        return True

    def _note_late_runs(self, fired: Sequence[Advance], exceptions: Mapping[int, Exceptional]) -> None:
        now = self._clock.now()
        for item in fired if self._patience.concerned else ():
            exception = exceptions.get(item.cursor.job)
            self._patience.fired(item, now, ran=exception is None or exception.lane is not None)

    def _pass_on(self, runs: Sequence[tuple[Advance, int]], reservation: Reservation) -> None:
        """The runs that wait for nothing but a slot go to this node's worker, or are offered to others."""
        if reservation.hand_off:
            reservation.accept(first_claims(runs, first_token(self._membership.incarnation)))
        elif runs and self._offers is not None:
            self._offers.fired([(item.cursor, lane) for item, lane in runs], first_token(self._membership.incarnation))

    # --- bookkeeping ---

    def _answered(self, job: int) -> None:
        self._ticks.in_flight.pop(job, None)
        if self._run_late:
            self._run_late.pop(job, None)

    def _read_again(self, jobs: Iterable[int], pause_ms: int | None = None) -> None:
        for job in jobs:
            self._answered(job)
            self._ticks.read_again(job, SHORTEST_PAUSE_MS if pause_ms is None else pause_ms)

    def set_aside(self, cursor: Cursor, error: Exception) -> None:
        self._answered(cursor.job)
        self._aside.add(cursor, error)
