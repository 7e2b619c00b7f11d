"""The queries of `detent doctor`: read-only, each in its own transaction and within a few seconds.

The doctor's connection has none of the settings that nodes ask for, so that it sees the defaults of the role and the
server. It prepares no statement, because a pooler could hand it to another session.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from time import monotonic
from typing import Literal

import asyncpg

from detent.errors import DetentError, Unavailable
from detent.store import migrate, original, role, sql
from detent.store.connection import Connection
from detent.store.connection_settings import session_settings
from detent.store.db import Row, connect, unreachable
from detent.store.effects import HANDLER_CONNECTIONS, STEP_CONNECTIONS
from detent.store.original import DatabaseIdentity
from detent.store.statement import Statement

ANSWER_SECONDS = 5.0
PROBES = 3
# Of one node: its pools, its heartbeat and its listener; and those that its Python handlers may open.
CONNECTIONS_PER_NODE = 14
CONNECTIONS_FOR_HANDLERS = HANDLER_CONNECTIONS + STEP_CONNECTIONS

Pooling = Literal["none", "session", "transaction"]

_REACH = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, ValueError)


class TooSlow(DetentError):  # noqa: N818 - named after what happened
    """The query took longer than the doctor allows."""


class Doctor:
    def __init__(
        self, connection: Connection, url: str, schema: str, *, pooled: bool = False, embedded: bool = False
    ) -> None:
        """`pooled`: nodes are configured for a pooler; `embedded`: the database is the embedded one."""
        self.pooled = pooled
        self.embedded = embedded
        self._connection = connection
        self._url = url
        self._schema = schema

    async def elections(self) -> Row:
        """The facts about elections that GET /cluster returns."""
        return (await self.ask(sql.partition.COUNT_ELECTIONS))[0]

    async def ask(self, statement: Statement, *arguments: object) -> Sequence[Row]:
        """The rows of a statement, in a read-only transaction."""
        try:
            async with self._connection.transaction(readonly=True):
                await self._connection.fetch(sql.doctor.LIMIT_TRANSACTION.text, f"{ANSWER_SECONDS:.0f}s", self._schema)
                rows: Sequence[Row] = await self._connection.fetch(statement.text, *arguments)
                return rows
        except asyncpg.QueryCanceledError:
            raise TooSlow(f"not answered within {ANSWER_SECONDS:.0f} s") from None

    async def identity(self) -> DatabaseIdentity:
        """Which database was recorded, and which it is."""
        async with self._connection.transaction(readonly=True):
            await self._connection.fetch(sql.doctor.LIMIT_TRANSACTION.text, f"{ANSWER_SECONDS:.0f}s", self._schema)
            return await original.read(self._connection)

    async def one(self, statement: Statement, *arguments: object) -> Row:
        return (await self.ask(statement, *arguments))[0]

    async def round_trips(self, count: int = 5) -> list[timedelta]:
        took = []
        for _ in range(count):
            began = monotonic()
            await self._connection.fetchval(sql.doctor.BACKEND.text)
            took.append(timedelta(seconds=monotonic() - began))
        return took

    async def migrations(self) -> list[migrate.MigrationState]:
        async with self._connection.transaction():
            await self._connection.fetch(sql.doctor.LIMIT_TRANSACTION.text, f"{ANSWER_SECONDS:.0f}s", self._schema)
            return await migrate.status(self._connection)

    async def settings_of_a_node(self) -> Row:
        """The settings that a node's connection really gets; raises Unavailable if it is refused."""
        connection = await connect(self._url, self._schema)
        try:
            (row,) = await connection.fetch(sql.doctor.SERVER.text)
            return row
        finally:
            await connection.close()

    async def verify_role(self) -> None:
        """Raise Unavailable unless the role has the settings that nodes behind a pooler need."""
        await role.verify(self._connection, self._url, self._schema)

    async def pooling(self) -> Pooling:
        """Whether a pooler is between us and the server.

        A pooler assigns its own process numbers. If one session finds a setting that another, connected at the same
        time, has made, both use the same server connection in turn: transaction pooling."""
        real = await self._connection.fetchval(sql.doctor.BACKEND.text)
        if real == self._connection.get_server_pid():
            return "none"
        mark = secrets.token_hex(8)
        async with _plain(self._url) as other:
            for _ in range(PROBES):
                await self._connection.fetchval(sql.doctor.LEAVE_MARK.text, mark)
                found = await other.fetchval(sql.doctor.FIND_MARK.text)
                if found == mark:
                    await other.fetchval(sql.doctor.LEAVE_MARK.text, "")
                    return "transaction"
        return "session"


@asynccontextmanager
async def examining(url: str, schema: str, *, pooled: bool = False, embedded: bool = False) -> AsyncIterator[Doctor]:
    try:
        connection = await asyncpg.connect(url, timeout=10, command_timeout=2 * ANSWER_SECONDS, statement_cache_size=0)
    except _REACH as error:
        raise unreachable(url, error) from error
    try:
        yield Doctor(connection, url, schema, pooled=pooled, embedded=embedded)
    finally:
        with contextlib.suppress(*_REACH):
            await connection.close(timeout=2)


@asynccontextmanager
async def _plain(url: str) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(url, timeout=10, statement_cache_size=0)
    try:
        yield connection
    finally:
        await connection.close(timeout=2)


def refused_settings(error: Unavailable) -> bool:
    """Whether a connection was refused because of its startup parameters, as poolers do."""
    return "startup parameter" in error.message


def wanted_settings() -> dict[str, str]:
    """Settings that every node needs to be fast, and gets unless a pooler is in between."""
    asked = session_settings("")
    return {name: asked[name] for name in ("plan_cache_mode", "random_page_cost", "jit")}
