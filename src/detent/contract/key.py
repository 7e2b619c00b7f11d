"""API keys as the API shows them."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from detent.contract.page import Instant
from detent.domain.roles import KeyScope as KeyScope


class ApiKey(Struct, frozen=True, kw_only=True):
    """A key without its secret. `created_by` is the id of the key that created it; `last_used_at` is coarse."""

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
    """A new key. Its text, `key`, is returned only this once."""

    key: str

    def __repr__(self) -> str:
        return f"NewApiKey({self.id})"
