"""Changes of jobs that no operator asks for: pauses end, jobs whose runs all die or whose targets are gone are paused,
one-offs are collected, and next ticks are computed again when the zone data has changed.

Every node does it. Each change compares the job with what it was when it was read, so that two nodes which do the same
thing do it once. A part that fails does not keep the others from being done.
"""

from __future__ import annotations

from collections.abc import Iterable

from detent.domain.run import GoneTarget
from detent.domain.schedule import tzdata_version
from detent.jobs import JobOperations
from detent.runtime.clock import monotonic
from detent.runtime.service import Loop
from detent.runtime.wakeups import Wakeups
from detent.telemetry.log import logger

log = logger("lifecycle")

# Housekeeping (upkeep/housekeeping.py) wakes it before a pause ends.
PASS_EVERY = 60.0
COLLECT_EVERY = 60.0
SHORTEST_PAUSE = 0.01


class LifecycleLoop:
    def __init__(self, jobs: JobOperations, wakeups: Wakeups, *, schedules: bool) -> None:
        """`schedules`: this node also takes care of jobs whose runs it does not execute."""
        self._jobs = jobs
        self._schedules = schedules
        self._died: set[int] = set()
        self._collect_next = 0.0
        self._zones_seen = False
        self.loop = Loop("lifecycle", self.tick)
        self._gone: dict[int, GoneTarget] = {}
        wakeups.runs_died.subscribe(self._runs_died)
        wakeups.targets_gone.subscribe(self._targets_gone)

    def _runs_died(self, jobs: Iterable[int]) -> None:
        self._died.update(jobs)
        self.loop.wake()

    def _targets_gone(self, targets: Iterable[GoneTarget]) -> None:
        """The latest call of each job says most: one before a resumption does not count."""
        for target in targets:
            known = self._gone.get(target.job)
            if known is None or known[1:] < target[1:]:
                self._gone[target.job] = target
        self.loop.wake()

    async def tick(self) -> float:
        parts = (self._end_pauses, self._pause_failing, self._pause_gone, self._renew_zones, self._collect)
        wait = PASS_EVERY
        failed: Exception | None = None
        for part in parts if self._schedules else (self._pause_failing, self._pause_gone):
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
        return PASS_EVERY if following is None else max(following, SHORTEST_PAUSE)

    async def _renew_zones(self) -> float:
        if not self._zones_seen:
            await self._jobs.zone_data.renew(tzdata_version())
            self._zones_seen = True
        return PASS_EVERY

    async def _collect(self) -> float:
        if monotonic() >= self._collect_next:
            await self._jobs.automatic.delete_completed()
            self._collect_next = monotonic() + COLLECT_EVERY
        return PASS_EVERY

    async def _pause_failing(self) -> float:
        jobs, self._died = self._died, set()
        try:
            if jobs:
                await self._jobs.automatic.pause_failing(sorted(jobs))
        except BaseException:
            self._died |= jobs
            raise
        return PASS_EVERY

    async def _pause_gone(self) -> float:
        gone, self._gone = self._gone, {}
        try:
            if gone:
                await self._jobs.automatic.pause_gone(list(gone.values()))
        except BaseException:
            self._targets_gone(gone.values())
            raise
        return PASS_EVERY
