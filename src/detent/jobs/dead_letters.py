"""Revive many dead runs, some at a time.

The result shows in the rows themselves: a revived run has left history. So the operation can be interrupted and
repeated at any time, and no run is revived twice.
"""

from __future__ import annotations

from detent.store import Store
from detent.store.dead_letters import MAX_AT_ONCE, MAX_EXAMINED, DeadLetterChunk, DeadLetterFilter
from detent.store.jobs import DEFAULT_TENANT

EXAMINED_FIRST = 2_000


class DeadLetters:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def redrive(
        self, which: DeadLetterFilter, limit: int = MAX_AT_ONCE, *, tenant: int = DEFAULT_TENANT
    ) -> DeadLetterChunk:
        """Revive the oldest runs whose jobs have a free lane, at most `limit`."""
        letters = self._store.dead_letters
        keys = await letters.oldest(which, limit, among=EXAMINED_FIRST, tenant=tenant)
        if len(keys) < limit:  # the jobs of the oldest may all have no free lane
            keys = await letters.oldest(which, limit, among=MAX_EXAMINED, tenant=tenant)
        runs = (await self._store.reruns.redrive(keys, which.asked, tenant=tenant)).runs
        return DeadLetterChunk(runs, await letters.count(which, tenant=tenant))
