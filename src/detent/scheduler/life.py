"""What happens to jobs by themselves: pauses end, jobs whose runs all die are paused, one-offs are collected, and next
ticks are computed again when the zone data has changed.

Every node does it. Each change compares the job with what it was when it was read, so that two nodes which do the same
thing do it once.
"""

from __future__ import annotations

from collections.abc import Iterable

from detent.clock import monotonic
from detent.schedule import tzdata_version
from detent.service import Loop
from detent.store import Store

# Whoever keeps house wakes it before a pause ends.
LOOK_EVERY = 60.0
COLLECT_EVERY = 60.0
SHORTEST_PAUSE = 0.01


class Life:
    def __init__(self, store: Store, *, schedules: bool) -> None:
        """`schedules`: this node also looks after jobs whose runs it does not see."""
        self._store = store
        self._schedules = schedules
        self._died: set[int] = set()
        self._collect_next = 0.0
        self._zones_seen = False
        self.loop = Loop("life", self.tick)

    def died(self, jobs: Iterable[int]) -> None:
        """Runs of these jobs are dead."""
        self._died.update(jobs)
        self.loop.wake()

    async def tick(self) -> float:
        await self._pause_failing()
        if not self._schedules:
            return LOOK_EVERY
        if not self._zones_seen:
            await self._store.zone_data.renew(tzdata_version())
            self._zones_seen = True
        if monotonic() >= self._collect_next:
            await self._store.life.collect()
            self._collect_next = monotonic() + COLLECT_EVERY
        following = await self._store.life.end_pauses()
        return LOOK_EVERY if following is None else min(max(following, SHORTEST_PAUSE), LOOK_EVERY)

    async def _pause_failing(self) -> None:
        jobs, self._died = self._died, set()
        try:
            if jobs:
                await self._store.life.pause_failing(sorted(jobs))
        except BaseException:
            self._died |= jobs
            raise
