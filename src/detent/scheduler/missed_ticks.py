"""Cursors at a missed tick: the misfire policy is applied, and they move past the ticks that do not run.

This can take long: a year's outage of one rule of ten-minute meetings took 0.4 s, and there can be thousands of such
jobs at the same time. So it runs in a thread, for a bounded time per batch, with a queue of its own: live ticks never
wait for it. Ticks that are to run although they are late go back to the fire.

The ticks of a suspended tenant come here too, as soon as they are due: none of them runs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Protocol

from detent.cluster.membership import Membership
from detent.domain.schedule import Schedule
from detent.errors import DetentError
from detent.runtime.bisection import halve_until_alone
from detent.runtime.clock import DatabaseClock
from detent.scheduler.catch_up_jobs import CatchUpJobs
from detent.scheduler.fire_log import log_missed
from detent.scheduler.planning import SHORTEST_PAUSE_MS, MissedTickPlan, TickPlanner
from detent.scheduler.upcoming import UpcomingTicks
from detent.store import Store
from detent.store.cursors import Cursor, Leap
from detent.store.db import LockTimeout, Rejected
from detent.telemetry.log import logger
from detent.telemetry.metrics import Metrics
from detent.worker.queues.book import QueueBook

log = logger("firing")

BATCH = 1000
# The interpreter switches between a computing thread and the loop every few milliseconds; this bounds how long the
# first of a batch wait for the last.
STRETCH_SECONDS = 0.1


class Fire(Protocol):
    """The fire, as its missed ticks see it."""

    def run_late(self, cursors: Sequence[Cursor]) -> None: ...
    def set_aside(self, cursor: Cursor, error: Exception) -> None: ...
    def not_fired(self, error: Exception) -> None: ...


class MissedTicks:
    def __init__(
        self,
        store: Store,
        membership: Membership,
        clock: DatabaseClock,
        ticks: UpcomingTicks,
        planner: TickPlanner,
        catch_ups: CatchUpJobs,
        metrics: Metrics,
        *,
        fire: Fire,
        book: QueueBook,
    ) -> None:
        self._store = store
        self._membership = membership
        self._clock = clock
        self._ticks = ticks
        self._planner = planner
        self._catch_ups = catch_ups
        self._metrics = metrics
        self._fire = fire
        self._book = book
        self._line: dict[int, Cursor] = {}
        self.task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._line)

    def add(self, cursor: Cursor) -> None:
        self._line[cursor.job] = cursor

    def waiting(self) -> Iterable[Cursor]:
        return chain(self._line.values(), self._ticks.deciding.values())

    def concerns(self, partitions: Collection[int]) -> bool:
        return any(cursor.partition in partitions for cursor in self._ticks.deciding.values())

    def drop(self, partitions: Collection[int] | None = None) -> None:
        """Drop the cursors whose missed ticks wait for a decision, of these partitions (None: of all)."""
        self._line = (
            {} if partitions is None else {job: c for job, c in self._line.items() if c.partition not in partitions}
        )

    def pump(self) -> None:
        if self._line and self.task is None:
            jobs = list(self._line)[:BATCH]
            self._ticks.deciding = {job: self._line.pop(job) for job in jobs}
            self.task = asyncio.create_task(self._settle(list(self._ticks.deciding.values())))
            self.task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self.task = None
        left, self._ticks.deciding = list(self._ticks.deciding), {}
        error = None if task.cancelled() else task.exception()
        if isinstance(error, DetentError):
            self._fire.not_fired(error)
        elif error is not None:
            log.error("missed ticks could not be settled", error=repr(error))
        for job in left:
            self._ticks.read_again(job, SHORTEST_PAUSE_MS)

    async def _settle(self, cursors: list[Cursor]) -> None:
        schedules = await self._store.cursors.schedules({cursor.schedule for cursor in cursors})
        while cursors:
            decided = await asyncio.to_thread(self._decide_some, cursors, schedules)
            await self._apply(decided)
            del cursors[: len(decided)]

    def _decide_some(
        self, cursors: Sequence[Cursor], schedules: Mapping[int, Schedule]
    ) -> list[tuple[Cursor, MissedTickPlan]]:
        """Decides as many as fit into one time slice, at least one. A cursor that raises fails alone."""
        until = time.monotonic() + STRETCH_SECONDS
        decided: list[tuple[Cursor, MissedTickPlan]] = []
        for cursor in cursors:
            try:
                decided.append((cursor, self._decide(cursor, schedules[cursor.schedule])))
            except Exception as error:
                decided.append((cursor, error))
            if time.monotonic() >= until:
                break
        return decided

    def _decide(self, cursor: Cursor, schedule: Schedule) -> Leap | None:
        suspended = cursor.queue in self._book.suspended
        decide = self._planner.skip if suspended else self._planner.decide
        return decide(cursor, schedule, self._clock.now())

    async def _apply(self, decided: Sequence[tuple[Cursor, MissedTickPlan]]) -> None:
        leaps: list[Leap] = []
        run: list[Cursor] = []
        for cursor, decision in decided:
            match decision:
                case Leap():
                    leaps.append(decision)
                case None:
                    run.append(cursor)
                case error:
                    self._ticks.deciding.pop(cursor.job, None)
                    self._fire.set_aside(cursor, error)
        leaps.sort(key=lambda leap: leap.cursor.job)
        for suspended in (False, True):
            some = [leap for leap in leaps if leap.suspended is suspended]
            for moved in await halve_until_alone(some, self._leap, self._not_moved, (LockTimeout, Rejected)):
                run += moved
        for cursor in run:
            self._ticks.deciding.pop(cursor.job, None)
        self._fire.run_late(run)

    async def _leap(self, leaps: Sequence[Leap]) -> list[Cursor]:
        """Move past the missed ticks; returns the cursors whose next tick is to run now. The leaps are all of suspended
        tenants, or none is."""
        passed = await self._store.cursors.miss(self._membership.node, leaps, suspended=leaps[0].suspended)
        now = self._clock.now()
        run: list[Cursor] = []
        for leap in leaps:
            if leap.cursor.job not in passed:
                continue  # not as it was: it is read again
            cursor = leap.cursor._replace(next_tick=leap.next_tick, fire_at=leap.fire_at)
            if cursor.fire_at is not None and cursor.fire_at <= now:
                run.append(cursor)
            else:
                self._ticks.deciding.pop(cursor.job, None)
                self._ticks.moved([cursor])
        if passed:
            self._report([leap for leap in leaps if leap.cursor.job in passed])
        return run

    async def _not_moved(self, leap: Leap, error: DetentError) -> list[Cursor]:
        if isinstance(error, Rejected):
            self._ticks.deciding.pop(leap.cursor.job, None)
            self._fire.set_aside(leap.cursor, error)
        return []

    def _report(self, leaps: Sequence[Leap]) -> None:
        log_missed(leaps, self._membership.node)
        if leaps[0].suspended:
            return  # what an operator asked for is no misfire
        ticks = sum(missed.ticks for leap in leaps for missed in leap.missed)
        made_up = {leap.cursor.job: leap.catch_up.ticks for leap in leaps if leap.catch_up is not None}
        self._metrics.missed += ticks
        log.warning("ticks missed", jobs=len(leaps), ticks=ticks, to_be_made_up=sum(made_up.values()))
        if made_up:
            self._catch_ups.begin(made_up.keys(), sum(made_up.values()))
