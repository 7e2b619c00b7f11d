"""The keys that sign the credentials of callbacks."""

from __future__ import annotations

from detent.store import sql
from detent.store.db import Database, PoolName
from detent.store.tenant_wall import walled


class CallbackKeyStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def keys(self, pool: PoolName) -> tuple[bytes, ...]:
        """The newest first; empty: no run has needed one yet. They are of the cluster, whatever tenant asks."""
        with walled(None):
            return tuple(row["key"] for row in await self._database.fetch(pool, sql.callback_key.LIST))

    async def create(self, key: bytes) -> None:
        """Create the first key, unless another node has done so."""
        await self._database.fetch(PoolName.WORK, sql.callback_key.CREATE, key)
