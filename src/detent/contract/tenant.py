"""Jobs and runs as people read them. Field names, their order and their meaning are the public contract."""

from __future__ import annotations

from msgspec import Struct

from detent.contract.page import Instant


class Tenant(Struct, frozen=True, kw_only=True):
    """A tenant with what it has and what it may have; null: no limit, or for payloads that of the server. Where several
    tenants have runs that wait, each gets its share of the workers, by `weight`."""

    name: str
    created_at: Instant
    jobs: int
    max_jobs: int | None
    max_payload_bytes: int | None
    max_concurrent: int | None
    max_runs_per_second: float | None
    weight: int
