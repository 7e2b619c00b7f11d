"""Runs that wait for the one before them (QUEUE, REPLACE) move up before a claim.

At once where this node has ended the one before; and by a look at all of them now and then, because a run may also be
ended by a rescue, by somebody who cancels it, or by a node that did not live to tell.
"""

from __future__ import annotations

from detent.clock import monotonic
from detent.model import JobSpec
from detent.store import Store

LOOK_EVERY = 20.0
WAITING_POLICIES = ("QUEUE", "REPLACE")


class Promoter:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._look_next = 0.0
        self._freed: set[int] = set()

    @staticmethod
    def concerns(spec: JobSpec | None) -> bool:
        return spec is not None and spec.concurrent_policy in WAITING_POLICIES

    def freed(self, job: int) -> None:
        """The run of this job is over, and another may wait for that."""
        self._freed.add(job)

    async def promote(self) -> bool:
        """Whether runs are ready that were not."""
        if monotonic() >= self._look_next:
            self._look_next = monotonic() + LOOK_EVERY
            self._freed.clear()
            return await self._store.live.promote()
        if not self._freed:
            return False
        jobs, self._freed = sorted(self._freed), set()
        return await self._store.live.promote(jobs)
