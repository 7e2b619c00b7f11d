"""Jobs in the public API."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from msgspec import Struct

from detent.contract.page import Instant
from detent.domain.job import (
    ConcurrencyScope,
    ConcurrentPolicy,
    MissedWindow,
    NoticeFormat,
    ReleasePolicy,
    Target,
    TopicTarget,
    ZoneDataPolicy,
)
from detent.domain.retry import Backoff
from detent.domain.secret_ref import SecretRef
from detent.domain.states import RunStatus

JobStatus = Literal["active", "paused", "completed", "deleted"]


OnResume = Literal["skip", "once", "all"]


JobChange = Literal["created", "updated", "unchanged"]


# What a trigger of a job does that has its maximum of unfinished runs.
IfBusy = Literal["wait", "refuse"]
BulkAction = Literal["pause", "resume", "delete", "retry", "cancel"]


class Job(Struct, frozen=True, kw_only=True):
    """A job with every default filled in. `next_run_at` is the next tick that runs, `skipped_ticks` are the coming ones
    that an operator asked to skip, `last_run_at` is the tick of the newest run. A job whose `schedule` is null is a
    task: it has no ticks, and its runs are enqueued."""

    id: UUID
    name: str
    description: str
    schedule: str | dict[str, Any] | None
    timezone: str
    target: Target
    payload: Any
    queue: str
    priority: int
    status: JobStatus
    paused_reason: str | None
    paused_by: str | None
    paused_until: Instant | None
    on_resume: OnResume | None
    next_run_at: Instant | None
    skipped_ticks: list[Instant] = []
    last_run_at: Instant | None
    last_status: RunStatus | None
    revision: int
    created_at: Instant
    updated_at: Instant
    tags: list[str]
    owner: str | None = None
    timeout_seconds: float
    max_retries: int
    retry_backoff: Backoff
    retry_base_seconds: float
    retry_max_seconds: float
    no_retry_on: list[str]
    missed_window: MissedWindow
    max_missed: int
    misfire_grace_seconds: int | Literal["auto"]
    concurrent_policy: ConcurrentPolicy
    max_concurrent: int
    delivery: Literal["at_least_once", "at_most_once"]
    jitter_seconds: float
    dst_gap: Literal["run", "shift", "skip"]
    dst_overlap: Literal["first", "last", "both"]
    day_match: Literal["or", "and"] | None
    dialect: Literal["unix", "quartz", "aws"]
    starts_at: Instant | None
    ends_at: Instant | None
    max_runs: int | None
    allow_past: bool
    auto_pause_after: int | None
    expect_start_within: float | None
    expect_finish_within: float | None
    notify_after: int
    notify_url: str | None
    notify_format: NoticeFormat
    collect_after: float
    idempotency_key_template: str | None
    signing: SecretRef | None = None
    concurrency_key: str | None = None
    concurrency_limit: int | None = None
    concurrency_rate: float | None = None
    concurrency_scope: ConcurrencyScope = "job"
    retry_on: list[str] = []
    retry_delays: dict[str, float] = {}
    dead_letter_topic: TopicTarget | None = None
    payload_schema: dict[str, Any] | None = None
    release: ReleasePolicy = "exact"
    tzdata_policy: ZoneDataPolicy = "recompute"
    warnings: list[str]


class BatchItem(Struct, frozen=True, omit_defaults=True):
    """The result for one job of a batch."""

    id: UUID
    name: str
    change: JobChange
    revision: int
    warnings: list[str] = []


class BatchResult(Struct, frozen=True):
    """The result of a batch; `items` are in the order of the request."""

    created: int
    updated: int
    unchanged: int
    items: list[BatchItem]


class PreviewTick(Struct, frozen=True, omit_defaults=True):
    """`local` is the wall time with its offset; `dst` says what a DST change did to this tick. `skipped`: it does not
    run, because an operator asked to skip it; only where the preview names a job, and left out if it is false."""

    at: Instant
    local: str
    dst: Literal["moved", "repeated"] | None
    skipped: bool = False


class SkippedTick(Struct, frozen=True):
    """A wall time that does not run, and why."""

    local: str
    why: str


class ClockChange(Struct, frozen=True):
    """A DST change that affects a schedule: its instant, its local date, and what happens."""

    at: Instant
    on: str
    effect: Literal["moved", "skipped", "repeated"]
    why: str


class Preview(Struct, frozen=True):
    """A schedule in words and in ticks. `clock_changes` are the DST changes of the next two years that affect it."""

    description: str
    timezone: str
    ticks: list[PreviewTick]
    skipped: list[SkippedTick]
    clock_changes: list[ClockChange]
    warnings: list[str]


class BulkJob(Struct, frozen=True):
    """One of the jobs that a search found."""

    id: UUID
    name: str
    status: JobStatus


class BulkResult(Struct, frozen=True, kw_only=True):
    """What a bulk change did in this chunk, or would do in a dry run: how many jobs `matched`, and how many of them it
    `changed`; the others had nothing to change, or were changed meanwhile. `sample` shows some that it would change.
    `next_cursor` continues with the next chunk, and is null at the end."""

    action: BulkAction
    dry_run: bool
    matched: int
    changed: int = 0
    sample: list[BulkJob] = []
    next_cursor: str | None
