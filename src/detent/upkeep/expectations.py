"""The leader of a partition judges its jobs' expectations.

All that must not be lost or done twice stands in the database: what was judged, the incident, and the message, which
are written by one statement. `sending.py` sends the messages.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence

from detent.cluster.membership import Membership
from detent.runtime.service import Loop
from detent.store import Store
from detent.store.expectations import Judgement
from detent.telemetry.log import logger
from detent.telemetry.metrics import Metrics
from detent.telemetry.transitions import tell_some

log = logger("watch")

LOOK_EVERY = 5.0
JUDGED_AT_ONCE = 500


class Watch:
    def __init__(
        self,
        store: Store,
        membership: Membership,
        led: Callable[[], Collection[int]],
        metrics: Metrics,
        send: Callable[[], None],
    ) -> None:
        """`led`: the partitions that this node leads now. `send`: there are messages."""
        self._store = store
        self._membership = membership
        self._led = led
        self._metrics = metrics
        self._send = send
        # Whether anything may be expected of any job: mostly nothing is, and an idle node asks for little.
        self.needed = True
        self.loop = Loop("watch", self.tick)

    def jobs_changed(self, _jobs: object) -> None:
        self.needed = True

    async def tick(self) -> float:
        more = self.needed and self._membership.trusted
        while more and (partitions := sorted(self._led())):
            found, more = await self._store.expectations.judge(self._membership.node, partitions, JUDGED_AT_ONCE)
            self._tell(found)
            if any(judgement.opens or judgement.closes for judgement in found):
                self._send()
        return LOOK_EVERY * random.uniform(0.8, 1.0)

    def _tell(self, found: Sequence[Judgement]) -> None:
        for judgement in found:
            self._metrics.expectations_missed[judgement.kind] += judgement.missed
        missed = [_facts(judgement) for judgement in found if judgement.missed]
        tell_some("warning", "a job is not as expected", missed, log)
        tell_some("warning", "incident opened", [_facts(judgement) for judgement in found if judgement.opens], log)
        tell_some("info", "incident closed", [_facts(judgement) for judgement in found if judgement.closes], log)


def _facts(judgement: Judgement) -> dict[str, object]:
    return {
        "job": judgement.job,
        "job_id": str(judgement.job_id),
        "expectation": judgement.kind,
        "tick": judgement.tick.isoformat(),
        "ticks": judgement.missed,
        "in_a_row": judgement.streak,
    }
