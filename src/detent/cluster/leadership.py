"""Leadership of partitions: taking this node's share, and handing over what belongs to other nodes.

A partition row only names the node that should fire. A live node that fires a partition it just lost is harmless: the
compare-and-set on the cursor gives one run, and the owner of that run is alive. So every node computes its share by
itself (see `rendezvous.py`), from a list of nodes that may be slightly old, and a disagreement costs at most a wait.

A share is handed over in three steps: the scheduler stops firing those partitions and waits for its fires in progress,
the rows are released, the other nodes are notified.

A partition without a leader for two lease times is adopted: its proper owner may take it without a nomination, and half
a lease time later any scheduler may, because the owner may be alive and unable to lead. A node that is nominated under
a number takes the partition from the adopter. Without numbers, the adopter keeps it for a while and then hands it over.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from typing import Protocol

from detent.cluster.coordinators.coordinator import Coordinator
from detent.cluster.flapping import Turns
from detent.cluster.hints import Hints
from detent.cluster.membership import Membership
from detent.cluster.rendezvous import share
from detent.cluster.rescue import Rescue
from detent.domain.identity import token_text
from detent.errors import Unavailable
from detent.runtime.clock import monotonic
from detent.runtime.service import Loop
from detent.runtime.wakeups import Wakeups
from detent.store import Store
from detent.store.nodes import Share
from detent.telemetry.log import logger
from detent.telemetry.metrics import Metrics

log = logger("leadership")

# All nodes see a lease end at the same moment; they should not all query in the same millisecond.
EXPIRY_SPREAD = 0.1
ORPHANED_TTLS = 2
OWNER_FIRST_TTLS = 0.5
ADOPTED_FOR_TTLS = 10
# A nomination that is not renewed ends without a notification, so a node that waits for it polls more often.
WAITING_PASSES_PER_TTL = 10


class Led(Protocol):
    """The scheduler, as leadership sees it."""

    def lead(self, partitions: Collection[int]) -> None: ...
    async def stop_leading(self, partitions: Collection[int]) -> None: ...


class Leadership:
    def __init__(
        self,
        store: Store,
        membership: Membership,
        coordinator: Coordinator,
        *,
        led: Led | None,
        hints: Hints,
        wakeups: Wakeups,
        metrics: Metrics,
    ) -> None:
        self._store = store
        self._membership = membership
        self._coordinator = coordinator
        self._rescue = Rescue(store, metrics, wakeups, membership.node)
        self._led = led
        self._hints = hints
        self._wakeups = wakeups
        self._metrics = metrics
        self._free_since: dict[int, float] = {}
        self._adopted: dict[int, float] = {}
        self._nominations: dict[int, int | None] = {}
        self._numbers: dict[int, int] = {}
        self._waits = False
        self._turns = Turns()
        self.terms: dict[int, int] = {}
        self.coordinator_missing = False
        self.loop = Loop("leadership", self.tick)
        wakeups.share_changed.subscribe(self.loop.wake)

    async def tick(self) -> float:
        view = await self._read_share()
        self._wakeups.draining(view.draining)
        self._wakeups.others_work(view.others_work)
        self._wakeups.programs_pull(view.programs_pull)
        if self._led is not None:
            await self._take_our_share(self._led, view)
        await self._rescue.clean_up(view.evicted)
        return self._pause(view)

    async def _read_share(self) -> Share:
        view = await self._store.nodes.share(self._membership.node)
        if view.expired:
            await self._rescue.evict()
            view = await self._store.nodes.share(self._membership.node)
        return view

    def _pause(self, view: Share) -> float:
        """The next pass is due when the first lease of another node ends. Nodes that join or leave notify the others,
        so the pause is longer while nothing is free and no nomination has to be renewed."""
        hurry = self._coordinator.renews or view.free or view.evicted
        pause = self._membership.ttl / (3 if hurry else 1.5) * random.uniform(0.8, 1.0)
        if view.first_expiry is not None:
            pause = min(pause, max(view.first_expiry, 0.0) + random.uniform(0.01, EXPIRY_SPREAD))
        return min(pause, self._membership.ttl / WAITING_PASSES_PER_TTL) if self._waits else pause

    async def _take_our_share(self, led: Led, view: Share) -> None:
        self._drop_lost(view)
        self._turns.saw(view.schedulers, monotonic())
        unknown = set(view.held) - self.terms.keys()  # ours by a statement whose reply was lost
        ours = share(self._membership.node, view.schedulers)
        self._adopt_orphans(ours, view)
        if not self.coordinator_missing or self._membership.node not in view.schedulers:
            # Without the coordinator no other node can be nominated: a leader that is not the owner beats no leader.
            await self._give_up(led, (self.terms.keys() | unknown) - ours - self._adopted.keys())
            unknown &= ours | self._adopted.keys()
        await self._campaign(ours)
        await self._give_up_lost(led, unknown)
        news = {partition: number for partition, number in self._nominations.items() if self._is_news(partition)}
        # Nominated or not: the number may be refused.
        orphans = dict.fromkeys(self._adopted.keys() & ({*view.free} | unknown))
        if news or orphans:
            await self._take(news | orphans)
            # Another node is about to release what was not taken, and its notification may be missed.
            self._waits |= not news.keys() <= self.terms.keys()
        led.lead(self.terms)

    def _drop_lost(self, view: Share) -> None:
        """Drop partitions that other nodes took from this live node with a newer nomination."""
        lost = self.terms.keys() - set(view.held)
        if lost:
            log.warning("partitions lost to others", count=len(lost))
            for partition in lost:
                del self.terms[partition]

    def _adopt_orphans(self, ours: set[int], view: Share) -> None:
        """Adopt partitions that have had no leader for long enough; keep those adopted before that are still ours."""
        now, ttl = monotonic(), self._membership.ttl
        self._free_since = {partition: self._free_since.get(partition, now) for partition in view.free}
        still_ours = {*view.held, *view.free} if self._membership.node in view.schedulers else set()
        self._adopted = {
            partition: until
            for partition, until in self._adopted.items()
            if partition in still_ours and (self._coordinator.numbered or now < until)
        }
        for partition in self._free_since.keys() & still_ours:
            patience = ORPHANED_TTLS if partition in ours else ORPHANED_TTLS + OWNER_FIRST_TTLS
            if now - self._free_since[partition] > patience * ttl:
                self._adopted[partition] = now + ADOPTED_FOR_TTLS * ttl

    async def _campaign(self, ours: set[int]) -> None:
        """Without an answer from the coordinator, every node keeps what it leads."""
        try:
            self._nominations = await self._coordinator.campaign(ours)
        except Unavailable as error:
            self._miss_coordinator(error)
            known = self.terms.keys() | (self._nominations.keys() & ours)
            self._nominations = {partition: self._nominations.get(partition) for partition in known}
            self._waits = False
            return
        if self.coordinator_missing:
            log.info("coordinator reached again", coordinator=self._coordinator.name)
        self.coordinator_missing = False
        self._waits = not ours <= self._nominations.keys()

    def _miss_coordinator(self, error: Unavailable) -> None:
        if not self.coordinator_missing:
            log.warning("coordinator not reached", coordinator=self._coordinator.name, error=str(error))
        self.coordinator_missing = True

    async def _give_up_lost(self, led: Led, unknown: set[int]) -> None:
        """Hand over partitions without a nomination, including those that the database assigns to this node without its
        knowledge: no other node can take them from a live one."""
        lost = (self.terms.keys() | unknown) - self._nominations.keys() - self._adopted.keys()
        if lost:
            log.warning("nominations lost", count=len(lost))
            await self._hand_over(led, lost)
            await self._hints.announce_share()

    def _is_news(self, partition: int) -> bool:
        """Whether the partition is not led yet, or is led under an older nomination: the database must know the newest
        one, to refuse older ones."""
        return partition not in self.terms or (self._nominations[partition] or 0) > self._numbers.get(partition, 0)

    async def _take(self, missing: dict[int, int | None]) -> None:
        taken = await self._store.nodes.take(self._membership.node, self._membership.incarnation, missing)
        if taken:
            self.terms.update(taken)
            self._numbers.update({partition: missing[partition] or 0 for partition in taken})
            self._adopted = {one: until for one, until in self._adopted.items() if not self._numbers.get(one)}
            self._metrics.elections += len(taken)
            self._turns.took(taken, monotonic())
            log.info("partitions taken", count=len(taken), term=token_text(max(taken.values())))

    async def _give_up(self, led: Led, partitions: Collection[int]) -> None:
        if partitions:
            await self._hand_over(led, partitions)
            await self._resign(partitions)
            log.info("partitions handed over", count=len(partitions))
            await self._hints.announce_share()

    async def _hand_over(self, led: Led, partitions: Collection[int]) -> None:
        await led.stop_leading(partitions)
        await self._store.nodes.release(self._membership.node, sorted(partitions))
        for partition in list(partitions):
            self.terms.pop(partition, None)

    async def _resign(self, partitions: Collection[int]) -> None:
        try:
            await self._coordinator.resign(partitions)
        except Unavailable as error:
            self._miss_coordinator(error)

    @property
    def flapping(self) -> int:
        """How many partitions this node took again although no node joined or left."""
        return self._turns.flapping(monotonic())

    async def release(self) -> None:
        """Release all partitions, known or not; called when no fire is in progress."""
        await self._store.nodes.release(self._membership.node)
        self.terms.clear()
