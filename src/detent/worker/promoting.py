"""Runs that wait for the one before them (QUEUE, REPLACE) move up before a claim.

At once where this node has ended the one before; and by a look at all of them now and then, because a run may also be
ended by a rescue, by somebody who cancels it, or by a node that did not live to tell.
"""

from __future__ import annotations

from detent.domain.job import JobSpec
from detent.errors import DetentError
from detent.runtime.clock import monotonic
from detent.runtime.service import Failing
from detent.store import Store
from detent.telemetry.log import logger

log = logger("worker")

LOOK_EVERY = 20.0
WAITING_POLICIES = ("QUEUE", "REPLACE")


class Promoter:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._look_next = 0.0
        self._freed: set[int] = set()
        self._failing = Failing()

    @staticmethod
    def concerns(spec: JobSpec | None) -> bool:
        return spec is not None and spec.concurrent_policy in WAITING_POLICIES

    def freed(self, job: int) -> None:
        """The run of this job is over, and another may wait for that."""
        self._freed.add(job)

    async def promote(self) -> bool:
        """Whether runs are ready that were not. What fails here is tried again by the next pass and keeps no other run
        from being claimed."""
        if self._failing.pausing:
            return False
        freed, self._freed = self._freed, set()
        look = monotonic() >= self._look_next
        try:
            promoted = (look or bool(freed)) and await self._store.live_runs.promote(None if look else sorted(freed))
        except DetentError as error:
            self._freed |= freed
            if self._failing.note(str(error)):
                log.warning("runs that wait for the one before have not moved up yet", error=str(error))
            return False
        self._failing.over()
        if look:
            self._look_next = monotonic() + LOOK_EVERY
        return promoted
