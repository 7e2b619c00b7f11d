"""Promotes runs that wait for the previous run of their job (QUEUE, REPLACE), before a claim.

If this node ended the previous run, it promotes the next one at once. Every `CHECK_EVERY` seconds all waiting runs are
checked, because a run can also be ended by a rescue, by a cancellation, or by a node that was lost before it could
report it.
"""

from __future__ import annotations

from collections.abc import Iterable

from detent.errors import DetentError
from detent.runtime.clock import monotonic
from detent.runtime.service import Failing
from detent.store import Store
from detent.telemetry.log import logger

log = logger("worker")

CHECK_EVERY = 20.0
WAITING_POLICIES = ("QUEUE", "REPLACE")


class Promoter:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._check_all_next = 0.0
        self._freed: set[int] = set()
        self._failing = Failing()

    def freed(self, jobs: Iterable[int]) -> None:
        """The runs of these jobs are over, and others may wait for that."""
        self._freed.update(jobs)

    async def promote(self) -> bool:
        """Whether runs are ready that were not. After a failure the next pass retries, and other runs are claimed
        meanwhile."""
        if self._failing.pausing:
            return False
        freed, self._freed = self._freed, set()
        check_all = monotonic() >= self._check_all_next
        try:
            promoted = (check_all or bool(freed)) and await self._store.live_runs.promote(
                None if check_all else sorted(freed)
            )
        except DetentError as error:
            self._freed |= freed
            if self._failing.note(str(error)):
                log.warning("waiting runs are not promoted yet", error=str(error))
            return False
        self._failing.over()
        if check_all:
            self._check_all_next = monotonic() + CHECK_EVERY
        return promoted
