"""The second wall between tenants: row-level security.

Every statement of a request selects by the tenant of its caller. If one does not, by mistake, the database shows and
changes no row of another tenant, provided that the operator has created a role for that (`grants.wall_statements`). A
connection takes on that role, and the number of the tenant, for as long as requests of this tenant use it, so most
requests pay no round trip for it. Behind a pooler both are sent with BEGIN.

The tenant is a context variable. A task that serves several tenants must not inherit it from the request that happened
to start it: see `runtime.service.start_shared`.

Nodes fire, claim and settle the runs of all tenants with their own role, to which no policy applies: their plans are
the same with the wall and without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import cast
from weakref import WeakKeyDictionary, WeakSet

from detent.store import sql
from detent.store.connection import Connection
from detent.store.pooler import PoolerConnection

VARIABLE = "detent.tenant"
_tenant: ContextVar[int | None] = ContextVar("tenant", default=None)
_UNKNOWN = -1
_held: WeakKeyDictionary[Connection, int | None] = WeakKeyDictionary()
_under_policies: WeakSet[Connection] = WeakSet()


@contextmanager
def walled(tenant: int | None) -> Iterator[None]:
    """Restrict the requests' statements in this block to the rows of one tenant; None: they see the rows of all."""
    before = _tenant.set(tenant)
    try:
        yield
    finally:
        _tenant.reset(before)


def has_policies(connection: Connection) -> bool:
    """Whether policies apply to this connection, even those that let everything through: COPY is refused then."""
    return connection in _under_policies


class TenantWall:
    """Restricts the connections of one database to a tenant, while requests of that tenant use them."""

    def __init__(self, *, pooled: bool) -> None:
        self._pooled = pooled
        self._role: str | None = None
        self._always_policies = False

    async def find(self, connection: Connection) -> None:
        """Find the role for requests of a tenant, if this connection may use one, and whether policies apply to the
        connection's own role."""
        (row,) = await connection.fetch(sql.database.READ_WALL.text)
        self._role, self._always_policies = row["role"], row["policies"]

    async def enter(self, connection: Connection) -> None:
        """Before a statement of a request: restrict the connection to the tenant of this block, if it has one."""
        tenant = None if self._role is None else _tenant.get()
        if self._always_policies or tenant is not None:
            _under_policies.add(connection)
        else:
            _under_policies.discard(connection)
        if _held.get(connection) != tenant:
            _held[connection] = _UNKNOWN  # until it is done: an interrupted change is made again
            await self._change(connection, tenant)
            _held[connection] = tenant

    async def _change(self, connection: Connection, tenant: int | None) -> None:
        role, value = ("none", "") if tenant is None else (str(self._role), str(tenant))
        if not self._pooled:
            await connection.fetch(sql.database.ENTER_WALL.text, role, value)
            return
        quoted = role.replace('"', '""')
        text = f" SET LOCAL ROLE \"{quoted}\"; SET LOCAL {VARIABLE} = '{value}';"
        cast("PoolerConnection", connection).wall = "" if tenant is None else text
