"""The identity of the database: whether it is the original or a copy, and the statements that accept a new identity.

All functions take a separate, new connection: those of the pools may still lead to the former server.
"""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple
from uuid import UUID

from detent.domain.audit_event import NewEvent
from detent.store import sql
from detent.store.audit_log import record
from detent.store.connection import Connection


class PhysicalIdentity(NamedTuple):
    """The numbers that PostgreSQL gives a database and its files. Dump and restore, even on the same server, change the
    numbers of the database and its tables; new files have another system identifier; recovered or promoted files have
    a later timeline."""

    system: int
    database: int | None
    table: int | None
    timeline: int

    @property
    def identity(self) -> tuple[int, int | None, int | None]:
        return self.system, self.database, self.table


class DatabaseIdentity(NamedTuple):
    """`silence`: the time since the last heartbeat of any node, None if there was none; `used`: there are jobs."""

    id: UUID
    incarnation: int
    stored: PhysicalIdentity
    present: PhysicalIdentity
    silence: timedelta | None
    used: bool


async def read(connection: Connection) -> DatabaseIdentity:
    (row,) = await connection.fetch(sql.cluster.READ_IDENTITY.text)
    stored = PhysicalIdentity(row["system_identifier"], row["database_oid"], row["table_oid"], row["timeline"])
    present = PhysicalIdentity(*(row[f"present_{name}"] for name in _COLUMNS))
    return DatabaseIdentity(row["id"], row["incarnation"], stored, present, row["silence"], row["used"])


async def follow(connection: Connection, timeline: int, seen: int) -> int | None:
    """Accept a new timeline; returns the new incarnation, or None if another node did so first."""
    number: int | None = await connection.fetchval(sql.cluster.FOLLOW.text, timeline, seen)
    return number


async def adopt(connection: Connection, seen: int = 0) -> int | None:
    """Make a copy an original; returns its new incarnation, or None if there is nothing to adopt."""
    async with connection.transaction():
        number: int | None = await connection.fetchval(sql.cluster.ADOPT.text, seen)
        if number is not None:
            await record(connection, NewEvent("database.adopt", None, "cluster", after={"incarnation": number}))
    return number


_COLUMNS = ("system_identifier", "database_oid", "table_oid", "timeline")
