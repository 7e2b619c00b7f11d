"""Incidents in the public API: missed deadlines of jobs."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

from msgspec import Struct

from detent.contract.page import Instant


class Incident(Struct, frozen=True, kw_only=True):
    """A missed deadline: the tick `scheduled_at` did not `start`, or `finish`, in time, as the last of `misses`
    consecutive ticks; `run_id` is its run, if there is one. An incident is closed when the job has recovered, was
    changed so that the deadline no longer applies, or was deleted. `notified_at` is when a notification was sent,
    `notify_error` why it failed."""

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
