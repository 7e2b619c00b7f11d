"""Secrets in the public API: everything about them but their values."""

from __future__ import annotations

from msgspec import Struct

from detent.contract.page import Instant


class Secret(Struct, frozen=True, kw_only=True):
    """A secret of a tenant. Its value goes in and never comes out. `versions` counts those that are valid: the newest,
    and former ones until `previous_until`. `jobs` refer to it."""

    name: str
    version: int
    created_at: Instant
    changed_at: Instant
    changed_by: str | None
    versions: int
    previous_until: Instant | None
    jobs: int


class RewrappedSecrets(Struct, frozen=True, kw_only=True):
    """What one call did: `rewrapped` versions are now under the newest key, `key_id`; `remaining` ones are not yet."""

    key_id: str
    rewrapped: int
    remaining: int
