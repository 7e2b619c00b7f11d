"""The pull protocol in the public API: claims, heartbeats and reports of workers."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from msgspec import UNSET, Meta, Struct, UnsetType, field

from detent.contract.page import Instant
from detent.domain.job import Name, Seconds, Target
from detent.domain.run_output import COMMAND, LONGEST_MESSAGE
from detent.domain.states import RunStatus

Token = Annotated[int, Meta(ge=1, le=9_223_372_036_854_775_807)]


PulledKind = Literal["http", "python", "shell"]
"""What a worker that pulls may run. Messages to topics and Celery tasks are sent by the nodes."""


LeaseSeconds = Annotated[float, Meta(ge=1, le=3600)]


WorkerName = Annotated[str, Meta(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]


class ClaimRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A claim of a worker that pulls. `worker` is its name, for people. It gets runs of the queue whose target is in
    `targets`; of runs that call a function, those in `functions`, or all if `functions` is left out. Runs are held for
    `lease_seconds`, or until their timeout. When no run is ready, the answer waits up to `wait_seconds`. `runs` are
    ids of runs that the worker was offered: it gets those of them that still wait, at once, whatever the `limit`."""

    worker: WorkerName
    limit: Annotated[int, Meta(ge=1, le=100)] = 1
    lease_seconds: LeaseSeconds = 60
    wait_seconds: Annotated[float, Meta(ge=0, le=30)] = 0
    targets: Annotated[list[PulledKind], Meta(min_length=1, max_length=3)] = field(default_factory=lambda: ["python"])
    functions: Annotated[list[Annotated[str, Meta(min_length=1, max_length=500)]], Meta(max_length=1000)] | None = None
    runs: Annotated[list[UUID], Meta(min_length=1, max_length=100)] | None = None


class ClaimedRun(Struct, frozen=True, kw_only=True):
    """A run to execute now: every later call about it names `token`. Without heartbeats the worker loses it at
    `lease_until`. The run covers the time from `window_start`, the previous tick (null: there is none), to
    `window_end`, its own tick."""

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
    """Empty: no run was ready within the time to wait."""

    runs: list[ClaimedRun]


class ProgressReport(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far a run is, from 0 to 1."""

    fraction: Annotated[float, Meta(ge=0, le=1)]
    message: Annotated[str, Meta(max_length=LONGEST_MESSAGE)] = ""


class NewLogLine(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line that a worker adds to its run; `at` is now, unless given."""

    message: str
    level: Annotated[str, Meta(max_length=20, pattern="^[a-z0-9 ]+$")] = "info"
    logger: Annotated[str, Meta(max_length=200)] = COMMAND
    at: Instant | None = None


class LogRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Lines of a claimed run, in their order."""

    token: Token
    lines: Annotated[list[NewLogLine], Meta(min_length=1, max_length=1000)]


class HeartbeatRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Extend the lease of a run by `lease_seconds` from now, and say how far it is. Without it: by 60 s, or by the
    lease of the job if the run waits for a callback."""

    token: Token
    lease_seconds: LeaseSeconds | UnsetType = UNSET
    progress: ProgressReport | None = None


class Lease(Struct, frozen=True, kw_only=True):
    """The end of the lease. `cancel`: the run was asked to stop; stop, and report that it failed."""

    lease_until: Instant
    cancel: bool


class CompleteRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The run succeeded."""

    token: Token
    result: Any = None


class FailRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The attempt failed. The job decides about a retry: none where it is not `retryable`, and otherwise not before
    `retry_after` seconds, at most `retry_max_seconds` of the job. `kinds` are names of the error, the most specific
    first, for `retry_on`, `no_retry_on` and `retry_delays` of the job."""

    token: Token
    error: Annotated[str, Meta(min_length=1)]
    retryable: bool = True
    retry_after: Seconds | None = None
    traceback: str | None = None
    kinds: Annotated[list[Name], Meta(max_length=50)] = []


class SettledRun(Struct, frozen=True, kw_only=True):
    """The status of the run after the report; `retry_in_seconds` is the wait before its retry."""

    id: UUID
    status: RunStatus
    retry_in_seconds: float | None = None
