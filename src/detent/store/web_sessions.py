"""Browser sessions, opened with an API key. The token is 256 random bits; only its digest is stored."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from detent.domain.audit_event import NewEvent
from detent.domain.roles import BoundRole, KeyScope
from detent.store import sql
from detent.store.audit_log import record
from detent.store.connection import Connection
from detent.store.db import Database, PoolName
from detent.store.keys import read_bindings

LASTS = timedelta(hours=12)
PURGE_BATCH = 500
# An answer that comes later is of no use: it is asked again every few seconds.
FIND_ENDED_SECONDS = 2.0
_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}")


class SessionHolder(NamedTuple):
    tenant: int
    scope: KeyScope
    name: str | None
    key: str
    bindings: tuple[BoundRole, ...] = ()


class EndedAccess(NamedTuple):
    """Which keys and sessions of those in question have ended; `keyed`: the cluster requires keys; `roles`: what is
    bound to each session now."""

    keys: frozenset[str]
    sessions: frozenset[bytes]
    keyed: bool
    roles: Mapping[bytes, tuple[BoundRole, ...]]


class WebSessionStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def open(self, key_id: str, *, tenant: int, name: str | None = None) -> str:
        """The token of a new session of a key, returned only this once."""
        token = secrets.token_urlsafe(32)

        async def work(connection: Connection) -> None:
            await connection.fetch(sql.session.OPEN.text, _digest(token), key_id, LASTS)
            await record(connection, NewEvent("session.open", tenant, "key", key_id, name))

        await self._database.transaction(PoolName.REQUEST, work)
        return token

    async def holder(self, digest: bytes) -> SessionHolder | None:
        """Whose session this is; None when the session or its key is unknown or has ended."""
        rows = await self._database.fetch(PoolName.REQUEST, sql.session.FIND_KEY, digest)
        if not rows:
            return None
        row = rows[0]
        return SessionHolder(row["tenant"], row["scope"], row["name"], row["key"], read_bindings(row["bindings"]))

    async def valid_digests(self, limit: int) -> frozenset[bytes]:
        """The digests of sessions that have not ended, at most `limit`: the newest."""
        rows = await self._database.fetch(PoolName.REQUEST, sql.session.LIST_DIGESTS, limit)
        return frozenset(row["digest"] for row in rows)

    async def ended(self, keys: Collection[str], sessions: Collection[bytes]) -> EndedAccess:
        """Which of these have ended, for requests that stay open."""
        digests = list(sessions)
        (row,) = await self._database.fetch_within(
            FIND_ENDED_SECONDS, PoolName.REQUEST, sql.session.FIND_ENDED, list(keys), digests
        )
        roles = dict(zip(digests, map(read_bindings, row["roles"]), strict=True))
        return EndedAccess(frozenset(row["keys"]), frozenset(row["sessions"]), row["keyed"], roles)

    async def close(self, token: str, key_id: str | None, *, tenant: int, name: str | None = None) -> None:
        async def work(connection: Connection) -> None:
            await connection.fetch(sql.session.END.text, _digest(token))
            await record(connection, NewEvent("session.close", tenant, "key", key_id, name))

        await self._database.transaction(PoolName.REQUEST, work)

    async def purge(self, at: datetime | None = None) -> int:
        """Remove sessions that have ended; returns how many. `at`: the time of the caller's clock."""
        return len(await self._database.fetch(PoolName.WORK, sql.session.PURGE, PURGE_BATCH, at))


def session_digest(token: str) -> bytes | None:
    """None: the text is not a token."""
    return _digest(token) if _TOKEN.fullmatch(token) else None


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
