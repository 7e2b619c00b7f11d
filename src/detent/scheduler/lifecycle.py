"""What happens to jobs by themselves: pauses end, jobs whose runs all die are paused, one-offs are collected, and next
ticks are computed again when the zone data has changed.

Every node does it. Each change compares the job with what it was when it was read, so that two nodes which do the same
thing do it once. What fails keeps nothing else from being done.
"""

from __future__ import annotations

from collections.abc import Iterable

from detent.domain.schedule import tzdata_version
from detent.jobs import JobOperations
from detent.runtime.clock import monotonic
from detent.runtime.service import Loop
from detent.telemetry.log import logger

log = logger("life")

# Whoever keeps house wakes it before a pause ends.
LOOK_EVERY = 60.0
COLLECT_EVERY = 60.0
SHORTEST_PAUSE = 0.01


class Life:
    def __init__(self, jobs: JobOperations, *, schedules: bool) -> None:
        """`schedules`: this node also looks after jobs whose runs it does not see."""
        self._jobs = jobs
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
        parts = (self._end_pauses, self._pause_failing, self._renew_zones, self._collect)
        wait = LOOK_EVERY
        failed: Exception | None = None
        for part in parts if self._schedules else (self._pause_failing,):
            try:
                wait = min(wait, await part())
            except Exception as error:
                if failed is not None:
                    log.warning("more than one part of a pass failed", error=str(failed))
                failed = error
        if failed is not None:
            raise failed
        return wait

    async def _end_pauses(self) -> float:
        following = await self._jobs.automatic.end_pauses()
        return LOOK_EVERY if following is None else max(following, SHORTEST_PAUSE)

    async def _renew_zones(self) -> float:
        if not self._zones_seen:
            await self._jobs.zone_data.renew(tzdata_version())
            self._zones_seen = True
        return LOOK_EVERY

    async def _collect(self) -> float:
        if monotonic() >= self._collect_next:
            await self._jobs.automatic.delete_completed()
            self._collect_next = monotonic() + COLLECT_EVERY
        return LOOK_EVERY

    async def _pause_failing(self) -> float:
        jobs, self._died = self._died, set()
        try:
            if jobs:
                await self._jobs.automatic.pause_failing(sorted(jobs))
        except BaseException:
            self._died |= jobs
            raise
        return LOOK_EVERY
