"""On-demand runs for pull workers: before a claim, those that are ready become pending runs.

One memory of the backlog serves all tenants of this process (`worker/backlog.py`), so it reads outside of their walls;
of what it knows, a claim only uses the queues of its own tenant.
"""

from __future__ import annotations

import asyncio
import re

from detent.domain.job import TASK_NEEDS
from detent.errors import DetentError
from detent.store import Store
from detent.store.db import PoolName
from detent.store.pull import Wanted
from detent.store.queues import QueueRow
from detent.store.tenant_wall import walled
from detent.telemetry.log import logger
from detent.worker.backlog import TaskBacklog

log = logger("pull")

OF_FUNCTIONS = re.compile(f"{TASK_NEEDS}(python|process):")


class PullBacklog:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._backlog = TaskBacklog(store, pool=PoolName.PULL)
        self._rows: dict[int, QueueRow] = {}
        self._one_at_a_time = asyncio.Lock()

    def hint(self, job: int | None) -> None:
        """A run of this job was enqueued; None: hints may have been lost."""
        self._backlog.hint(job)

    async def release(self, tenant: int, wanted: Wanted, limit: int, *, fresh: bool = False) -> bool:
        """Make runs ready for a claim; returns whether there were any. `fresh`: do not trust what is remembered. After
        a failure the claim finds what is pending already."""
        try:
            async with self._one_at_a_time:
                with walled(None):
                    return await self._release(tenant, wanted, limit, fresh=fresh)
        except DetentError as error:
            log.warning("on-demand runs are not released yet", error=str(error))
            return False

    async def _release(self, tenant: int, wanted: Wanted, limit: int, *, fresh: bool) -> bool:
        await self._backlog.refresh(None, fresh=fresh)
        await self._learn()
        queues = self._queues(tenant, wanted)
        laned = await self._backlog.release_laned(queues)
        return bool(await self._backlog.release(limit, queues=queues)) or laned

    async def _learn(self) -> None:
        """Read the queues again if on-demand runs wait in one that is not known."""
        if not all(head.queue in self._rows for head in self._backlog.heads.known.values()):
            self._rows = {row.queue: row for row in await self._store.queues.rows(pool=PoolName.PULL)}

    def _queues(self, tenant: int, wanted: Wanted) -> set[int]:
        return {
            number
            for number, row in self._rows.items()
            if row.tenant == tenant
            and row.name == wanted.queue
            and (row.needs in wanted.capabilities or (wanted.functions and OF_FUNCTIONS.match(row.needs)))
        }

    def wait(self, longest: float) -> float:
        """Seconds until runs may be ready, or until it has to be found out."""
        return self._backlog.wait(longest)

    async def finds(self, tenant: int, wanted: Wanted) -> bool:
        """Whether runs are ready for such a claim."""
        async with self._one_at_a_time:
            with walled(None):
                await self._backlog.refresh(None)
                await self._learn()
        queues = self._queues(tenant, wanted)
        heads = [*self._backlog.heads.ready(), *self._backlog.untried_lanes()]
        return any(head.queue in queues for head in heads)
