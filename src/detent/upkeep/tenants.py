"""What any scheduling node does for tenants: measure what they store, and delete those that are to be deleted.

A deletion is a sequence of short steps (`store/tenant_deletions.py`). A pass does as many as fit into a few seconds, so
that its node can stop; whichever node comes next continues.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

from detent.errors import DetentError
from detent.runtime.clock import monotonic
from detent.runtime.service import Loop
from detent.store import Store
from detent.telemetry.log import logger

log = logger("tenants")

LOOK_SECONDS = 5.0
PASS_SECONDS = 5.0
# Servers may accept a key for two seconds after it was revoked. What such a request leaves is deleted, too.
KEYS_ARE_REFUSED = timedelta(seconds=5)
MEASURE = "storage"
MEASURE_EVERY = timedelta(minutes=10)
TURN = timedelta(minutes=5)


class TenantUpkeep:
    def __init__(self, store: Store, node: int, delay: timedelta = KEYS_ARE_REFUSED) -> None:
        """`delay`: how long after the request a deletion begins."""
        self._delay = delay
        self._store = store
        self._node = node
        self._until = 0.0
        self.loop = Loop("tenants", self.tick)

    async def tick(self) -> float:
        self._until = monotonic() + PASS_SECONDS
        for tenant in await self._store.tenant_deletions.under_way(self._delay):
            try:
                await self._delete(tenant)
            except DetentError as error:
                log.warning("a tenant is not deleted yet; it is retried", tenant=tenant, error=str(error))
        if await self._store.retention.take_turn(MEASURE, self._node, TURN, MEASURE_EVERY):
            await self._measure()
        return LOOK_SECONDS

    async def _delete(self, tenant: int) -> None:
        """Each kind of step is repeated until there is nothing more of it to do."""
        steps = self._store.tenant_deletions
        if await self._repeat(steps.end_jobs, tenant) or await self._repeat(steps.end_runs, tenant):
            return
        if await steps.open_runs(tenant):
            return  # they were asked to stop: their workers end them
        if not await self._repeat(steps.delete_jobs, tenant):
            await self._repeat(steps.finish, tenant)

    async def _repeat(self, step: Callable[[int], Awaitable[bool]], tenant: int) -> bool:
        """Whether the time of the pass was over before the work was."""
        while await step(tenant):
            if monotonic() >= self._until:
                return True
        return False

    async def _measure(self) -> None:
        for tenant in await self._store.tenants.limited_storage():
            try:
                async for _ in self._store.tenants.measure_storage(tenant):
                    if not await self._store.retention.keep_turn(MEASURE, self._node, TURN):
                        return  # another node measures by now
            except DetentError as error:
                log.warning("the storage of a tenant is not measured; it is retried", tenant=tenant, error=str(error))
        await self._store.retention.end_turn(MEASURE, self._node)
