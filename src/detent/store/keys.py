"""Keys with which people and programs come to the API.

The text of a key is `dtn_<id>_<secret>`: the id is public, the secret is 256 random bits and is never kept. As nobody
can guess it, one round of a keyed hash is enough; the id is the hash's key, so that a digest fits its own row only.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import re
import secrets
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import Meta, Struct

from detent.contract.page import Instant
from detent.errors import DetentError, NotFound
from detent.store import sql
from detent.store.db import Database, PoolName, Row

KeyScope = Literal["read", "work", "operate", "write", "admin"]
TenantName = Annotated[
    str,
    Meta(
        pattern=r"^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$",
        description="Lower-case letters, digits and hyphens, at most 63.",
    ),
]

_TEXT = re.compile(r"dtn_([a-z2-7]{10})_([a-z2-7]{52})")


class ApiKey(Struct, frozen=True, kw_only=True):
    """A key without its secret. `created_by` is the id of the key that made it; `last_used_at` is coarse."""

    id: str
    name: str | None
    scope: KeyScope
    tenant: str
    status: Literal["active", "expired", "revoked"]
    created_at: Instant
    created_by: str | None
    expires_at: Instant | None
    revoked_at: Instant | None
    last_used_at: Instant | None


class NewApiKey(ApiKey, frozen=True, kw_only=True):
    """A key that was just made. Its text, `key`, is told this once."""

    key: str

    def __repr__(self) -> str:
        return f"NewApiKey({self.id})"


class Credential(NamedTuple):
    """What is left of a key's text once it was read."""

    id: str
    digest: bytes


class KeyHolder(NamedTuple):
    tenant: int
    scope: KeyScope
    name: str | None = None


KeyPage = tuple[list[ApiKey], int | None]


def read_key(text: str) -> Credential | None:
    """None: no key has this form."""
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
        await self._database.fetch(
            PoolName.REQUEST,
            sql.key.ADD,
            key_id,
            tenant,
            _digest(key_id, secret),
            scope,
            name,
            created_by,
            expires_in_seconds,
        )
        (row,) = await self._database.fetch(PoolName.REQUEST, sql.key.LIST, tenant, 0, 1, key_id)
        return NewApiKey(**_fields(row), key=f"dtn_{key_id}_{secret}")

    async def list(self, *, tenant: int, after: int = 0, limit: int = 50) -> KeyPage:
        """Keys in the order of their creation, and what to pass as `after` for more (None: these were all)."""
        rows = await self._database.fetch(PoolName.REQUEST, sql.key.LIST, tenant, after, limit + 1, None)
        return [ApiKey(**_fields(row)) for row in rows[:limit]], rows[limit - 1]["number"] if len(
            rows
        ) > limit else None

    async def revoke(self, key_id: str, *, tenant: int) -> ApiKey:
        """Nobody comes in with this key any more; a node that has just let it in may do so for seconds yet."""
        if not await self._database.fetch(PoolName.REQUEST, sql.key.REVOKE, tenant, key_id):
            raise NotFound(f"There is no key {key_id!r}: list the keys to see those there are.")
        (row,) = await self._database.fetch(PoolName.REQUEST, sql.key.LIST, tenant, 0, 1, key_id)
        return ApiKey(**_fields(row))

    async def holder(self, credential: Credential) -> KeyHolder | None:
        """Whose key this is; None when it is unknown, expired or revoked."""
        rows = await self._database.fetch(PoolName.REQUEST, sql.key.FIND_VALID, credential.id)
        # Compared also where there is no such key, so that this takes as long.
        if not hmac.compare_digest(rows[0]["digest"] if rows else bytes(32), credential.digest) or not rows:
            return None
        if rows[0]["unseen"]:
            with contextlib.suppress(DetentError):  # nobody is kept out because it could not be written down
                await self._database.fetch(PoolName.REQUEST, sql.key.TOUCH, credential.id)
        return KeyHolder(rows[0]["tenant"], rows[0]["scope"], rows[0]["name"])

    async def exists(self) -> bool:
        """Whether there is a key with which anybody could come in."""
        return bool((await self._database.fetch(PoolName.REQUEST, sql.key.FIND_ANY_VALID))[0]["found"])


def _fields(row: Row) -> dict[str, Any]:
    return {name: row[name] for name in ApiKey.__struct_fields__}
