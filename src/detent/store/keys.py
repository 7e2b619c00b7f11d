"""API keys.

The text of a key is `dtn_<id>_<secret>`: the id is public, the secret is 256 random bits and is never stored. Because
it cannot be guessed, one round of a keyed hash is enough; the id is the hash's key, so that a digest fits its own row
only.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import re
import secrets
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from detent.contract.key import ApiKey, KeyScope, NewApiKey
from detent.domain.audit_event import NewEvent
from detent.domain.roles import BoundRole
from detent.errors import DetentError, KeyNotFound
from detent.store import sql
from detent.store.audit_log import record
from detent.store.connection import Connection
from detent.store.db import Database, PoolName, Row

TenantName = Annotated[
    str,
    Meta(
        pattern=r"^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$",
        description="Lower-case letters, digits and hyphens, at most 63.",
    ),
]

_TEXT = re.compile(r"dtn_([a-z2-7]{10})_([a-z2-7]{52})")


class Credential(NamedTuple):
    """The parts of a key's text that are kept after parsing."""

    id: str
    digest: bytes


class KeyHolder(NamedTuple):
    tenant: int
    scope: KeyScope
    name: str | None = None
    bindings: tuple[BoundRole, ...] = ()


KeyPage = tuple[list[ApiKey], int | None]


def read_bindings(text: str | None) -> tuple[BoundRole, ...]:
    """The bindings that a statement returned as JSON; NULL: none, as nearly always."""
    return () if text is None else msgspec.json.decode(text, type=tuple[BoundRole, ...])


def read_key(text: str) -> Credential | None:
    """None: the text is not a key."""
    found = _TEXT.fullmatch(text)
    return None if found is None else Credential(found[1], _digest(found[1], found[2]))


def _digest(key_id: str, secret: str) -> bytes:
    return hashlib.blake2b(secret.encode(), key=key_id.encode(), digest_size=32).digest()


def _letters(size: int) -> str:
    return base64.b32encode(secrets.token_bytes(size)).decode().rstrip("=").lower()


class KeyStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    # -- keys

    async def add(
        self,
        scope: KeyScope,
        *,
        tenant: int,
        name: str | None = None,
        created_by: str | None = None,
        expires_in_seconds: float | None = None,
    ) -> NewApiKey:
        key_id, secret = _letters(7)[:10], _letters(32)
        columns = (key_id, tenant, _digest(key_id, secret), scope, name, created_by, expires_in_seconds)

        async def work(connection: Connection) -> Row:
            await connection.fetch(sql.key.ADD.text, *columns)
            (row,) = await connection.fetch(sql.key.LIST.text, tenant, 0, 1, key_id)
            after = {"scope": scope, "expires_at": row["expires_at"]}
            await record(connection, NewEvent("key.create", tenant, "key", key_id, name, after=after))
            return row

        row: Row = await self._database.transaction(PoolName.REQUEST, work)
        return NewApiKey(**_fields(row), key=f"dtn_{key_id}_{secret}")

    async def list(self, *, tenant: int, after: int = 0, limit: int = 50) -> KeyPage:
        """Keys in order of creation, and the value to pass as `after` for the next page (None: the last one)."""
        rows = await self._database.fetch(PoolName.REQUEST, sql.key.LIST, tenant, after, limit + 1, None)
        return [ApiKey(**_fields(row)) for row in rows[:limit]], rows[limit - 1]["number"] if len(
            rows
        ) > limit else None

    async def revoke(self, key_id: str, *, tenant: int) -> ApiKey:
        """Revoke a key and end its sessions; a node that has just accepted it may do so for a few more seconds."""

        async def work(connection: Connection) -> Row:
            if not (revoked := await connection.fetch(sql.key.REVOKE.text, tenant, key_id)):
                raise KeyNotFound(key_id)
            (row,) = await connection.fetch(sql.key.LIST.text, tenant, 0, 1, key_id)
            if revoked[0]["now"]:  # or it was revoked already
                before = {"scope": row["scope"]}
                await record(connection, NewEvent("key.revoke", tenant, "key", key_id, row["name"], before))
            return row

        row: Row = await self._database.transaction(PoolName.REQUEST, work)
        return ApiKey(**_fields(row))

    async def holder(self, credential: Credential) -> KeyHolder | None:
        """Whose key this is; None when it is unknown, expired or revoked."""
        rows = await self._database.fetch(PoolName.REQUEST, sql.key.FIND_VALID, credential.id)
        # Compared even if there is no such key, so that both cases take the same time.
        if not hmac.compare_digest(rows[0]["digest"] if rows else bytes(32), credential.digest) or not rows:
            return None
        if rows[0]["unseen"]:
            with contextlib.suppress(DetentError):  # the key is valid even if its last use cannot be written
                await self._database.fetch(PoolName.REQUEST, sql.key.TOUCH, credential.id)
        row = rows[0]
        return KeyHolder(row["tenant"], row["scope"], row["name"], read_bindings(row["bindings"]))

    async def valid_digests(self, limit: int) -> frozenset[bytes]:
        """The digests of valid keys, at most `limit`: those that were used last."""
        rows = await self._database.fetch(PoolName.REQUEST, sql.key.LIST_DIGESTS, limit)
        return frozenset(row["digest"] for row in rows)

    async def cluster_is_keyed(self) -> bool:
        """Whether a key was ever created. From then on every request needs one, also when all are revoked."""
        return bool((await self._database.fetch(PoolName.REQUEST, sql.key.FIND_ANY))[0]["found"])

    async def exists(self) -> bool:
        """Whether any valid key exists."""
        return bool((await self._database.fetch(PoolName.REQUEST, sql.key.FIND_ANY_VALID))[0]["found"])


def _fields(row: Row) -> dict[str, Any]:
    return {name: row[name] for name in ApiKey.__struct_fields__}
