"""Partitions: taking this node's share, giving up what belongs to others now.

A partition row says who should fire, no more: a live node that fires a partition it just lost is harmless, since the
compare-and-set on the cursor gives one run, and that run's owner is alive. So all nodes may work out their shares alone
(see `rendezvous.py`), from a list of nodes that is a moment old, and the worst that comes of a disagreement is a wait.

A share is handed over in three steps: the scheduler stops firing those partitions and waits for the fires under way,
the rows are released, the others are told. A partition that nobody has held for two times to live may be taken by any
scheduler, whatever its hash: its proper owner may be alive and unable to lead. It is kept for a while then, so that
it does not go back and forth.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Collection
from typing import Protocol

from detent.clock import monotonic
from detent.coordination.coordinator import Coordinator
from detent.coordination.membership import Membership
from detent.coordination.rendezvous import share
from detent.coordination.rescue import Rescue
from detent.errors import Unavailable
from detent.identity import token_text
from detent.log import logger
from detent.metrics import Metrics
from detent.store import Store
from detent.store.nodes import Share

log = logger("leadership")

# All nodes see a neighbour's lease end at the same moment; they need not all look in the same millisecond.
EXPIRY_SPREAD = 0.1
ADOPTED_FOR_TTLS = 10


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
        rescue: Rescue,
        led: Led | None,
        tell_others: Callable[[], Awaitable[None]],
        drain: Callable[[bool], None],
        metrics: Metrics,
    ) -> None:
        self._store = store
        self._membership = membership
        self._coordinator = coordinator
        self._rescue = rescue
        self._led = led
        self._tell_others = tell_others
        self._drain = drain
        self._metrics = metrics
        self._free_since: dict[int, float] = {}
        self._adopted: dict[int, float] = {}
        self._nominations: dict[int, int | None] = {}
        self.terms: dict[int, int] = {}
        self.coordinator_missing = False

    async def tick(self) -> float:
        view = await self._look()
        self._drain(view.draining)
        if self._led is not None:
            await self._take_our_share(self._led, view)
        await self._rescue.clean_up(view.evicted)
        return self._pause(view)

    async def _look(self) -> Share:
        view = await self._store.nodes.share(self._membership.node)
        if view.expired:
            await self._rescue.evict()
            view = await self._store.nodes.share(self._membership.node)
        return view

    def _pause(self, view: Share) -> float:
        """A neighbour's lease is looked at when it ends, not some time after."""
        pause = self._membership.ttl / 3 * random.uniform(0.8, 1.0)
        if view.first_expiry is not None:
            pause = min(pause, max(view.first_expiry, 0.0) + random.uniform(0.01, EXPIRY_SPREAD))
        return pause

    async def _take_our_share(self, led: Led, view: Share) -> None:
        self._forget_lost(view)
        wanted = share(self._membership.node, view.schedulers) | self._orphans(view)
        await self._give_up(led, self.terms.keys() - wanted)
        nominated = await self._nominated(wanted, view)
        missing = {partition: number for partition, number in nominated.items() if partition not in self.terms}
        if missing:
            await self._take(missing)
        led.lead(self.terms)

    def _forget_lost(self, view: Share) -> None:
        """What others have taken from us while we were alive, on a newer nomination."""
        lost = self.terms.keys() - set(view.held)
        if lost:
            log.warning("partitions lost to others", count=len(lost))
            for partition in lost:
                del self.terms[partition]

    def _orphans(self, view: Share) -> set[int]:
        """Partitions without a holder for two times to live, and those taken as such not long ago."""
        now = monotonic()
        self._free_since = {partition: self._free_since.get(partition, now) for partition in view.free}
        self._adopted = {partition: until for partition, until in self._adopted.items() if now < until}
        if self._membership.node in view.schedulers:
            for partition, since in self._free_since.items():
                if now - since > 2 * self._membership.ttl:
                    self._adopted[partition] = now + ADOPTED_FOR_TTLS * self._membership.ttl
            return set(self._adopted)
        return set()

    async def _nominated(self, wanted: set[int], view: Share) -> dict[int, int | None]:
        """Without an answer from the coordinator everybody goes on with what they lead, and what nobody has led for two
        times to live is taken by the database's own rule."""
        try:
            nominated = await self._coordinator.campaign(wanted)
            self.coordinator_missing = False
        except Unavailable as error:
            self.coordinator_missing = True
            log.warning("coordinator not reached", coordinator=self._coordinator.name, error=str(error))
            nominated = {partition: self._nominations[partition] for partition in wanted & self._nominations.keys()}
        self._nominations = nominated
        lost = [partition for partition in self.terms if partition not in nominated and partition not in self._adopted]
        if lost and self._led is not None:
            log.warning("nominations lost", count=len(lost))
            await self._hand_over(self._led, lost)
            await self._tell_others()
        unowned = self._adopted.keys() & set(view.free)
        return nominated | dict.fromkeys(unowned)

    async def _take(self, missing: dict[int, int | None]) -> None:
        taken = await self._store.nodes.take(self._membership.node, self._membership.incarnation, missing)
        if taken:
            self.terms.update(taken)
            self._metrics.elections += len(taken)
            log.info("partitions taken", count=len(taken), term=token_text(max(taken.values())))

    async def _give_up(self, led: Led, partitions: Collection[int]) -> None:
        if partitions:
            await self._hand_over(led, partitions)
            await self._resign(partitions)
            log.info("partitions handed over", count=len(partitions))
            await self._tell_others()

    async def _hand_over(self, led: Led, partitions: Collection[int]) -> None:
        await led.stop_leading(partitions)
        await self._store.nodes.release(self._membership.node, sorted(partitions))
        for partition in list(partitions):
            del self.terms[partition]

    async def _resign(self, partitions: Collection[int]) -> None:
        try:
            await self._coordinator.resign(partitions)
        except Unavailable as error:
            log.warning("coordinator not reached", coordinator=self._coordinator.name, error=str(error))

    async def release(self) -> None:
        """Hand all partitions over; called once no fire is under way."""
        if self.terms:
            await self._store.nodes.release(self._membership.node, sorted(self.terms))
            self.terms.clear()
