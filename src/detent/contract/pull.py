"""Jobs and runs as people read them. Field names, their order and their meaning are the public contract."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from msgspec import Meta, Struct, field

from detent.contract.page import Instant
from detent.domain.job import Seconds, Target, TargetKind
from detent.domain.states import RunStatus

Token = Annotated[int, Meta(ge=1, le=9_223_372_036_854_775_807)]


LeaseSeconds = Annotated[float, Meta(ge=1, le=3600)]


WorkerName = Annotated[str, Meta(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]


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
