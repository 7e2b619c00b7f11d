"""Partitions and rescue: taking what nobody alive holds, and freeing the runs of nodes that are gone.

The order matters: a node is evicted first, in a transaction of its own that waits for that node's statements. Only then
are its partitions taken, under a higher term, and its runs returned, with a higher token. A partition row says who
should fire, no more: a live node that fires a partition it just lost is harmless, since the compare-and-set on the
cursor gives one run, and that run's owner is alive.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from detent import failpoints
from detent.coordination.membership import Membership
from detent.errors import DetentError
from detent.identity import PARTITIONS, node_name
from detent.log import logger
from detent.store import Store

log = logger("leadership")

# Looking for evicted nodes that somebody else began to clean up and did not finish.
CLEAN_EVERY = 4


class Leadership:
    def __init__(
        self,
        store: Store,
        membership: Membership,
        leads: bool,
        gained: Callable[[], None],
        rescued: Callable[[], None],
    ) -> None:
        self._store = store
        self._membership = membership
        self._leads = leads
        self._gained = gained
        self._rescued = rescued
        self._passes = 0
        self._unfinished: set[int] = set()
        self.terms: dict[int, int] = {}

    async def tick(self) -> float:
        evicted = await self._store.nodes.evict_expired()
        if evicted or self._unfinished or self._passes % CLEAN_EVERY == 0:
            await self._clean_up(set(evicted) | set(await self._store.nodes.evicted()))
        self._passes += 1
        if self._leads and len(self.terms) < PARTITIONS:
            await self._take()
        return self._membership.ttl / 2 * random.uniform(0.8, 1.0)

    async def _take(self) -> None:
        wanted = [number for number in range(PARTITIONS) if number not in self.terms]
        taken = await self._store.nodes.take(self._membership.node, self._membership.incarnation, wanted)
        if taken:
            self.terms.update(taken)
            log.info("partitions taken", count=len(taken), term=max(taken.values()) & 0xFFFFFFFF)
            self._gained()

    async def _clean_up(self, nodes: set[int]) -> None:
        """Partitions first, so that ticks go on; then the runs of each node, whatever happens to those of another."""
        self._unfinished &= nodes
        if nodes and self._leads:
            await self._take()
        for node in nodes:
            await failpoints.hit("R1")
            try:
                await self._rescue(node)
            except DetentError as error:
                log.warning("runs not rescued yet", node=node_name(node), error=str(error))

    async def _rescue(self, node: int) -> None:
        count = 0
        while batch := await self._store.nodes.rescue(node):
            count += len(batch)
        await failpoints.hit("R2")
        if count:
            log.warning("runs rescued", node=node_name(node), count=count)
            self._rescued()
        if await self._store.nodes.forget(node):
            self._unfinished.discard(node)
        else:
            self._unfinished.add(node)  # a run of it is locked by somebody: look again soon

    async def release(self) -> None:
        """Hand all partitions over; called once no fire is under way."""
        if self.terms:
            await self._store.nodes.release(self._membership.node, sorted(self.terms))
            self.terms.clear()
