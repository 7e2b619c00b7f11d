"""Rows of a job as the document that the API returns. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from detent.contract.job import Job, JobStatus
from detent.domain.delay_rules import earliest_tick
from detent.domain.job import JobSpec
from detent.domain.job_schedule import Descriptions, first_not_skipped
from detent.domain.registration import CursorPlace, PreparedJob
from detent.domain.states import CODES, RunStatus
from detent.store.db import Row

STATUSES = {code: status for status, code in CODES.items()}
SPEC_FIELDS = frozenset(JobSpec.__struct_fields__) - {"name"}


def jobs_of(rows: Sequence[Row]) -> list[Job]:
    descriptions = Descriptions(len(rows))
    return [_job_of(row, descriptions) for row in rows]


def _job_of(row: Row, descriptions: Descriptions) -> Job:
    spec = msgspec.json.decode(row["definition"], type=JobSpec)
    past, skips = row["past_status"], row["skips"] or []
    next_tick = earliest_tick(spec, row["next_tick"], row["last_run_at"])
    return _document(
        spec,
        description=descriptions.of(spec, row["tenant"], row["created_at"]),
        id=row["id"],
        name=row["name"],
        status=row["status"],
        owner=row["owner"],
        paused_reason=row["reason"],
        paused_by=row["paused_by"],
        paused_until=row["paused_until"],
        on_resume=row["on_resume"],
        next_run_at=first_not_skipped(spec, row["tenant"], row["created_at"], next_tick, skips) if skips else next_tick,
        skipped_ticks=skips,
        last_run_at=row["last_run_at"],
        last_status=RunStatus(row["live_status"]) if row["live_status"] else STATUSES.get(past),
        revision=row["revision"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        warnings=[],
    )


def new_job(job: PreparedJob, where: CursorPlace, now: datetime, owner: str | None = None) -> Job:
    """The document of a job that was just registered."""
    status: JobStatus = "active"
    return _document(
        job.spec,
        description=job.schedule.describe(),
        id=job.job_id,
        name=job.name,
        status=status,
        owner=owner,
        paused_reason=None,
        paused_by=None,
        paused_until=None,
        on_resume=None,
        next_run_at=where.next_tick,
        last_run_at=None,
        last_status=None,
        revision=1,
        created_at=now,
        updated_at=now,
        warnings=job.warnings,
    )


def _document(spec: JobSpec, **rest: Any) -> Job:
    return Job(**{field: getattr(spec, field) for field in SPEC_FIELDS}, **rest)
