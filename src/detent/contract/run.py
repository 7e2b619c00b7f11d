"""Jobs and runs as people read them. Field names, their order and their meaning are the public contract."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from msgspec import UNSET, Raw, Struct, UnsetType

from detent.contract.page import Instant
from detent.domain.states import RunStatus

AttemptOutcome = Literal["succeeded", "failed", "timeout", "lost", "stale", "cancelled"]


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


class CancelledRuns(Struct, frozen=True):
    """The open runs of a job: those that are over now, and those whose worker was asked to stop."""

    cancelled: list[UUID]
    stopping: list[UUID]
