"""Connections through a pooler that reassigns server sessions after each transaction, such as PgBouncer.

No state may be kept in a session, because the next transaction may use another session:

- Statements are not prepared under a name. The driver parses each one again together with its execution, so that it is
  never split over two sessions.
- Settings that all connections share are set on the role, so that every session has them: `role_settings`. They are
  checked at start-up, because a pooler refuses or drops settings that a client requests, and without the planner's
  settings everything works but is slow.
- Settings that differ (fires wait 100 ms for a lock, requests 5 s) are sent in the same message as BEGIN, so they cost
  no round trip, and end with COMMIT. A single statement gets a transaction of its own.
- The server behind a connection is known only inside a transaction: a pooler can be redirected to a promoted server
  without a new connection. Statements that check the fence of the node therefore also check the timeline.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from functools import lru_cache
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import asyncpg

from detent.errors import Unavailable
from detent.store import sql
from detent.store.limits import REQUEST_LIMITS, StatementLimits, milliseconds

WITH_TRANSACTION_TIMEOUT = 17
PROCESS = secrets.token_hex(8)
FENCE = "NOT evicted FOR KEY SHARE"


class PoolerConnection(asyncpg.Connection):  # type: ignore[misc]  # the driver has no types
    """A connection to a pooler: every transaction sets its own limits."""

    limits: ClassVar[StatementLimits] = REQUEST_LIMITS
    wall = ""  # what holds its transactions to one tenant, see tenant_wall.py

    async def execute(self, query: str, *arguments: Any, timeout: float | None = None) -> str:
        if query.startswith("BEGIN"):  # as the driver begins a transaction
            query += begin_with(self.limits, self.get_server_version().major) + self.wall
        status: str = await super().execute(query, *arguments, timeout=timeout)
        return status

    async def fetch(self, query: str, *arguments: Any, **options: Any) -> Any:
        async with self._inside():
            return await super().fetch(fenced(query), *arguments, **options)

    async def fetchrow(self, query: str, *arguments: Any, **options: Any) -> Any:
        async with self._inside():
            return await super().fetchrow(fenced(query), *arguments, **options)

    async def fetchval(self, query: str, *arguments: Any, **options: Any) -> Any:
        async with self._inside():
            return await super().fetchval(fenced(query), *arguments, **options)

    def _inside(self) -> AbstractAsyncContextManager[Any]:
        return nullcontext() if self.is_in_transaction() else self.transaction()


@lru_cache(maxsize=1000)
def fenced(query: str) -> str:
    """Add the timeline to the fence of a query, if it has one: a node that joined before a promotion does nothing
    after it."""
    return query.replace(FENCE, FENCE.replace(" FOR", f" AND ({sql.cluster.CHECK_TIMELINE.text}) FOR"))


class HandlerConnection(asyncpg.Connection):  # type: ignore[misc]  # the driver has no types
    """For handlers: their transactions have none of our limits, and may contain any statement. A cursor is a named
    statement that stays in the server's session, so its name must be unique across processes."""

    def _get_unique_id(self, prefix: str) -> str:
        return f"{super()._get_unique_id(prefix)}{PROCESS}"


# Longer than the lock timeout, so that one transaction that waits for a lock does not fail all those behind it.
TURN_SECONDS = 10.0


class TransactionTurns:
    """Lets one transaction at a time wait for a second connection, as transactions that register jobs do.

    All processes share the pooler's connections. If every one of them were in such a transaction, none could get its
    second connection until the server ends the transactions, and no heartbeat would come through either.

    A registration may take a second, if it names a broker that does not answer. So each tenant has its own line, and
    only the first request of each line waits for the turn: one tenant does not use up the time of the others."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(1)
        self._of_tenants: WeakValueDictionary[int, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def turn(self, tenant: int) -> AsyncIterator[None]:
        own = self._of_tenants.setdefault(tenant, asyncio.Semaphore(1))
        async with AsyncExitStack() as held:
            try:
                async with asyncio.timeout(TURN_SECONDS):
                    await held.enter_async_context(own)
                    await held.enter_async_context(self._free)
            except TimeoutError as error:
                raise Unavailable(
                    "Other requests that register jobs are under way, and behind a pooler one is processed after "
                    "another: send this one again."
                ) from error
            yield


def connection_class(limits: StatementLimits) -> type[PoolerConnection]:
    """A class, because that is what the driver makes its connections from."""
    return type("PoolerConnection", (PoolerConnection,), {"limits": limits})


def begin_with(limits: StatementLimits, server: int) -> str:
    settings = limits.settings()
    if server >= WITH_TRANSACTION_TIMEOUT and limits.transaction is not None:
        settings["transaction_timeout"] = milliseconds(limits.transaction)
    return "".join(f" SET LOCAL {name} = '{value}';" for name, value in settings.items())


def role_settings(schema: str) -> dict[str, str]:
    """What every connection of detent needs, the same for all."""
    return {
        "search_path": schema,
        "timezone": "UTC",
        "plan_cache_mode": "force_custom_plan",
        "random_page_cost": "1.1",
        "jit": "off",
    }


def role_statements(role: str, database: str, schema: str) -> list[str]:
    """How to set them; `role` and `database` are quoted where they need it."""
    return [
        f"ALTER ROLE {role} IN DATABASE {database} SET {name} = '{value}';"
        for name, value in role_settings(schema).items()
    ]


def role_script(role: str, schema: str) -> str:
    """The same for a script that does not know in which database it will be run."""
    quoted = role.replace("'", "''")
    named = f"'{quoted}', current_database()"
    lines = [
        f"    EXECUTE format('ALTER ROLE %I IN DATABASE %I SET {name} = %L', {named}, '{value}');"
        for name, value in role_settings(schema).items()
    ]
    return "\n".join(["DO $$ BEGIN", *lines, "END $$;"]) + "\n"


def missing_settings(found: Mapping[str, str | None], schema: str) -> list[str]:
    return [name for name, value in role_settings(schema).items() if not _same(found.get(name), value)]


def _same(found: str | None, wanted: str) -> bool:
    return found is not None and found.strip('"').removeprefix("Etc/") == wanted
