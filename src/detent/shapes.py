"""Jobs and runs as people read them. Field names, their order and their meaning are the public contract."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Generic, Literal, TypeVar
from uuid import UUID

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

from detent.model import ConcurrentPolicy, MissedWindow, NoticeFormat, Seconds, Target, TargetKind
from detent.retry import Backoff
from detent.states import RunStatus

JobStatus = Literal["active", "paused", "completed", "deleted"]
OnResume = Literal["skip", "once", "all"]
JobChange = Literal["created", "updated", "unchanged"]
BulkAction = Literal["pause", "resume", "delete", "retry", "cancel"]
AttemptOutcome = Literal["succeeded", "failed", "timeout", "lost", "stale", "cancelled"]
TickOrder = Literal["oldest", "newest"]
Instant = Annotated[datetime, Meta(tz=True)]
Token = Annotated[int, Meta(ge=1, le=9_223_372_036_854_775_807)]
LeaseSeconds = Annotated[float, Meta(ge=1, le=3600)]
WorkerName = Annotated[str, Meta(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
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
    paused_by: str | None
    paused_until: Instant | None
    on_resume: OnResume | None
    next_run_at: Instant | None
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
    dialect: Literal["unix", "quartz"]
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
    """What became of a tick. A range of ticks that did not run is one entry: `ticks` of them, up to `until`. `payload`
    is there where a run is looked up by its id that was triggered with one of its own."""

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
    payload: Any | UnsetType = UNSET


class Page(Struct, Generic[Item], frozen=True):
    """Some of a list; `next_cursor` asks for what follows, and is null at the end."""

    items: list[Item]
    next_cursor: str | None


class ClaimRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a worker that pulls wants. `worker` is its name, for people. Of the queue's runs it gets those of `targets`;
    of runs that call a function, those of `functions`, or of every function if they are left out. Runs are held for
    `lease_seconds`, or until their time limit; where none is ready the answer waits for up to `wait_seconds`."""

    worker: WorkerName
    limit: Annotated[int, Meta(ge=1, le=100)] = 1
    lease_seconds: LeaseSeconds = 60
    wait_seconds: Annotated[float, Meta(ge=0, le=30)] = 0
    targets: Annotated[list[TargetKind], Meta(min_length=1, max_length=3)] = field(default_factory=lambda: ["python"])
    functions: Annotated[list[Annotated[str, Meta(min_length=1, max_length=500)]], Meta(max_length=1000)] | None = None


class ClaimedRun(Struct, frozen=True, kw_only=True):
    """A run to be done now: every later call about it names `token`. Without heartbeats it is lost at `lease_until`.
    It is about the time from `window_start`, the tick before (null: there is none), to `window_end`, its own."""

    run_id: UUID
    job_id: UUID
    job: str
    scheduled_at: Instant
    window_start: Instant | None
    window_end: Instant
    attempt: int
    token: int
    idempotency_key: str
    payload: Any
    target: Target
    timeout_seconds: float
    lease_until: Instant


class ClaimedRuns(Struct, frozen=True):
    """None: nothing was ready within the time to wait."""

    runs: list[ClaimedRun]


class HeartbeatRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The run goes on: hold it for another `lease_seconds`."""

    token: Token
    lease_seconds: LeaseSeconds = 60


class Lease(Struct, frozen=True, kw_only=True):
    """Until when the run is held. `cancel`: it was asked to stop; stop, and report that it failed."""

    lease_until: Instant
    cancel: bool


class CompleteRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The run succeeded."""

    token: Token
    result: Any = None


class FailRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The attempt failed. The job says whether and when it is tried again: not at all where it is not `retryable`, and
    not before `retry_after` seconds are over, at most `retry_max_seconds` of the job."""

    token: Token
    error: Annotated[str, Meta(min_length=1)]
    retryable: bool = True
    retry_after: Seconds | None = None


class SettledRun(Struct, frozen=True, kw_only=True):
    """What the report made of the run; `retry_in_seconds` is the wait before its next try."""

    id: UUID
    status: RunStatus
    retry_in_seconds: float | None = None


class BatchItem(Struct, frozen=True, omit_defaults=True):
    """What became of one job of a batch."""

    id: UUID
    name: str
    change: JobChange
    revision: int
    warnings: list[str] = []


class BatchResult(Struct, frozen=True):
    """What became of a batch; `items` are in the order of the request."""

    created: int
    updated: int
    unchanged: int
    items: list[BatchItem]


class PreviewTick(Struct, frozen=True):
    """`local` is the wall time with its offset; `dst` tells what a change of the clock did to this tick."""

    at: Instant
    local: str
    dst: Literal["moved", "repeated"] | None


class SkippedTick(Struct, frozen=True):
    """A wall time that does not run, and why."""

    local: str
    why: str


class ClockChange(Struct, frozen=True):
    """A change of the clock that touches a schedule: when it is, on which local date, and what happens."""

    at: Instant
    on: str
    effect: Literal["moved", "skipped", "repeated"]
    why: str


class Preview(Struct, frozen=True):
    """A schedule in words and in ticks. `clock_changes` are those of the next two years that touch it."""

    description: str
    timezone: str
    ticks: list[PreviewTick]
    skipped: list[SkippedTick]
    clock_changes: list[ClockChange]
    warnings: list[str]


class BackfillRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which past ticks of a job are to run: those from `from` to `to` (now, if it is left out), both included. Ticks
    that ran are left out, unless they are to be run again (`reprocess`). At most `concurrency` are under way at once,
    as far as the job allows. With `dry_run` nothing is done but to tell which they are."""

    from_: Instant = field(name="from")
    to: Instant | None = None
    order: TickOrder = "oldest"
    concurrency: Annotated[int, Meta(ge=1, le=1000)] = 1
    reprocess: bool = False
    dry_run: bool = False


class Backfilled(Struct, frozen=True, kw_only=True):
    """`ticks` run, or would, and so many are `left_out` because they ran or are going to. `first` and `last` are those
    of all. `items` are the first hundred that would run, told in a dry run only."""

    dry_run: bool
    ticks: int
    left_out: int
    first: Instant | None
    last: Instant | None
    items: list[Instant]


class OutstandingTicks(Struct, frozen=True, kw_only=True):
    """A range of ticks that are still to run beside the schedule: `left` of them, `next` first."""

    kind: Literal["missed", "backfill"]
    first: Instant
    last: Instant
    next: Instant
    left: int
    order: TickOrder
    concurrency: int
    reprocess: bool
    created_at: Instant
    created_by: str | None


class CatchUpState(Struct, frozen=True, kw_only=True):
    """What a job still has to make up for, in all and range by range."""

    left: int
    items: list[OutstandingTicks]


class DroppedTicks(Struct, frozen=True, kw_only=True):
    """How many ticks were given up."""

    dropped: int


class Left(Struct, frozen=True):
    """A run that stays as it is: it is not dead (or not there, or its job is gone), or its job has no free lane."""

    id: UUID
    reason: Literal["not dead", "overlap"]


class Redriven(Struct, frozen=True, kw_only=True):
    """`redriven` runs go on. Of those that were named, `left` stay as they are; of all that were meant, so many are
    still dead (`remaining`), some of which may have to wait until their jobs have room."""

    redriven: list[UUID]
    left: list[Left]
    remaining: int


class Discarded(Struct, frozen=True, kw_only=True):
    """So many runs are dead for good and listed no more; of those that were named, `left` are not dead, or not there.
    Of all that were meant, so many are still to be dealt with (`remaining`)."""

    discarded: int
    left: list[UUID]
    remaining: int


class DeadGroup(Struct, frozen=True, kw_only=True):
    """Dead runs whose errors read alike: `error` is what they have in common, and `group` its name. `first` and `last`
    are ticks, `sample` is the run of the last one."""

    group: str
    error: str
    runs: int
    jobs: int
    first: Instant
    last: Instant
    sample: UUID


class DeadGroups(Struct, frozen=True, kw_only=True):
    """Groups of dead runs as they were `at` this time, the largest first, and the number of `runs` in them. `more`:
    there are so many that only the newest runs, or the largest groups, were looked at."""

    at: Instant
    runs: int
    more: bool
    items: list[DeadGroup]


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


class Queue(Struct, frozen=True, kw_only=True):
    """A queue with its limits, null where there is none, how many runs wait in it and how many are under way, and since
    when the oldest waits that could start."""

    name: str
    max_concurrent: int | None
    rate_per_second: float | None
    waiting: int
    running: int
    oldest_ready_at: Instant | None


class BulkJob(Struct, frozen=True):
    """One of the jobs that a search found."""

    id: UUID
    name: str
    status: JobStatus


class BulkResult(Struct, frozen=True, kw_only=True):
    """What a change of many jobs did in this chunk, or would do: jobs that `matched`, and of these the ones it
    `changed`; others had nothing to change, or somebody else was faster. `sample` shows some that it would change.
    `next_cursor` asks for the chunk that follows, and is null at the end."""

    action: BulkAction
    dry_run: bool
    matched: int
    changed: int = 0
    sample: list[BulkJob] = []
    next_cursor: str | None
