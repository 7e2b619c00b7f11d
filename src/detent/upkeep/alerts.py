"""The leader of the first partition turns noted events into alerts, and alerts into messages (`domain/alerts.py`).

Everything is in the database before this sees it: events are noted in the transaction of what they report, and each
step here is one transaction. A node that dies leaves nothing half done, and the next one continues. `notices.py` sends.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import timedelta

from detent.cluster.membership import Membership
from detent.domain.alert_rule import EventKind
from detent.domain.alerts import next_step
from detent.runtime.service import Loop
from detent.store import Store
from detent.store.alerts import RuleOfTenant
from detent.upkeep.alert_messages import SHOWN_JOBS, content_of

# One partition, so that one node does it; correct if several do.
PARTITION = 0
LOOK_EVERY = 2.0
LOOK_FOR_RULES_EVERY = 10.0
EVENTS_AT_ONCE = 1_000
CHECKED_AT_ONCE = 1_000
MOST_BATCHES = 10
CHECK_AGAIN = timedelta(seconds=5)
# A job that never runs again does not keep an alert open for longer.
EXPIRES = timedelta(days=30)


class AlertWatch:
    def __init__(
        self, store: Store, membership: Membership, led: Callable[[], Collection[int]], send: Callable[[], None]
    ) -> None:
        """`led` returns the partitions that this node leads now. `send` wakes the sender of notifications."""
        self._alerts = store.alerts
        self._membership = membership
        self._led = led
        self._send = send
        self.loop = Loop("alerts", self.tick)

    async def tick(self) -> float:
        if not self._membership.trusted or PARTITION not in self._led():
            return LOOK_EVERY
        rules = await self._alerts.rules()
        if not rules:
            await self._in_batches(lambda: self._alerts.drop_events(EVENTS_AT_ONCE))
            return LOOK_FOR_RULES_EVERY * random.uniform(0.8, 1.0)
        await self._note(rules)
        await self._in_batches(lambda: self._alerts.check_jobs(CHECKED_AT_ONCE, CHECK_AGAIN, EXPIRES))
        await self._alerts.make_messages(next_step, content_of, SHOWN_JOBS)
        self._send()
        return LOOK_EVERY * random.uniform(0.8, 1.0)

    async def _in_batches(self, work: Callable[[], Awaitable[bool]]) -> None:
        """As long as there may be more, up to a number: the steps after this one have their turn in every pass."""
        for _ in range(MOST_BATCHES):
            if not await work() or not self._membership.trusted:
                break

    async def _note(self, rules: Sequence[RuleOfTenant]) -> None:
        await self._in_batches(lambda: self._alerts.add_events(EVENTS_AT_ONCE))
        if tenants := _asking(rules, "set_aside"):
            await self._alerts.note_set_aside(tenants)
        if tenants := _asking(rules, "catch_up"):
            await self._alerts.note_catch_ups(tenants)


def _asking(rules: Sequence[RuleOfTenant], kind: EventKind) -> list[int]:
    """The tenants that want to know of such events."""
    return sorted({rule.tenant for rule in rules if rule.fields.enabled and kind in rule.fields.events})
