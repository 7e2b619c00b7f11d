"""Suspend and resume a tenant, and begin its deletion.

The statements that make runs read once for each batch which queues are suspended, so they fire nothing from the commit
on, also on nodes that do not know it yet (`cursor/fire.sql`). A node that knows it moves
the cursors of the tenant past their ticks when these are due, and records them as skipped.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from detent.domain.audit_event import NewEvent
from detent.errors import DefaultTenantNeeded, TenantBeingDeleted, TenantNotFound, TenantNotSuspended
from detent.store import sql
from detent.store.audit_log import record
from detent.store.connection import Connection
from detent.store.db import Database, PoolName, Row
from detent.store.jobs import DEFAULT_TENANT
from detent.store.queues import QUEUES_CHANGED
from detent.store.upkeep import RUNS_CHANNEL

Change = Callable[[Connection, Row], Awaitable[None]]


class TenantLifecycleStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def suspend(self, name: str, reason: str | None, by: str | None) -> None:
        """No tick fires and no request is answered from now on. A tenant that is suspended already gets the reason."""

        async def change(connection: Connection, row: Row) -> None:
            if row["tenant"] == DEFAULT_TENANT:
                raise DefaultTenantNeeded("suspended")
            _check_not_deleting(row)
            if row["suspended_at"] is None or row["suspended_reason"] != reason:
                await connection.fetch(sql.tenant.SUSPEND.text, row["tenant"], by, reason)
                await _announce(connection)
                await record(connection, _event("tenant.suspend", row, {"reason": reason}))

        await self._change(name, change)

    async def resume(self, name: str) -> None:
        """Ticks fire again, from the next one on."""

        async def change(connection: Connection, row: Row) -> None:
            _check_not_deleting(row)
            if row["suspended_at"] is not None:
                await connection.fetch(sql.tenant.RESUME.text, row["tenant"])
                await _announce(connection)
                await record(connection, _event("tenant.resume", row))

        await self._change(name, change)

    async def begin_deletion(self, name: str, by: str | None) -> None:
        """Revoke the keys; upkeep deletes the rest. There is no way back."""

        async def change(connection: Connection, row: Row) -> None:
            if row["tenant"] == DEFAULT_TENANT:
                raise DefaultTenantNeeded("deleted")
            if row["suspended_at"] is None:
                raise TenantNotSuspended(name)
            if row["deleting_at"] is None:
                (done,) = await connection.fetch(sql.tenant.BEGIN_DELETION.text, row["tenant"], by)
                await record(connection, _event("tenant.delete", row, {"keys_revoked": done["keys"]}))

        await self._change(name, change)

    async def _change(self, name: str, change: Change) -> None:
        async def work(connection: Connection) -> None:
            if not await connection.fetch(sql.tenant.LOCK.text, name):
                raise TenantNotFound(name)
            (row,) = await connection.fetch(sql.tenant.LIST.text, 0, 1, name)
            await change(connection, row)

        await self._database.transaction(PoolName.REQUEST, work)


def _check_not_deleting(row: Row) -> None:
    if row["deleting_at"] is not None:
        raise TenantBeingDeleted(row["name"])


def _event(action: str, row: Row, after: Mapping[str, Any] | None = None) -> NewEvent:
    return NewEvent(action, row["tenant"], "tenant", row["name"], row["name"], after=after)


async def _announce(connection: Connection) -> None:
    """Nodes read their queues again, and whether these are suspended."""
    await connection.fetch(sql.feed.NOTIFY.text, RUNS_CHANNEL, QUEUES_CHANGED)
