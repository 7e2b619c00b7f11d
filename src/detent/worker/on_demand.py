"""On-demand runs, as the worker sees them: what wakes it for them, and what a pass does before it claims.

Runs that wait for the concurrency key of a run that has just ended here are claimed by a loop of their own. A hot key
waits for nothing else than the way from one of its runs to the next, and a pass of the worker does much else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from detent.domain.identity import FIRST_TASK_LANE, ON_DEMAND
from detent.domain.run import Claim, HeldRun
from detent.runtime.service import Loop
from detent.runtime.wakeups import Wakeups
from detent.store.db import OutcomeUnknown
from detent.worker.backlog import ADMIT_EVERY
from detent.worker.capacity import WorkerCapacity
from detent.worker.claiming import Claiming

# The loop is woken when a run ends; this is for when one failed.
CHECK_EVERY = 10.0


class OnDemandRuns:
    def __init__(
        self,
        claiming: Claiming,
        *,
        capacity: WorkerCapacity,
        claimable: Callable[[], int],
        accept: Callable[[Sequence[Claim]], None],
        wake: Callable[[], None],
        wakeups: Wakeups,
    ) -> None:
        """`claimable`: how many runs may be claimed at once; 0 where others wait for the same capacity, perhaps with a
        higher priority. `wake`: begin a pass of the worker."""
        self._claiming = claiming
        self.backlog = claiming.backlog
        self._capacity = capacity
        self._claimable = claimable
        self._accept = accept
        self._wake = wake
        self._wakeups = wakeups
        self._admission: asyncio.TimerHandle | None = None
        self.loop = Loop("concurrency keys", self.claim_freed)
        wakeups.runs_enqueued.subscribe(self._hint)
        wakeups.jobs_changed.subscribe(self._jobs_changed)
        wakeups.runs_put_off.subscribe(lambda runs: self.settled(runs, retried=True))
        # After a hold of the cluster, or the suspension of a tenant.
        wakeups.hold_changed.subscribe(lambda: self._hint(None))
        wakeups.queues_changed.subscribe(lambda: self._hint(None))

    def _hint(self, job: int | None) -> None:
        self.backlog.hint(job)
        self._wake()

    def _jobs_changed(self, jobs: set[int] | None) -> None:
        self.backlog.changed(jobs)
        self._wake()

    def settled(self, some: Sequence[HeldRun], *, retried: bool) -> None:
        """These runs have ended, or are retried: others may start."""
        laned = self.backlog.laned_jobs
        for held in some:
            claim = held.claim
            if claim.serial >= ON_DEMAND or claim.concurrency_key is not None or claim.job in laned:
                if retried and claim.lane >= FIRST_TASK_LANE:
                    self.backlog.returned(claim.job)
                if self.backlog.ended(claim):
                    self._wake()
        if self.backlog.freed_keys:
            self.loop.wake()
            if self._admission is None:
                self._admission = asyncio.get_running_loop().call_later(ADMIT_EVERY, self._admit)

    def _admit(self) -> None:
        """A hint: the pause of the worker counts too."""
        self._admission = None
        self._wake()

    async def prepare(self) -> None:
        """Make runs ready that a claim can then take: in lanes, and where a concurrency key has a free place."""
        ready = await self.backlog.admit()
        if not self._claimable() or not self._claiming.direct:
            await self.backlog.unpark()
        ready = await self.backlog.refresh(list(self._claiming.serving)) or ready
        if await self.backlog.release_laned() or ready:
            self._wakeups.runs_given_back()

    async def claim_freed(self) -> float:
        """The next runs of the concurrency keys whose runs have ended here."""
        # No more than have ended: the rest of the capacity is for the worker, which may be claiming meanwhile.
        limit = min(self._claimable(), self.backlog.freed_keys.total())
        if not self.backlog.freed_keys:
            return CHECK_EVERY
        if not limit or not self._claiming.direct:
            self._wake()
            return CHECK_EVERY
        self._capacity.reserved += limit
        try:
            claims = await self._claiming.claim_freed(limit)
        except OutcomeUnknown:
            self._wakeups.reply_lost()
            raise
        finally:
            self._capacity.reserved -= limit
            self._wakeups.capacity_freed()
        self._accept(claims)
        if self.backlog.heads.stale:
            self._wake()
        return CHECK_EVERY
