"""The release of ticks outside the schedule: missed ticks to catch up, and backfills.

Each range of such ticks has a row of its own and moves by its own compare-and-set, so it never shares the live cursor.
The leader of a partition releases its ranges one tick at a time, at the partition's rate, and only while no live tick
waits to be fired; the statement itself also checks the job, its lanes and its queue (`catch_up.sql`). A range that is
refused now is tried again, at growing intervals.

The ranges of a job that was deleted, or has reached its maximum of runs, are dropped.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from detent.cluster.membership import Membership
from detent.errors import DetentError
from detent.jobs.catch_up_ranges import dropped_ticks, tick_after
from detent.runtime.bisection import halve_until_alone
from detent.runtime.clock import DatabaseClock, monotonic
from detent.runtime.service import Loop
from detent.runtime.wakeups import Wakeups
from detent.scheduler.catch_up_jobs import CatchUpJobs
from detent.scheduler.catch_up_pace import CatchUpPace, catch_up_rate
from detent.scheduler.set_aside import SetAside
from detent.store import Store
from detent.store.catchups import DueCatchUp, RangeDrop, Release, ReleaseResult
from detent.store.db import LockTimeout, OutcomeUnknown, Rejected
from detent.telemetry import transitions
from detent.telemetry.log import logger
from detent.telemetry.metrics import Metrics

log = logger("catch-up")

# New ranges are announced, and upkeep checks for them too; this is for when both failed.
READ_EVERY = 60.0
SOONEST_READ = 0.5
WINDOW = 100
BATCH = 200
LIVE_FIRST = 0.02
HELD_PAUSE = 0.5
SHORTEST_PAUSE = 0.05
LONGEST_PAUSE = 1.0
MAX_COUNTED = 100_000


class Live(Protocol):
    """The fire of live ticks, as the release sees it."""

    @property
    def behind(self) -> bool: ...


class RangeState:
    """A range as it was last read, and when it may be tried next."""

    __slots__ = ("due", "pause", "try_next")

    def __init__(self, due: DueCatchUp) -> None:
        self.due = due
        self.pause = SHORTEST_PAUSE
        self.try_next = 0.0

    def wait(self, now: float) -> None:
        self.try_next = now + self.pause
        self.pause = min(2 * self.pause, LONGEST_PAUSE)

    def moved(self, tick: datetime) -> None:
        self.due = self.due._replace(next_tick=tick)
        self.pause = SHORTEST_PAUSE
        self.try_next = 0.0


class CatchUpReleaser:
    def __init__(
        self,
        store: Store,
        membership: Membership,
        clock: DatabaseClock,
        *,
        live: Live,
        jobs: CatchUpJobs,
        aside: SetAside,
        wakeups: Wakeups,
        metrics: Metrics,
        rate: float | None,
    ) -> None:
        """`rate`: ticks per second of a partition; None: twice what its schedules make."""
        self._store = store
        self._membership = membership
        self._clock = clock
        self._live = live
        self._jobs = jobs
        self._aside = aside
        self._wakeups = wakeups
        self._metrics = metrics
        self._rate = rate
        self._paces: dict[int, CatchUpPace] = {}
        self._known: dict[int, RangeState] = {}
        self._counted: set[int] = set()
        self._after: dict[int, int] = {}
        self._read_next = 0.0
        self._read_at = -SOONEST_READ
        self.loop = Loop("catch-up", self.tick)
        wakeups.catch_ups_added.subscribe(self.read_soon)

    def lead(self, partitions: Collection[int]) -> None:
        """The partitions this node leads now."""
        if self._after.keys() != set(partitions):
            self._after = {partition: self._after.get(partition, 0) for partition in partitions}
            self._keep(item for item in self._known.values() if item.due.partition in self._after)
            self.read_soon()

    def read_soon(self) -> None:
        """Read the ranges soon, because there may be new ones; at most twice a second, however often this is called."""
        self._read_next = min(self._read_next, self._read_at + SOONEST_READ)
        self.loop.wake()

    # --- one pass ---

    async def tick(self) -> float:
        if not self._after or not self._membership.trusted or self._membership.held:
            return HELD_PAUSE
        if monotonic() >= self._read_next:
            await self._read()
        if not self._known:
            return max(self._read_next - monotonic(), 0.0)
        if self._live.behind:
            return LIVE_FIRST
        await self._release_some()
        return self._pause()

    async def _read(self) -> None:
        """The next window of each partition; after its last one, from the beginning."""
        self._read_at = monotonic()
        self._read_next = self._read_at + READ_EVERY  # set before the read: a hint that comes meanwhile is not lost
        self._jobs.drop_old(self._read_at)
        asked = dict(self._after)
        try:
            found = await self._store.catchups.due(asked, WINDOW)
        except BaseException:
            self._read_next = 0.0  # so that the next pass reads, not the next minute
            raise
        found = [due for due in found if due.partition in self._after]  # another node may lead some of them by now
        counts = Counter(due.partition for due in found)
        last = {due.partition: due.catchup for due in found}
        for partition in asked.keys() & self._after.keys():
            self._after[partition] = last[partition] if counts[partition] == WINDOW else 0
            if asked[partition] and not counts[partition]:
                self._read_next = 0.0
        self._count_begun(found)
        self._keep(self._state_of(due) for due in found)
        await self._write_off([due for due in found if due.dead])

    def _count_begun(self, found: Iterable[DueCatchUp]) -> None:
        """Count ranges that this node did not create: backfills, and pauses whose ticks are to run."""
        if len(self._counted) > MAX_COUNTED:
            self._counted.clear()
        new = [due for due in found if due.untouched and not due.dead and due.catchup not in self._counted]
        self._counted.update(due.catchup for due in new)
        others = [due for due in new if due.kind == "backfill" or not self._jobs.has_begun(due.job)]
        self._jobs.seen(due.job for due in new if due.kind == "missed")
        if others:
            self._jobs.count(len({due.job for due in others}), sum(due.left_over for due in others))

    def _state_of(self, due: DueCatchUp) -> RangeState:
        known = self._known.get(due.catchup)
        if known is None:
            return RangeState(due)
        if known.due.next_tick == due.next_tick:
            known.due = due
            return known
        return RangeState(due)

    def _keep(self, states: Iterable[RangeState]) -> None:
        aside = self._aside
        self._known = {item.due.catchup: item for item in states if not (aside and aside.holds_range(item.due))}
        self._jobs.known = {item.due.job for item in self._known.values()}

    async def _write_off(self, dead: Sequence[DueCatchUp]) -> None:
        if not dead:
            return
        schedules = await self._store.cursors.schedules({due.schedule for due in dead})
        aside = self._aside
        readable = [due for due in dead if due.schedule in schedules and not (aside and aside.holds_range(due))]
        rests = await asyncio.to_thread(
            lambda: [dropped_ticks(schedules[due.schedule], due, _why(due)) for due in readable]
        )
        droppings = [
            (due, RangeDrop(due.catchup, due.next_tick, rest)) for due, rest in zip(readable, rests, strict=True)
        ]
        ticks = sum(await halve_until_alone(droppings, self._drop, self._not_dropped, (Rejected,)))
        log.info("catch-ups dropped: their jobs have ended", ranges=len(droppings), ticks=ticks)
        for due in dead:
            self._known.pop(due.catchup, None)

    async def _drop(self, droppings: Sequence[tuple[DueCatchUp, RangeDrop]]) -> int:
        return await self._store.catchups.drop([dropping for _, dropping in droppings])

    async def _not_dropped(self, dropping: tuple[DueCatchUp, RangeDrop], error: Rejected) -> int:
        self._aside.add_range(dropping[0], error)
        return 0

    async def _release_some(self) -> None:
        chosen = await self._choose()
        if not chosen:
            return
        schedules = await self._store.cursors.schedules({item.due.schedule for item in chosen})
        planned = []
        for item in sorted(chosen, key=lambda item: item.due.job):
            due = item.due
            try:
                after = tick_after(schedules[due.schedule], due)
            except Exception as error:  # this version cannot read it: a newer node may
                self._set_aside(item, error)
                continue
            planned.append((item, Release(due.catchup, due.next_tick, due.generation, after)))
        if planned:
            await halve_until_alone(planned, self._release, self._not_released, (LockTimeout, Rejected))

    async def _choose(self) -> list[RangeState]:
        """The ranges that may be tried now and fit into their partition's rate; of one job one range at a time."""
        now = monotonic()
        chosen: dict[int, RangeState] = {}
        for item in self._known.values():
            due = item.due
            if item.try_next > now or due.job in chosen or due.dead:
                continue
            if (await self._pace(due.partition, now)).take(now):
                chosen[due.job] = item
                if len(chosen) == BATCH:
                    break
        return list(chosen.values())

    async def _pace(self, partition: int, now: float) -> CatchUpPace:
        """Computed once in a while: how fast a partition ticks changes with its jobs."""
        pace = self._paces.get(partition)
        if pace is not None and now < pace.good_until:
            return pace
        rate = self._rate
        if rate is None:
            counts = await self._store.catchups.schedules_of(partition)
            rate = catch_up_rate(await self._store.cursors.schedules(set(counts)), counts, self._clock.now())
        self._paces[partition] = CatchUpPace(rate, now, pace)
        return self._paces[partition]

    async def _release(self, planned: Sequence[tuple[RangeState, Release]]) -> None:
        membership = self._membership
        try:
            results = await self._store.catchups.release(
                membership.node,
                membership.incarnation,
                [item.due.job for item, _ in planned],
                [release for _, release in planned],
            )
        except OutcomeUnknown as error:
            log.warning("release of unknown outcome", ranges=len(planned), error=str(error))
            self.read_soon()
        else:
            self._released(planned, results)

    async def _not_released(self, planned: tuple[RangeState, Release], error: DetentError) -> None:
        item, _ = planned
        if isinstance(error, LockTimeout):
            item.wait(monotonic())
        else:
            self._set_aside(item, error)

    def _set_aside(self, item: RangeState, error: Exception) -> None:
        """Pause a range after an error; it is read again with the others, and tried when the pause is over."""
        self._known.pop(item.due.catchup, None)
        self._aside.add_range(item.due, error)

    def _released(self, planned: Sequence[tuple[RangeState, Release]], results: Mapping[int, ReleaseResult]) -> None:
        now = monotonic()
        debug = transitions.debug_enabled()
        released = 0
        for item, release in planned:
            result = results.get(release.catchup)
            if result is None:
                self._known.pop(release.catchup, None)  # it has changed: read it again
                self._read_next = min(self._read_next, now + LONGEST_PAUSE)
                continue
            self._move(item, release, result, now)
            released += result == "released"
            if debug:
                facts = {"job_number": item.due.job, "tick": release.tick.isoformat(), "kind": item.due.kind}
                log.debug("catch-up tick", **facts, result=result)
        if released:
            self._metrics.released += released
            self._wakeups.runs_queued()

    def _move(self, item: RangeState, release: Release, result: ReleaseResult, now: float) -> None:
        if result == "released":
            self._jobs.released(item.due.job, now)
        else:  # what does not run takes no part of the rate
            self._paces[item.due.partition].give_back()
        if result not in ("released", "left out"):
            item.wait(now)
        elif release.following is None:
            self._known.pop(release.catchup, None)
            self.read_soon()
        else:
            item.moved(release.following)

    def _pause(self) -> float:
        now = monotonic()
        nexts = [
            max(item.try_next, pace.next_at if (pace := self._paces.get(item.due.partition)) else now)
            for item in self._known.values()
        ]
        return max(min([*nexts, self._read_next], default=self._read_next) - now, 0.001)


def _why(due: DueCatchUp) -> str:
    return "deleted" if due.status == "deleted" else "max_runs"
