"""What people read of jobs that were not as expected."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

from msgspec import Struct

from detent.contract.page import Instant


class Incident(Struct, frozen=True, kw_only=True):
    """A job that was not as expected: the tick `scheduled_at` was one too many that did not `start`, or `finish`, in
    time, and the last of so many `misses` in a row; `run_id` is its run, if there is one. It is closed when the job has
    recovered, was changed so that this is expected no more, or was deleted. `notified_at` is when somebody was told of
    it, `notify_error` why not."""

    id: int
    job_id: UUID
    job: str
    expectation: Literal["start", "finish"]
    within_seconds: float
    scheduled_at: Instant
    run_id: UUID | None
    misses: int
    opened_at: Instant
    closed_at: Instant | None
    closed: Literal["recovered", "changed", "deleted"] | None
    notified_at: Instant | None
    notify_error: str | None
