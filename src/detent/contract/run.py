"""Runs in the public API."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from msgspec import UNSET, Raw, Struct, UnsetType

from detent.contract.page import Instant
from detent.domain.states import RunStatus

AttemptOutcome = Literal["succeeded", "failed", "timeout", "lost", "stale", "cancelled"]


class Attempt(Struct, frozen=True, kw_only=True):
    """One attempt of a run, on `node`. When a single run is read, `traceback` is that of the exception, if a Python
    function failed."""

    attempt: int
    token: int
    node: str | None
    started_at: Instant | None
    finished_at: Instant
    outcome: AttemptOutcome
    error: str | None
    traceback: str | UnsetType | None = UNSET


class RunProgress(Struct, frozen=True, kw_only=True):
    """How far a running attempt said that it is, from 0 to 1."""

    fraction: float
    message: str | None
    at: Instant


class RunStep(Struct, frozen=True, kw_only=True):
    """A step of a run whose result is stored: a later attempt does not repeat it. `attempt` is the one that did it."""

    name: str
    attempt: int
    finished_at: Instant
    duration_ms: int


class LogLine(Struct, frozen=True, kw_only=True):
    """A line that an attempt wrote: with a logger, by `print` (`logger` is stdout or stderr), or as a command
    (`output`). The lines of an attempt are numbered from 1 on; where numbers are missing, lines were left out."""

    attempt: int
    number: int
    at: Instant
    level: str
    logger: str
    message: str


class LogPage(Struct, frozen=True, kw_only=True):
    """Lines in the order in which they were written. `left_out` lines are missing between them, because an attempt
    wrote more than is kept. `next_cursor` continues with the next page, and is null where there are no more now;
    `last` is the cursor of the last line, from which an unfinished run is read on later."""

    items: list[LogLine]
    left_out: int
    next_cursor: str | None
    last: str


class Run(Struct, frozen=True, kw_only=True):
    """The run of a tick, or one that was enqueued. A range of ticks that did not run is one entry: `ticks` of them, up
    to `until`. When a single run is read, these are present: `payload` if it was enqueued with its own payload,
    `concurrency_key` if it has one, the `traceback` of each attempt, and, if it is unfinished, `not_before`, the time
    of its next attempt, and `waiting_for`, a sentence, while no worker has claimed it. `progress` is what the running
    attempt last reported. `steps`, those whose results are stored, are present when a single run is read and has any.
    `attempt` counts on when a dead run is retried. `lateness_ms` is null for a run that was asked for later than its
    tick: a re-run, or a tick from before the job was created."""

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
    progress: RunProgress | None = None
    payload: Any | UnsetType = UNSET
    concurrency_key: str | UnsetType = UNSET
    not_before: Instant | UnsetType = UNSET
    waiting_for: str | UnsetType = UNSET
    steps: list[RunStep] | UnsetType = UNSET


class Left(Struct, frozen=True):
    """A run that was not changed: it is not dead (or does not exist, or its job is deleted), or its job has its maximum
    of unfinished runs."""

    id: UUID
    reason: Literal["not dead", "overlap"]


class Redriven(Struct, frozen=True, kw_only=True):
    """`redriven` runs continue. Of the named runs, `left` were not changed; `remaining` of all chosen runs are still
    dead, some of them until their jobs have fewer unfinished runs."""

    redriven: list[UUID]
    left: list[Left]
    remaining: int


class Discarded(Struct, frozen=True, kw_only=True):
    """How many dead runs were discarded, which are no longer listed. Of the named runs, `left` are not dead or do not
    exist. `remaining` of all chosen runs are still to discard."""

    discarded: int
    left: list[UUID]
    remaining: int


class DeadGroup(Struct, frozen=True, kw_only=True):
    """Dead runs with similar errors: `error` is what they have in common, and `group` its id. `first` and `last` are
    ticks, `sample` is the run of the last one."""

    group: str
    error: str
    runs: int
    jobs: int
    first: Instant
    last: Instant
    sample: UUID


class DeadGroups(Struct, frozen=True, kw_only=True):
    """Groups of dead runs at the time `at`, the largest first, and the number of `runs` in them. `more`: only the
    newest runs, or the largest groups, are included."""

    at: Instant
    runs: int
    more: bool
    items: list[DeadGroup]


class CancelledRuns(Struct, frozen=True):
    """The open runs of a job: those that are cancelled now, and those whose worker was asked to stop. `more`: more of
    them wait than one request cancels (10,000): repeat it."""

    cancelled: list[UUID]
    stopping: list[UUID]
    more: bool = False
