"""Jobs and runs as people read them. Field names, their order and their meaning are the public contract."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Generic, Literal, TypeVar
from uuid import UUID

from msgspec import Meta, Raw, Struct

from detent.model import Target
from detent.retry import Backoff
from detent.states import RunStatus

JobStatus = Literal["active", "paused", "completed", "deleted"]
AttemptOutcome = Literal["succeeded", "failed", "timeout", "lost", "stale", "cancelled"]
Instant = Annotated[datetime, Meta(tz=True)]
Item = TypeVar("Item")


class Job(Struct, frozen=True, kw_only=True):
    """A job with every default filled in. `next_run_at` is the next tick, `last_run_at` that of the newest run."""

    id: UUID
    name: str
    description: str
    schedule: str | dict[str, Any]
    timezone: str
    target: Target
    payload: Any
    queue: str
    priority: int
    status: JobStatus
    paused_reason: str | None
    next_run_at: Instant | None
    last_run_at: Instant | None
    last_status: RunStatus | None
    revision: int
    created_at: Instant
    updated_at: Instant
    tags: list[str]
    timeout_seconds: float
    max_retries: int
    retry_backoff: Backoff
    retry_base_seconds: float
    retry_max_seconds: float
    missed_window: Literal["RUN_ONCE"]
    misfire_grace_seconds: int | Literal["auto"]
    concurrent_policy: Literal["SKIP", "ALLOW"]
    max_concurrent: int
    delivery: Literal["at_least_once", "at_most_once"]
    jitter_seconds: float
    dst_gap: Literal["run", "shift", "skip"]
    dst_overlap: Literal["first", "last", "both"]
    day_match: Literal["or", "and"] | None
    dialect: Literal["unix", "quartz"]
    starts_at: Instant | None
    ends_at: Instant | None
    max_runs: int | None
    allow_past: bool
    idempotency_key_template: str | None
    warnings: list[str]


class Attempt(Struct, frozen=True, kw_only=True):
    """One try of a run. `node` is the node that made it."""

    attempt: int
    token: int
    node: str | None
    started_at: Instant | None
    finished_at: Instant
    outcome: AttemptOutcome
    error: str | None


class Run(Struct, frozen=True, kw_only=True):
    """What became of a tick. A range of ticks that did not run is one entry: `ticks` of them, up to `until`."""

    id: UUID
    job_id: UUID
    job: str
    scheduled_at: Instant
    status: RunStatus
    reason: str | None
    attempt: int | None
    token: int | None
    started_at: Instant | None
    finished_at: Instant | None
    duration_ms: int | None
    lateness_ms: int | None
    node: str | None
    result: Raw
    error: str | None
    idempotency_key: str
    ticks: int | None
    until: Instant | None
    attempts: list[Attempt]


class Page(Struct, Generic[Item], frozen=True):
    """Some of a list; `next_cursor` asks for what follows, and is null at the end."""

    items: list[Item]
    next_cursor: str | None
