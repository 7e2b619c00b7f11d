"""The roles of the embedded PostgreSQL.

ADMIN is initdb's superuser. It creates the product's role and database when the server is started, and is not used
otherwise. Everything else connects as USER, which owns its database and is not a superuser: no statement, not even
an injected one, reads a file of the server's machine or starts a program there.

Older versions had one role, USER, which was initdb's superuser. Such a folder is separated at the next start: the
superuser is renamed to ADMIN, and a new USER is given all that it owned. The substitute, which the server needs for
the renaming, exists from the first step to the last, so that an interrupted separation is recognised and finished.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import quote

import asyncpg

from detent.errors import Unavailable
from detent.store import sql
from detent.store.connection import Connection
from detent.store.statement import Statement

DATABASE = "detent"
USER = "detent"
ADMIN = "detent_admin"
SUBSTITUTE = "detent_substitute"
MAINTENANCE = "postgres"

# Older nodes that still use the server hold their locks for less; an idle transaction of another program does not end.
LOCK_TIMEOUT = "30s"


def url_of(folder: Path | str, port: int | str, user: str = USER, database: str = DATABASE) -> str:
    return f"postgresql://{user}@/{database}?host={quote(str(folder), safe='')}&port={port}"


async def needs_separation(connection: Connection) -> bool:
    """Whether the product's role is a superuser, or a separation was interrupted."""
    (row,) = await connection.fetch(sql.embedded_role.READ.text)
    return bool(row["superuser"])


class EmbeddedRoles:
    """Creates the roles of the server whose socket is in `folder`. Every step can be repeated after an interruption."""

    def __init__(self, folder: Path, port: int) -> None:
        self._folder = folder
        self._port = port

    async def complete(self) -> None:
        """Make what is missing: the product's role, its database, and the separation from the superuser."""
        try:
            await self._complete()
        except asyncpg.LockNotAvailableError as error:
            raise Unavailable(
                f"The role of the embedded PostgreSQL cannot be changed while a transaction uses its tables ({error}): "
                "stop the other processes that use this data folder, then start again."
            ) from error
        except asyncpg.PostgresError as error:
            raise Unavailable(f"The roles of the embedded PostgreSQL could not be prepared: {error}.") from error

    async def _complete(self) -> None:
        try:
            async with self._as(ADMIN, MAINTENANCE):
                pass
        except asyncpg.InvalidAuthorizationSpecificationError:  # made by an older version
            await self._rename_superuser()
        async with self._as(ADMIN, MAINTENANCE) as admin:
            (found,) = await admin.fetch(sql.embedded_role.READ.text)
            if not found["role"]:
                await _run(admin, sql.embedded_role.ADD)
            if not found["database"]:
                # The statement of a process that was killed meanwhile continues, and may be first.
                with suppress(asyncpg.DuplicateDatabaseError, asyncpg.UniqueViolationError):
                    await _run(admin, sql.embedded_role.ADD_DATABASE)
        async with self._as(ADMIN, DATABASE) as admin:
            await _run(admin, sql.embedded_role.GIVE_OBJECTS)
            await _run(admin, sql.embedded_role.DROP_SUBSTITUTE)

    async def _rename_superuser(self) -> None:
        async with self._as(USER, MAINTENANCE) as connection:
            await _run(connection, sql.embedded_role.ADD_SUBSTITUTE)
        async with self._as(SUBSTITUTE, MAINTENANCE) as connection, connection.transaction():
            await _run(connection, sql.embedded_role.RENAME_SUPERUSER)
            await _run(connection, sql.embedded_role.ADD)

    @asynccontextmanager
    async def _as(self, user: str, database: str) -> AsyncIterator[Connection]:
        url = url_of(self._folder, self._port, user, database)
        connection: Connection = await asyncpg.connect(url, timeout=10, server_settings={"lock_timeout": LOCK_TIMEOUT})
        try:
            yield connection
        finally:
            await connection.close()


async def _run(connection: Connection, statement: Statement) -> None:
    await connection.execute(statement.text)
