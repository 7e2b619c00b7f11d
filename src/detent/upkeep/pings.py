"""A regular ping to an external monitor, which raises an alarm when the ping stops.

One node of the cluster sends it, and only while the cluster works: every partition has a leader, no tick has been due
for long, and ticks are not held. So a missing ping means that jobs do not run, for any reason.
"""

from __future__ import annotations

from datetime import timedelta

from detent.cluster.membership import Membership
from detent.domain.counts import plural
from detent.runtime.service import Loop
from detent.store import Store
from detent.targets.messenger import Message, Messenger
from detent.telemetry.log import logger

log = logger("ping")

TASK = "ping"
TURN = timedelta(seconds=30)
LONGEST_DUE = 60.0
LOOKS_A_PERIOD = 4


class Ping:
    def __init__(self, store: Store, membership: Membership, messenger: Messenger, url: str, seconds: float) -> None:
        self._store = store
        self._membership = membership
        self._messenger = messenger
        self._url = url
        self._every = timedelta(seconds=seconds)
        self._trouble = ""
        self.loop = Loop("ping", self.tick)

    async def tick(self) -> float:
        pause = self._every.total_seconds() / LOOKS_A_PERIOD
        node = self._membership.node
        # A little early, so that the pause between two passes does not lengthen the period.
        every = self._every * (1 - 1 / LOOKS_A_PERIOD)
        if not self._membership.trusted or not await self._store.retention.take_turn(TASK, node, TURN, every):
            return pause
        trouble = await self._problem() or await self._sent()
        if trouble and trouble != self._trouble:
            log.warning("no ping sent to the monitor", why=trouble)
        self._trouble = trouble
        await self._store.retention.end_turn(TASK, node)
        return pause

    async def _problem(self) -> str:
        """Why the cluster does not work; empty while it does."""
        if self._membership.held:
            return "all ticks are held"
        signals = await self._store.signals.read()
        if signals.partitions_without_leader:
            return f"without a leader: {plural(signals.partitions_without_leader, 'partition')}"
        if signals.oldest_due > LONGEST_DUE:
            return f"a tick has been due for {signals.oldest_due:.0f} s"
        return ""

    async def _sent(self) -> str:
        return (await self._messenger.send(Message("ping", method="GET"), self._url)).error
