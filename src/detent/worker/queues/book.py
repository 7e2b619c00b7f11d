"""The queues that exist, as a node knows them: their tenant, its weight, whether it is suspended, and their limits.

Queues appear when jobs are registered and limits when an operator sets them. A hint announces both, and the node reads
all queues again after a while; until then a new queue has no tenant, and its runs wait separately.
"""

from __future__ import annotations

from collections.abc import Collection

from detent.runtime.clock import monotonic
from detent.runtime.service import Loop
from detent.runtime.wakeups import Wakeups
from detent.store import Store
from detent.store.queues import QueueRow

READ_EVERY = 20.0
NO_TENANT = 0


class QueueBook:
    def __init__(self, store: Store, wakeups: Wakeups) -> None:
        self._store = store
        self._next_read = 0.0
        self._weights: dict[int, int] = {}
        self.rows: dict[int, QueueRow] = {}
        self.suspended: frozenset[int] = frozenset()
        self.version = 0
        self.loop = Loop("queues", self.tick)
        wakeups.queues_changed.subscribe(self._read_now)
        wakeups.jobs_changed.subscribe(lambda _jobs: self.changed())

    async def refresh(self) -> None:
        """Read the queues again, if it is time."""
        if monotonic() < self._next_read:
            return
        self._next_read = monotonic() + READ_EVERY  # set before the read, so that a hint during the read is not lost
        try:
            self.rows = {row.queue: row for row in await self._store.queues.rows()}
        except BaseException:
            self._next_read = 0.0
            raise
        self._weights = {row.tenant: row.weight for row in self.rows.values()}
        self.suspended = frozenset(row.queue for row in self.rows.values() if row.suspended)
        self.version += 1

    async def tick(self) -> float:
        await self.refresh()
        return max(self._next_read - monotonic(), 0.0)

    def changed(self) -> None:
        self._next_read = 0.0

    def _read_now(self) -> None:
        """A limit was set, or a tenant was suspended or resumed: a node that only schedules has to know too."""
        self.changed()
        self.loop.wake()

    def tenant_of(self, queue: int) -> int:
        row = self.rows.get(queue)
        return NO_TENANT if row is None else row.tenant

    def weight_of(self, tenant: int) -> int:
        return self._weights.get(tenant, 1)

    def served_by(self, names: Collection[str], capabilities: Collection[str]) -> dict[int, QueueRow]:
        """The queues of these names that a worker with these capabilities can serve. A capability may be restricted to
        a tenant: `shell@1`."""
        return {
            number: row
            for number, row in self.rows.items()
            if row.name in names and (row.needs in capabilities or f"{row.needs}@{row.tenant}" in capabilities)
        }
