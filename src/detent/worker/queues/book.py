"""The queues there are, as a node knows them: whose they are, how much a tenant weighs, which have limits.

Queues appear when jobs are registered and limits when somebody sets them. Both are told by a hint and found by looking
again after a while; until then a queue is nobody's, and its runs wait in a line of their own.
"""

from __future__ import annotations

from collections.abc import Collection

from detent.runtime.clock import monotonic
from detent.store import Store
from detent.store.queues import QueueRow

LOOK_EVERY = 20.0
NOBODY = 0


class QueueBook:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._next_look = 0.0
        self._weights: dict[int, int] = {}
        self.rows: dict[int, QueueRow] = {}
        self.looks = 0

    async def look(self) -> None:
        """Read the queues again, if it is time."""
        if monotonic() < self._next_look:
            return
        self._next_look = monotonic() + LOOK_EVERY  # a hint that comes while we read is not lost
        try:
            self.rows = {row.queue: row for row in await self._store.queues.rows()}
        except BaseException:
            self._next_look = 0.0
            raise
        self._weights = {row.tenant: row.weight for row in self.rows.values()}
        self.looks += 1

    async def tick(self) -> float:
        await self.look()
        return max(self._next_look - monotonic(), 0.0)

    def changed(self) -> None:
        self._next_look = 0.0

    def tenant_of(self, queue: int) -> int:
        row = self.rows.get(queue)
        return NOBODY if row is None else row.tenant

    def weight_of(self, tenant: int) -> int:
        return self._weights.get(tenant, 1)

    def served_by(self, names: Collection[str], has: Collection[str]) -> dict[int, QueueRow]:
        """The queues of these names that a worker which has this can serve."""
        return {number: row for number, row in self.rows.items() if row.name in names and row.needs in has}
