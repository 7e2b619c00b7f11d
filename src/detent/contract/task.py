"""Tasks and enqueued runs in the public API."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from msgspec import Meta, Struct

from detent.contract.job import JobStatus
from detent.contract.page import Instant
from detent.domain.on_demand import MAX_RUNS, NewRun
from detent.domain.states import RunStatus


class NewRuns(Struct, frozen=True, forbid_unknown_fields=True):
    """Runs to enqueue, all or none."""

    runs: Annotated[list[NewRun], Meta(min_length=1, max_length=MAX_RUNS)]


class EnqueuedRun(Struct, frozen=True):
    """A run that was enqueued. `created` false: none was, because this run has the unique key. Its `status` is null if
    history no longer has it."""

    id: UUID
    created: bool
    status: RunStatus | None
    scheduled_at: Instant


class EnqueuedRuns(Struct, frozen=True):
    """One item for each run of the request, in the same order."""

    items: list[EnqueuedRun]


class TaskSummary(Struct, frozen=True, kw_only=True):
    """A task with its unfinished runs. `pending` runs have not started: `ready` ones wait for a worker, `delayed` ones
    for their time, `waiting_for_key` for a run with the same concurrency key to end. The oldest run that is due has
    waited since `oldest_ready_at`. `more`: there are more, because each number is counted up to 10,000, in long lists
    less."""

    id: UUID
    name: str
    status: JobStatus
    queue: str
    pending: int
    ready: int
    delayed: int
    waiting_for_key: int
    running: int
    more: bool
    oldest_ready_at: Instant | None
