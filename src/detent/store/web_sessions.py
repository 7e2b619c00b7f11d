"""Browser sessions, opened with an API key. The token is 256 random bits; only its digest is stored."""

from __future__ import annotations

import hashlib
import re
import secrets
from datetime import timedelta
from typing import NamedTuple

from detent.contract.key import KeyScope
from detent.store import sql
from detent.store.db import Database, PoolName

LASTS = timedelta(hours=12)
_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}")


class SessionHolder(NamedTuple):
    tenant: int
    scope: KeyScope
    name: str | None
    key: str


class WebSessionStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def open(self, key_id: str) -> str:
        """The token of a new session, returned only this once."""
        token = secrets.token_urlsafe(32)
        await self._database.fetch(PoolName.REQUEST, sql.session.OPEN, _digest(token), key_id, LASTS)
        return token

    async def holder(self, token: str) -> SessionHolder | None:
        """Whose session this is; None when the session or its key is unknown or has ended."""
        if not _TOKEN.fullmatch(token):
            return None
        rows = await self._database.fetch(PoolName.REQUEST, sql.session.FIND_KEY, _digest(token))
        return SessionHolder(*rows[0].values()) if rows else None

    async def close(self, token: str) -> None:
        await self._database.fetch(PoolName.REQUEST, sql.session.END, _digest(token))


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
