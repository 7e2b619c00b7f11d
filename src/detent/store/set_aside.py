"""Ticks that cannot be fired, recorded for all nodes: which, since when and why."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, NamedTuple
from uuid import UUID

from detent.store import sql
from detent.store.arrays import columns
from detent.store.db import Database, PoolName

PURGE_BATCH = 1_000

UnfiredKind = Literal["tick", "catch-up"]


class Unfired(NamedTuple):
    """A tick that its leader could not fire, or (catch-up) not release."""

    job: int
    kind: UnfiredKind
    tick: datetime
    generation: int
    why: str


class SetAsideJob(NamedTuple):
    """A job that does not fire for that reason."""

    id: UUID
    name: str
    kind: UnfiredKind
    why: str
    tick: datetime
    since: datetime


class SetAsideStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, node: int, unfired: Sequence[Unfired]) -> None:
        await self._database.fetch(PoolName.WORK, sql.set_aside.ADD, node, *columns(5, unfired))

    async def list(self, limit: int, *, tenant: int | None = None) -> Sequence[SetAsideJob]:
        """At most `limit` jobs that are set aside, of a tenant or of all."""
        rows = await self._database.fetch(PoolName.REQUEST, sql.set_aside.LIST, tenant, limit)
        return [SetAsideJob(*row.values()) for row in rows]

    async def purge(self) -> int:
        """Remove entries whose tick has fired since or no longer exists; returns how many."""
        return len(await self._database.fetch(PoolName.REQUEST, sql.set_aside.PURGE, PURGE_BATCH))
