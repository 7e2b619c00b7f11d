"""Tenants in the public API."""

from __future__ import annotations

from msgspec import Struct

from detent.contract.page import Instant


class Tenant(Struct, frozen=True, kw_only=True):
    """A tenant with its use and its quotas; null: no limit, or for payloads the limit of the server. When several
    tenants have waiting runs, they share the workers by `weight`. `allow_targets` are the private addresses and the
    ports of databases and brokers that its jobs may call. `signing` is the secret that signs its HTTP calls."""

    name: str
    created_at: Instant
    jobs: int
    max_jobs: int | None
    max_payload_bytes: int | None
    max_concurrent: int | None
    max_runs_per_second: float | None
    weight: int
    allow_targets: list[str]
    signing: str | None = None
