"""The release of ticks beside the schedule: missed ones that are made up for, and backfills.

Each range of such ticks stands in a row of its own and moves by its own compare-and-set, so it never shares the live
cursor. The leader of a partition lets its ranges go one tick at a time, at the partition's rate, and only while no live
tick waits to be fired; the statement itself also looks at the job, its lanes and its queue
(`catch_up/release.sql`). What cannot go now stays where it is and is tried again, less and less often.

A range of a job that is over, because it was deleted or has spent its runs, is written off.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from detent.cluster.membership import Membership
from detent.runtime.clock import DatabaseClock, monotonic
from detent.runtime.service import Loop
from detent.scheduler.pacing import Pace, catch_up_rate
from detent.scheduler.set_aside import SetAside
from detent.store import Store
from detent.store.catchups import Dropping, Due, Fate, Release, following, rest_of
from detent.store.db import LockTimeout, OutcomeUnknown, Rejected
from detent.telemetry import transitions
from detent.telemetry.log import logger
from detent.telemetry.metrics import Metrics

log = logger("catch-up")

# Whoever adds ticks to make up for says so, and upkeep looks whether there are any; this is for when neither could.
LOOK_EVERY = 60.0
SOONEST_LOOK = 0.5
WINDOW = 100
BATCH = 200
LIVE_FIRST = 0.02
HELD_PAUSE = 0.5
SHORTEST_PAUSE = 0.05
LONGEST_PAUSE = 1.0
LARGE = 100
REMEMBERED_SECONDS = 86_400.0
MOST_TOLD = 100_000


class Live(Protocol):
    """The fire of live ticks, as the release sees it."""

    @property
    def behind(self) -> bool: ...
    @property
    def aside(self) -> SetAside: ...


class Standing:
    """A range as it was last seen, and when it may be tried next."""

    __slots__ = ("due", "pause", "try_next")

    def __init__(self, due: Due) -> None:
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


class Releaser:
    def __init__(
        self,
        store: Store,
        membership: Membership,
        clock: DatabaseClock,
        live: Live,
        metrics: Metrics,
        *,
        rate: float | None,
        announce: Callable[[], None],
    ) -> None:
        """`rate`: ticks per second of a partition; None: twice what its schedules make."""
        self._store = store
        self._membership = membership
        self._clock = clock
        self._live = live
        self._metrics = metrics
        self._rate = rate
        self._announce = announce
        self._paces: dict[int, Pace] = {}
        self._known: dict[int, Standing] = {}
        self._jobs: set[int] = set()
        self._released: dict[int, float] = {}
        self._begun: set[int] = set()
        self._told: set[int] = set()
        self._after: dict[int, int] = {}
        self._look_next = 0.0
        self._looked_at = -SOONEST_LOOK
        self.loop = Loop("catch-up", self.tick)

    # --- what others tell and ask ---

    def lead(self, partitions: Collection[int]) -> None:
        """The partitions this node leads now."""
        if self._after.keys() != set(partitions):
            self._after = {partition: self._after.get(partition, 0) for partition in partitions}
            self._keep(item for item in self._known.values() if item.due.partition in self._after)
            self.look()

    def look(self) -> None:
        """There may be something new to release; however often this is said, it is done twice a second at most."""
        self._look_next = min(self._look_next, self._looked_at + SOONEST_LOOK)
        self.loop.wake()

    def begin(self, jobs: Collection[int], ticks: int) -> None:
        """These jobs have just been given something to make up for."""
        self._jobs |= set(jobs)
        self._begun |= set(jobs)
        self._count_begun(len(jobs), ticks)
        self.look()

    def _count_begun(self, jobs: int, ticks: int) -> None:
        self._metrics.catch_ups += jobs
        if ticks >= LARGE:
            self._metrics.large_catch_ups += 1
            log.warning("a large catch-up starts", jobs=jobs, ticks=ticks)

    @property
    def busy(self) -> bool:
        return bool(self._jobs or self._released)

    def pending(self, job: int) -> bool:
        """Whether ticks of this job are being made up for, as far as this node knows. The last of them is still running
        when nothing of the range is left, so that is over only with the next live tick that is fired."""
        return job in self._jobs or job in self._released

    def fired(self, jobs: Iterable[int]) -> None:
        """Live ticks of these have been fired."""
        if self._released:
            for job in jobs:
                self._released.pop(job, None)

    # --- one pass ---

    async def tick(self) -> float:
        if not self._after or not self._membership.trusted or self._membership.held:
            return HELD_PAUSE
        if monotonic() >= self._look_next:
            await self._look()
        if not self._known:
            return max(self._look_next - monotonic(), 0.0)
        if self._live.behind:
            return LIVE_FIRST
        await self._release_some()
        return self._pause()

    async def _look(self) -> None:
        """The next window of each partition; after its last one, from the beginning."""
        self._looked_at = monotonic()
        self._look_next = self._looked_at + LOOK_EVERY  # a hint that comes while we look is not lost
        oldest = self._looked_at - REMEMBERED_SECONDS
        self._released = {job: at for job, at in self._released.items() if at > oldest}
        asked = dict(self._after)
        try:
            found = await self._store.catchups.due(asked, WINDOW)
        except BaseException:
            self._look_next = 0.0  # the next pass looks, not the next minute
            raise
        found = [due for due in found if due.partition in self._after]  # some may be others' by now
        counts = Counter(due.partition for due in found)
        last = {due.partition: due.catchup for due in found}
        for partition in asked.keys() & self._after.keys():
            self._after[partition] = last[partition] if counts[partition] == WINDOW else 0
            if asked[partition] and not counts[partition]:
                self._look_next = 0.0
        self._tell_begun(found)
        self._keep(self._standing(due) for due in found)
        await self._write_off([due for due in found if due.dead])

    def _tell_begun(self, found: Iterable[Due]) -> None:
        """Of ranges that nobody told us of: backfills, and pauses whose ticks are to run."""
        if len(self._told) > MOST_TOLD:
            self._told.clear()
        if len(self._begun) > MOST_TOLD:  # of jobs that were deleted before their range was seen here
            self._begun.clear()
        new = [due for due in found if due.untouched and not due.dead and due.catchup not in self._told]
        self._told.update(due.catchup for due in new)
        others = [due for due in new if due.kind == "backfill" or due.job not in self._begun]
        self._begun -= {due.job for due in new if due.kind == "missed"}
        if others:
            self._count_begun(len({due.job for due in others}), sum(due.left_over for due in others))

    def _standing(self, due: Due) -> Standing:
        known = self._known.get(due.catchup)
        if known is None:
            return Standing(due)
        if known.due.next_tick == due.next_tick:
            known.due = due
            return known
        return Standing(due)

    def _keep(self, standing: Iterable[Standing]) -> None:
        aside = self._live.aside
        self._known = {item.due.catchup: item for item in standing if not (aside and aside.holds_range(item.due))}
        self._jobs = {item.due.job for item in self._known.values()}

    async def _write_off(self, dead: Sequence[Due]) -> None:
        if not dead:
            return
        schedules = await self._store.cursors.schedules({due.schedule for due in dead})
        aside = self._live.aside
        readable = [due for due in dead if due.schedule in schedules and not (aside and aside.holds_range(due))]
        rests = await asyncio.to_thread(lambda: [rest_of(schedules[due.schedule], due, _why(due)) for due in readable])
        droppings = [
            (due, Dropping(due.catchup, due.next_tick, rest)) for due, rest in zip(readable, rests, strict=True)
        ]
        ticks = await self._drop(droppings)
        log.info("catch-ups written off: their jobs are over", ranges=len(droppings), ticks=ticks)
        for due in dead:
            self._known.pop(due.catchup, None)

    async def _drop(self, droppings: Sequence[tuple[Due, Dropping]]) -> int:
        """How many ticks. One range that breaks a constraint keeps no other from being written off: halve until it
        stands alone, and set it aside."""
        try:
            return await self._store.catchups.drop([dropping for _, dropping in droppings])
        except Rejected as error:
            if len(droppings) > 1:
                half = len(droppings) // 2
                return await self._drop(droppings[:half]) + await self._drop(droppings[half:])
            self._live.aside.add_range(droppings[0][0], error)
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
                after = following(schedules[due.schedule], due)
            except Exception as error:  # this version cannot read it: a newer node may
                self._set_aside(item, error)
                continue
            planned.append((item, Release(due.catchup, due.next_tick, due.generation, after)))
        if planned:
            await self._release(planned)

    async def _choose(self) -> list[Standing]:
        """Whatever may be tried now and has room in its partition's rate; of one job one range at a time."""
        now = monotonic()
        chosen: dict[int, Standing] = {}
        for item in self._known.values():
            due = item.due
            if item.try_next > now or due.job in chosen or due.dead:
                continue
            if (await self._pace(due.partition, now)).take(now):
                chosen[due.job] = item
                if len(chosen) == BATCH:
                    break
        return list(chosen.values())

    async def _pace(self, partition: int, now: float) -> Pace:
        """Worked out once in a while: how fast a partition ticks changes with its jobs."""
        pace = self._paces.get(partition)
        if pace is not None and now < pace.good_until:
            return pace
        rate = self._rate
        if rate is None:
            counts = await self._store.catchups.schedules_of(partition)
            rate = catch_up_rate(await self._store.cursors.schedules(set(counts)), counts, self._clock.now())
        self._paces[partition] = Pace(rate, now, pace)
        return self._paces[partition]

    async def _release(self, planned: Sequence[tuple[Standing, Release]]) -> None:
        membership = self._membership
        try:
            fates = await self._store.catchups.release(
                membership.node,
                membership.incarnation,
                [item.due.job for item, _ in planned],
                [release for _, release in planned],
            )
        except OutcomeUnknown as error:
            log.warning("release of unknown outcome", ranges=len(planned), error=str(error))
            self.look()
        except (LockTimeout, Rejected) as error:
            await self._release_apart(planned, error)
        else:
            self._tell(planned, fates)

    async def _release_apart(self, planned: Sequence[tuple[Standing, Release]], error: LockTimeout | Rejected) -> None:
        """One row holds the others up, or breaks a constraint: halve until it stands alone."""
        if len(planned) > 1:
            half = len(planned) // 2
            await self._release(planned[:half])
            await self._release(planned[half:])
            return
        ((item, _),) = planned
        if isinstance(error, LockTimeout):
            item.wait(monotonic())
            return
        self._set_aside(item, error)

    def _set_aside(self, item: Standing, error: Exception) -> None:
        """Looked for again with the others, and tried when its time has come."""
        self._known.pop(item.due.catchup, None)
        self._live.aside.add_range(item.due, error)

    def _tell(self, planned: Sequence[tuple[Standing, Release]], fates: Mapping[int, Fate]) -> None:
        now = monotonic()
        telling = transitions.told()
        released = 0
        for item, release in planned:
            fate = fates.get(release.catchup)
            if fate is None:
                self._known.pop(release.catchup, None)  # changed meanwhile: read again
                self._look_next = min(self._look_next, now + LONGEST_PAUSE)
                continue
            if fate == "released":
                self._released[item.due.job] = now
            else:  # what does not run takes no part of the rate
                self._paces[item.due.partition].give_back()
            if fate not in ("released", "left out"):
                item.wait(now)
            elif release.following is None:
                self._known.pop(release.catchup, None)
                self.look()
            else:
                item.moved(release.following)
            released += fate == "released"
            if telling:
                told = {"job_number": item.due.job, "tick": release.tick.isoformat(), "kind": item.due.kind}
                log.debug("tick to be made up for", **told, fate=fate)
        if released:
            self._metrics.released += released
            self._announce()

    def _pause(self) -> float:
        now = monotonic()
        nexts = [
            max(item.try_next, pace.next_at if (pace := self._paces.get(item.due.partition)) else now)
            for item in self._known.values()
        ]
        return max(min([*nexts, self._look_next], default=self._look_next) - now, 0.001)


def _why(due: Due) -> str:
    return "deleted" if due.status == "deleted" else "max_runs"
