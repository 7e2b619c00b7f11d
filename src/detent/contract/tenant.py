"""Tenants in the public API."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from detent.contract.page import Instant
from detent.domain.job import TopicTarget


class TenantDeletion(Struct, frozen=True, kw_only=True):
    """A deletion that is under way: since when, who asked for it, and how many rows are deleted so far, by table."""

    requested_at: Instant
    by: str | None
    deleted: dict[str, int]


class TenantContents(Struct, frozen=True, kw_only=True):
    """How many rows a tenant owns, by table: what its deletion would delete."""

    name: str
    rows: dict[str, int]
    total: int


class ExportedRow(Struct, frozen=True, kw_only=True):
    """One row that a tenant owns, and the table that it is from."""

    table: str
    row: dict[str, Any]


class EnqueueGrant(Struct, frozen=True, kw_only=True):
    """A role of the database server that may enqueue runs of a tenant with the SQL functions. `statements` are those
    that the owner of the database schema has to execute before the role can call them."""

    role: str
    granted_at: Instant
    statements: list[str] = []


class Tenant(Struct, frozen=True, kw_only=True):
    """A tenant with its use and its quotas; null: no limit, or for payloads and requests the limit of the server. When
    several tenants have waiting runs, they share the workers by `weight`. `allow_targets` are the private addresses and
    the ports of databases and brokers that its jobs may call. `signing` is the secret that signs its HTTP calls.
    `dead_letter_topic` is where dead runs of its jobs go that have no such topic themselves.
    `storage_bytes` is what definitions and results take, measured every few minutes where `max_storage_bytes` is set.
    While it is suspended, no tick of its jobs fires and its requests are refused."""

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
    dead_letter_topic: TopicTarget | None = None
    max_storage_bytes: int | None = None
    storage_bytes: int | None = None
    requests_per_second: float | None = None
    suspended_at: Instant | None = None
    suspended_by: str | None = None
    suspended_reason: str | None = None
    deletion: TenantDeletion | None = None
