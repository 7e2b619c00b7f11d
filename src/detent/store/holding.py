"""One switch for all ticks of the cluster."""

from __future__ import annotations

import contextlib

from detent.contract.cluster import Held
from detent.errors import DetentError
from detent.store import sql
from detent.store.db import Database, LockTimeout, PoolName
from detent.store.upkeep import RUNS_CHANNEL

HOLD = "hold"


class HoldingStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def pause(self, by: str, reason: str) -> Held:
        """No tick fires once this has returned: neither one that is due, nor one whose fire is under way now."""
        (row,) = await self._database.fetch(PoolName.REQUEST, sql.cluster.PAUSE_ALL, by, reason)
        await self._tell()
        for node in await self._database.fetch(PoolName.REQUEST, sql.node.LIST_FIRING):
            with contextlib.suppress(LockTimeout):  # whatever holds that row this long is no fire
                await self._database.fetch(PoolName.REQUEST, sql.node.WAIT_FOR_FIRES, node["node"])
        return Held(at=row["held_at"], by=row["held_by"], reason=row["held_reason"])

    async def resume(self) -> bool:
        """Whether ticks had been held."""
        resumed = bool(await self._database.fetch(PoolName.REQUEST, sql.cluster.RESUME_ALL))
        await self._tell()
        return resumed

    async def _tell(self) -> None:
        """A hint: without it, nodes hear of it with their next heartbeat."""
        with contextlib.suppress(DetentError):
            await self._database.fetch(PoolName.REQUEST, sql.feed.NOTIFY, RUNS_CHANNEL, HOLD)
