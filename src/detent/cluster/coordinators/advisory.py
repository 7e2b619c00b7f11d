"""Nominations by advisory locks of PostgreSQL: one connection holds one lock for each partition.

There is no number: whether a partition may be taken is decided by the rows in the same database, as without any
coordinator. With the locks, of two nodes that see different lists of nodes only one campaigns for a partition, and
pg_locks shows which.
"""

from __future__ import annotations

from collections.abc import Collection
from hashlib import blake2b

from detent.cluster.coordinators.services import Candidate, answering, ignoring_errors_on_close
from detent.store import Database
from detent.store.advisory import AdvisoryLocks


class AdvisoryCoordinator:
    name = "advisory"
    renews = True
    numbered = False

    def __init__(self, database: Database, candidate: Candidate) -> None:
        # Locks belong to the whole database, which may hold several clusters, each in its own schema.
        space = int.from_bytes(blake2b(candidate.cluster.bytes, digest_size=4).digest(), signed=True)
        self._locks = AdvisoryLocks(database.url, database.schema, space, candidate.ttl)
        self._limit = candidate.limit

    async def open(self) -> None:
        await self.campaign(())

    async def campaign(self, wanted: Collection[int]) -> dict[int, int | None]:
        async with answering("PostgreSQL", self._limit):
            return dict.fromkeys(await self._locks.hold(set(wanted)))

    async def resign(self, partitions: Collection[int]) -> None:
        async with answering("PostgreSQL", self._limit):
            await self._locks.release(set(partitions))

    async def close(self) -> None:
        with ignoring_errors_on_close(self.name):
            async with answering("PostgreSQL", self._limit):
                await self._locks.close()
