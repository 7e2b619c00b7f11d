"""Which roles of the database server may enqueue runs of which tenants, with the SQL functions."""

from __future__ import annotations

from collections.abc import Sequence

from detent.contract.tenant import EnqueueGrant
from detent.domain.audit_event import NewEvent
from detent.errors import TenantNotFound
from detent.store import sql
from detent.store.audit_log import record
from detent.store.connection import Connection
from detent.store.db import Database, PoolName, Rejected

NO_SUCH_ROLE = "42704"


class UnknownDatabaseRole(Exception):  # noqa: N818 - it says what there is
    """The server has no role of this name."""


class EnqueueGrantStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(self, *, tenant: int) -> Sequence[EnqueueGrant]:
        rows = await self._database.fetch(PoolName.REQUEST, sql.tenant.LIST_ENQUEUE_GRANTS, tenant)
        return [EnqueueGrant(role=row["role"], granted_at=row["granted_at"]) for row in rows]

    async def grant(self, name: str, role: str) -> EnqueueGrant:
        """Returns the grant with the statements that only the owner of the schema can execute."""

        async def write(connection: Connection) -> EnqueueGrant:
            number = await _locked(connection, name)
            (row,) = await connection.fetch(sql.tenant.GRANT_ENQUEUE.text, number, role)
            if row["added"]:
                await record(connection, _event("tenant.grant-enqueue", number, name, role))
            listed = await connection.fetch(sql.tenant.LIST_ENQUEUE_GRANTS.text, number)
            (granted_at,) = [each["granted_at"] for each in listed if each["role"] == role]
            return EnqueueGrant(role=role, granted_at=granted_at, statements=list(row["statements"]))

        try:
            grant: EnqueueGrant = await self._database.transaction(PoolName.REQUEST, write)
        except Rejected as error:
            if error.sqlstate == NO_SUCH_ROLE:
                raise UnknownDatabaseRole(role) from error
            raise
        return grant

    async def revoke(self, name: str, role: str) -> bool:
        """Returns whether the role had the grant."""

        async def write(connection: Connection) -> bool:
            number = await _locked(connection, name)
            removed = await connection.fetch(sql.tenant.REVOKE_ENQUEUE.text, number, role)
            if removed:
                await record(connection, _event("tenant.revoke-enqueue", number, name, role))
            return bool(removed)

        removed: bool = await self._database.transaction(PoolName.REQUEST, write)
        return removed


async def _locked(connection: Connection, tenant: str) -> int:
    """Two grants, or a grant and the deletion of its tenant, come one after the other."""
    rows = await connection.fetch(sql.tenant.LOCK.text, tenant)
    if not rows:
        raise TenantNotFound(tenant)
    return int(rows[0]["tenant"])


def _event(action: str, number: int, tenant: str, role: str) -> NewEvent:
    return NewEvent(action, number, "tenant", tenant, tenant, after={"role": role})
