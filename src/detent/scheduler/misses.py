"""Cursors that stand on a tick which is missed: they are judged, and moved past what does not run.

To judge a cursor can take long: a year's outage of one rule of ten-minute meetings took 0.4 s, and thousands of them
come back at once. So it is done in a thread, for a bounded time at a stretch, in a line of its own: live ticks never
wait for it. What is to run although it is late goes back to the fire.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Protocol

from detent.cluster.membership import Membership
from detent.domain.schedule import Schedule
from detent.errors import DetentError
from detent.runtime.clock import DatabaseClock
from detent.scheduler.planning import Judgement, Planner
from detent.scheduler.telling import tell_missed
from detent.store import Store
from detent.store.cursors import Cursor, Leap
from detent.store.db import LockTimeout, Rejected
from detent.telemetry.log import logger
from detent.telemetry.metrics import Metrics

log = logger("firing")

BATCH = 1000
# A thread that computes lets the loop have its turn every few milliseconds; this bounds how long the first of a batch
# wait for the last.
STRETCH_SECONDS = 0.1


class Fire(Protocol):
    """The fire, as its missed ticks see it."""

    def run_late(self, cursors: Iterable[Cursor]) -> None: ...
    def set_aside(self, cursor: Cursor, error: Exception) -> None: ...
    def not_fired(self, error: Exception) -> None: ...
    def begin_catch_ups(self, jobs: Collection[int], ticks: int) -> None: ...


class MissedTicks:
    def __init__(
        self,
        store: Store,
        membership: Membership,
        clock: DatabaseClock,
        planner: Planner,
        metrics: Metrics,
        fire: Fire,
        *,
        moved: Callable[[Iterable[Cursor]], None],
        reload: Callable[[Iterable[int]], None],
    ) -> None:
        self._store = store
        self._membership = membership
        self._clock = clock
        self._planner = planner
        self._metrics = metrics
        self._fire = fire
        self._moved = moved
        self._reload = reload
        self._line: dict[int, Cursor] = {}
        self._judging: dict[int, Cursor] = {}
        self.task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._line)

    def add(self, cursor: Cursor) -> None:
        self._line[cursor.job] = cursor

    def waiting(self) -> Iterable[Cursor]:
        return chain(self._line.values(), self._judging.values())

    def under_way(self, job: int) -> bool:
        return job in self._judging

    def concerns(self, partitions: Collection[int]) -> bool:
        return any(cursor.partition in partitions for cursor in self._judging.values())

    def forget(self, partitions: Collection[int] | None = None) -> None:
        """What waits to be judged, of these partitions (None: of all)."""
        self._line = (
            {} if partitions is None else {job: c for job, c in self._line.items() if c.partition not in partitions}
        )

    def pump(self) -> None:
        if self._line and self.task is None:
            jobs = list(self._line)[:BATCH]
            self._judging = {job: self._line.pop(job) for job in jobs}
            self.task = asyncio.create_task(self._settle(list(self._judging.values())))
            self.task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self.task = None
        left, self._judging = list(self._judging), {}
        error = None if task.cancelled() else task.exception()
        if isinstance(error, DetentError):
            self._fire.not_fired(error)
        elif error is not None:
            log.error("missed ticks could not be judged", error=repr(error))
        self._reload(left)

    async def _settle(self, cursors: list[Cursor]) -> None:
        schedules = await self._store.cursors.schedules({cursor.schedule for cursor in cursors})
        while cursors:
            judged = await asyncio.to_thread(self._judge_some, cursors, schedules)
            await self._obey(judged)
            del cursors[: len(judged)]

    def _judge_some(
        self, cursors: Sequence[Cursor], schedules: Mapping[int, Schedule]
    ) -> list[tuple[Cursor, Judgement]]:
        """As many as can be judged in a stretch, and one at least. One that cannot be judged stands still alone."""
        until = time.monotonic() + STRETCH_SECONDS
        judged: list[tuple[Cursor, Judgement]] = []
        for cursor in cursors:
            try:
                judged.append((cursor, self._planner.judge(cursor, schedules[cursor.schedule], self._clock.now())))
            except Exception as error:
                judged.append((cursor, error))
            if time.monotonic() >= until:
                break
        return judged

    async def _obey(self, judged: Sequence[tuple[Cursor, Judgement]]) -> None:
        leaps: list[Leap] = []
        run: list[Cursor] = []
        for cursor, judgement in judged:
            match judgement:
                case Leap():
                    leaps.append(judgement)
                case None:
                    run.append(cursor)
                case error:
                    self._judging.pop(cursor.job, None)
                    self._fire.set_aside(cursor, error)
        if leaps:
            run += await self._leap(sorted(leaps, key=lambda leap: leap.cursor.job))
        for cursor in run:
            self._judging.pop(cursor.job, None)
        self._fire.run_late(run)

    async def _leap(self, leaps: Sequence[Leap]) -> list[Cursor]:
        """Pass over what is missed; the cursors that then stand on a tick to run now."""
        try:
            moved = await self._store.cursors.miss(self._membership.node, leaps)
        except (LockTimeout, Rejected) as error:
            return await self._leap_apart(leaps, error)
        now = self._clock.now()
        run: list[Cursor] = []
        for leap in leaps:
            if leap.cursor.job not in moved:
                continue  # not as it was: it is read again
            cursor = leap.cursor._replace(next_tick=leap.next_tick, fire_at=leap.fire_at)
            if cursor.fire_at is not None and cursor.fire_at <= now:
                run.append(cursor)
            else:
                self._judging.pop(cursor.job, None)
                self._moved([cursor])
        if moved:
            self._report([leap for leap in leaps if leap.cursor.job in moved])
        return run

    async def _leap_apart(self, leaps: Sequence[Leap], error: LockTimeout | Rejected) -> list[Cursor]:
        if len(leaps) == 1:
            if isinstance(error, Rejected):
                self._judging.pop(leaps[0].cursor.job, None)
                self._fire.set_aside(leaps[0].cursor, error)
            return []
        half = len(leaps) // 2
        return await self._leap(leaps[:half]) + await self._leap(leaps[half:])

    def _report(self, leaps: Sequence[Leap]) -> None:
        ticks = sum(missed.ticks for leap in leaps for missed in leap.missed)
        made_up = {leap.cursor.job: leap.catch_up.ticks for leap in leaps if leap.catch_up is not None}
        self._metrics.missed += ticks
        tell_missed(leaps, self._membership.node)
        log.warning("ticks missed", jobs=len(leaps), ticks=ticks, to_be_made_up=sum(made_up.values()))
        if made_up:
            self._fire.begin_catch_ups(made_up.keys(), sum(made_up.values()))
