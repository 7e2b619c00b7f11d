"""What the rows of a job say: as a document for people, and as the place its cursor should stand on. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, NamedTuple

import msgspec

from detent.contract.job import Job, JobStatus
from detent.domain.job import JobSpec
from detent.domain.misfire import AUTOMATIC
from detent.domain.registration import CursorPlace, PreparedJob, next_tick, place, schedule_of, stand_on
from detent.domain.states import CODES, RunStatus
from detent.errors import RevisionMismatch, UsageError
from detent.store.db import Row

Change = Literal["created", "updated", "unchanged"]

NOWHERE = CursorPlace(None, None, AUTOMATIC)
STATUSES = {code: status for status, code in CODES.items()}
SPEC_FIELDS = frozenset(JobSpec.__struct_fields__) - {"name"}
SPEC_DEFAULTS = {field.name: field for field in msgspec.structs.fields(JobSpec)}


class Edit(NamedTuple):
    """What an edit does to the cursor; `place` is None when the next tick stays as it is."""

    place: CursorPlace | None
    grace: int
    runs_left: int | None


class Expected(NamedTuple):
    """What a change wants to find: a job at one of these revisions (None: at any), or none at all."""

    revisions: frozenset[int] | None = None
    present: bool = False
    absent: bool = False

    def check(self, row: Row | None) -> None:
        """Raise unless this is what was found."""
        if row is None:
            if self.present:
                raise RevisionMismatch("There is no such job, and the request asks for one: leave If-Match out.", None)
        elif self.absent:
            raise RevisionMismatch(
                f"There is a job {row['name']!r} already, and the request asks for none.", row["revision"]
            )
        elif self.revisions is not None and row["revision"] not in self.revisions:
            raise RevisionMismatch(
                f"The job {row['name']!r} is at revision {row['revision']}, which is not the one you have: look at it "
                "again, then change it.",
                row["revision"],
            )


def patched(row: Row, fields: Mapping[str, Any]) -> JobSpec:
    """The job with some fields changed; None puts a field back to its default."""
    old = msgspec.json.decode(row["definition"], type=JobSpec)
    changes = {name: _default(name) if value is None else value for name, value in fields.items()}
    if "schedule" in fields and "timezone" not in fields and _zone_is_inside(old, row):
        changes["timezone"] = _default("timezone")
    return msgspec.structs.replace(old, **changes)


def _default(name: str) -> Any:
    field = SPEC_DEFAULTS[name]
    if field.required:
        raise UsageError(f"{name} is null, and it has no default: give one, or leave it out to keep it.", f"/{name}")
    return field.default if field.default is not msgspec.NODEFAULT else field.default_factory()


def _zone_is_inside(spec: JobSpec, row: Row) -> bool:
    """Whether the job's zone is one that its schedule brought along, CRON_TZ or TZID."""
    try:
        bare = schedule_of(msgspec.structs.replace(spec, timezone="UTC"), row["job"], row["created_at"])
    except UsageError:
        return False
    return bare.timezone == spec.timezone != "UTC"


def edit_of(job: PreparedJob, row: Row) -> Edit:
    """The next tick is computed again only where the edit is about the schedule."""
    old = msgspec.json.decode(row["definition"], type=JobSpec)
    left = _runs_left(job.spec, old, row)
    if _same_schedule(job, old, row):
        tick = row["next_tick"]
        if left == 0:
            return Edit(NOWHERE, job.grace, left)
        if tick is None and old.max_runs != job.spec.max_runs:
            where = stand_on(job, next_tick(job.schedule, row["now"], row["last_tick"]))
            return Edit(where, job.grace, left)
        waits_late = tick is not None and tick <= row["now"] and job.spec.allow_past and job.schedule.at is not None
        grace = place(job, row["now"], row["last_tick"]).grace if waits_late else job.grace
        return Edit(None, grace, left)
    where = NOWHERE if left == 0 else place(job, row["now"], row["last_tick"])
    return Edit(where, where.grace, left)


def _same_schedule(job: PreparedJob, old: JobSpec, row: Row) -> bool:
    try:
        return schedule_of(old, row["job"], row["created_at"]) == job.schedule
    except UsageError:  # its zone is gone from the zone data, for instance
        return False


def _runs_left(new: JobSpec, old: JobSpec, row: Row) -> int | None:
    """`max_runs` counts from the creation of the job, or from when it was first bounded."""
    if new.max_runs is None:
        return None
    used = 0 if old.max_runs is None or row["runs_left"] is None else old.max_runs - row["runs_left"]
    return max(new.max_runs - used, 0)


def canonical(definition: str) -> bytes:
    return msgspec.json.encode(msgspec.json.decode(definition, type=JobSpec), order="deterministic")


def job_of(row: Row) -> Job:
    spec = msgspec.json.decode(row["definition"], type=JobSpec)
    past = row["past_status"]
    return _document(
        spec,
        description=_description(spec, row["job"], row["created_at"]),
        id=row["id"],
        name=row["name"],
        status=row["status"],
        owner=row["owner"],
        paused_reason=row["reason"],
        paused_by=row["paused_by"],
        paused_until=row["paused_until"],
        on_resume=row["on_resume"],
        next_run_at=row["next_tick"],
        last_run_at=row["last_run_at"],
        last_status=RunStatus(row["live_status"]) if row["live_status"] else STATUSES.get(past),
        revision=row["revision"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        warnings=[],
    )


def new_job(job: PreparedJob, where: CursorPlace, now: datetime, owner: str | None = None) -> Job:
    """A job as it has just been registered."""
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


def _description(spec: JobSpec, number: int, created_at: datetime) -> str:
    try:
        return schedule_of(spec, number, created_at).describe()
    except UsageError as error:
        return error.message
