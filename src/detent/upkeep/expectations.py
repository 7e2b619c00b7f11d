"""The leader of a partition checks the deadlines of its jobs (`expect_start_within`, `expect_finish_within`).

One statement writes the result, the incident and the notification, so that none is lost or repeated. `notices.py`
sends the notifications.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence

from detent.cluster.membership import Membership
from detent.runtime.service import Loop
from detent.store import Store
from detent.store.expectations import DeadlineResult
from detent.telemetry.log import logger
from detent.telemetry.metrics import Metrics
from detent.telemetry.transitions import log_some

log = logger("watch")

LOOK_EVERY = 5.0
EVALUATE_BATCH = 500


class ExpectationWatch:
    def __init__(
        self,
        store: Store,
        membership: Membership,
        led: Callable[[], Collection[int]],
        metrics: Metrics,
        send: Callable[[], None],
    ) -> None:
        """`led` returns the partitions that this node leads now. `send` wakes the sender of notifications."""
        self._store = store
        self._membership = membership
        self._led = led
        self._metrics = metrics
        self._send = send
        # Whether any job may have a deadline: usually none has, and an idle node runs few statements.
        self.needed = True
        self.loop = Loop("watch", self.tick)

    def jobs_changed(self, _jobs: object) -> None:
        self.needed = True

    async def tick(self) -> float:
        more = self.needed and self._membership.trusted
        while more and (partitions := sorted(self._led())):
            found, more = await self._store.expectations.evaluate(self._membership.node, partitions, EVALUATE_BATCH)
            self._record(found)
            if any(result.opens or result.closes for result in found):
                self._send()
        return LOOK_EVERY * random.uniform(0.8, 1.0)

    def _record(self, found: Sequence[DeadlineResult]) -> None:
        for result in found:
            self._metrics.expectations_missed[result.kind] += result.missed
        missed = [_facts(result) for result in found if result.missed]
        log_some("warning", "deadline missed", missed, log)
        log_some("warning", "incident opened", [_facts(result) for result in found if result.opens], log)
        log_some("info", "incident closed", [_facts(result) for result in found if result.closes], log)


def _facts(result: DeadlineResult) -> dict[str, object]:
    return {
        "job": result.job,
        "job_id": str(result.job_id),
        "expectation": result.kind,
        "tick": result.tick.isoformat(),
        "ticks": result.missed,
        "in_a_row": result.streak,
    }
