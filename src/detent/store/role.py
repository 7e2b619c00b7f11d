"""The role settings that a node behind a pooler needs: verified at every start, set on request."""

from __future__ import annotations

import asyncpg

from detent.errors import Unavailable, UsageError
from detent.store import pooler, sql
from detent.store.connection import Connection
from detent.store.servers import place


async def verify(connection: Connection, url: str, schema: str) -> None:
    """Raise Unavailable, with the statements to run, unless connections have the settings by default."""
    names = list(pooler.role_settings(schema))
    (row,) = await connection.fetch(sql.database.READ_SETTINGS.text, names)
    found = dict(zip(names, row["values"], strict=True))
    missing = pooler.missing_settings(found, schema)
    if not missing:
        return
    said = ", ".join(f"{name} is {found[name]}" for name in missing)
    todo = " ".join(pooler.role_statements(row["role"], row["database"], schema))
    raise Unavailable(
        f"The database at {place(url)} is reached through a pooler, which keeps no settings, and its role "
        f"{row['role']} does not have them ({said}): run {todo} "
        "and let the pooler make new connections (PgBouncer: RECONNECT)."
    )


async def give(connection: Connection, role: str, schema: str) -> list[str]:
    """Set them on the role, for this database; returns the statements."""
    row = await connection.fetchrow(sql.database.READ_ROLE_NAME.text, role)
    if row is None:
        raise UsageError(f"--role-settings is {role!r}, and there is no such role: give the one that nodes connect as.")
    statements = pooler.role_statements(row["role"], row["database"], schema)
    try:
        async with connection.transaction():
            for each in statements:
                await connection.execute(each)
    except asyncpg.InsufficientPrivilegeError as error:
        raise Unavailable(
            f"The settings of the role {row['role']} cannot be changed ({error}): let a role that may do so run "
            f"{' '.join(statements)}"
        ) from error
    return statements


def needs_server(url: str) -> Unavailable:
    return Unavailable(
        f"Migrations hold a lock from one transaction to the next, which the pooler at {place(url)} would lose: run "
        "`detent db migrate --database-pooler none --database-url URL` with the address of the server itself."
    )
