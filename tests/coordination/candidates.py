"""A candidate for partitions as the cluster sees it, without a scheduler behind it: a row that beats, a coordinator
that nominates, and the statement that decides."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta

from detent.cluster.coordinators.choose import choose
from detent.cluster.coordinators.services import Candidate
from detent.cluster.membership import new_node_number
from detent.errors import Unavailable
from detent.store import Store
from detent.store.db import PoolName
from detent.store.nodes import NodeInfo
from tests.support.waiting import until

TTL = 2.0


class Contender:
    def __init__(self, store: Store, url: str, candidate: Candidate) -> None:
        self.store = store
        self.node = candidate.node
        self.coordinator = choose(url, candidate, store.database)
        self.leads: set[int] = set()
        self.nominations: dict[int, int | None] = {}

    async def stand(self, wanted: Collection[int]) -> set[int]:
        """One pass as leadership makes it; what it leads then."""
        if not await self.beat():
            self.leads.clear()
            return set()
        await self.store.nodes.evict_expired()
        await until(lambda: self._nominated(wanted), 5 * TTL, "the service to answer")
        await self._release(self.leads - self.nominations.keys())
        missing = {partition: self.nominations[partition] for partition in self.nominations.keys() - self.leads}
        self.leads |= set(await self.take(missing))
        return set(self.leads)

    async def _nominated(self, wanted: Collection[int]) -> bool:
        """A busy machine may take longer to answer than a coordinator waits; neither is at fault."""
        try:
            self.nominations = await self.coordinator.campaign(wanted)
        except Unavailable:
            return False
        return True

    async def beat(self) -> bool:
        renew = "UPDATE nodes SET expires_at = now() + ttl WHERE node = $1 AND NOT evicted RETURNING node"
        async with self.store.database.connection(PoolName.WORK) as connection:
            return await connection.fetchval(renew, self.node) is not None

    async def take(self, nominations: dict[int, int | None]) -> dict[int, int]:
        return await self.store.nodes.take(self.node, 1, nominations) if nominations else {}

    async def give_up(self, partitions: Collection[int]) -> None:
        await self._release(set(partitions))
        await self.coordinator.resign(partitions)

    async def leave(self) -> None:
        await self._release(set(self.leads))
        await self.coordinator.close()

    async def _release(self, partitions: set[int]) -> None:
        await self.store.nodes.release(self.node, sorted(partitions))
        self.leads -= partitions


class Field:
    """Where candidates of one cluster meet; all are gone after the test."""

    def __init__(self, store: Store, url: str) -> None:
        self.store = store
        self.url = url
        self.entered: list[Contender] = []

    async def enter(self, *, url: str | None = None, ttl: float = TTL) -> Contender:
        cluster = await self.store.upkeep.cluster()
        info = NodeInfo(new_node_number(), "test", 1, ("scheduler",), "test", "test")
        await self.store.nodes.join(info, timedelta(seconds=ttl))
        contender = Contender(self.store, url or self.url, Candidate(info.node, cluster.id, ttl))
        self.entered.append(contender)
        await contender.coordinator.open()
        return contender

    async def close(self) -> None:
        for contender in self.entered:
            await contender.coordinator.close()
