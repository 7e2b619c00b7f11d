"""What an edit changes: the new definition, whether the request may make it, and where the cursor goes. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from detent.domain.job import JobSpec
from detent.domain.job_schedule import may_hash, schedule_in_force, schedule_of
from detent.domain.misfire import AUTOMATIC
from detent.domain.registration import CursorPlace, PreparedJob, cursor_at, next_tick, place
from detent.domain.schedule import Schedule
from detent.domain.schedule.zones import has_rules
from detent.errors import Conflict, RevisionMismatch, UsageError
from detent.store.db import Row

Change = Literal["created", "updated", "unchanged"]

NOWHERE = CursorPlace(None, None, AUTOMATIC)
SPREADING = ("jitter_seconds", "stagger_ms")
SPEC_DEFAULTS = {field.name: field for field in msgspec.structs.fields(JobSpec)}


class Edit(NamedTuple):
    """How an edit changes the cursor; `place` is None when the next tick does not change."""

    place: CursorPlace | None
    grace: int
    runs_left: int | None


class Expected(NamedTuple):
    """The condition of a change: the job is at one of these revisions (None: any), exists, or does not exist."""

    revisions: frozenset[int] | None = None
    present: bool = False
    absent: bool = False

    def check(self, row: Row | None) -> None:
        """Raise RevisionMismatch unless the row meets the condition."""
        if row is None:
            if self.present:
                raise RevisionMismatch("There is no such job, but the request requires one: leave out If-Match.", None)
        elif self.absent:
            raise RevisionMismatch(
                f"The job {row['name']!r} already exists, but the request requires that it does not.", row["revision"]
            )
        elif self.revisions is not None and row["revision"] not in self.revisions:
            raise RevisionMismatch(
                f"The job {row['name']!r} is at revision {row['revision']}, not at the one in the request: read it "
                "again, then change it.",
                row["revision"],
            )


def patched(row: Row, fields: Mapping[str, Any]) -> JobSpec:
    """The job with some fields changed; None resets a field to its default."""
    old = msgspec.json.decode(row["definition"], type=JobSpec)
    changes = {name: _default(name) if value is None else value for name, value in fields.items()}
    if "schedule" in fields and "timezone" not in fields and _zone_is_inside(old, row):
        changes["timezone"] = _default("timezone")
    return msgspec.structs.replace(old, **changes)


def _default(name: str) -> Any:
    field = SPEC_DEFAULTS[name]
    if field.required:
        raise UsageError(
            f"{name} is null but has no default: give a value, or leave it out to keep the present one.", f"/{name}"
        )
    return field.default if field.default is not msgspec.NODEFAULT else field.default_factory()


def _zone_is_inside(spec: JobSpec, row: Row) -> bool:
    """Whether the zone comes from the schedule itself, as CRON_TZ or TZID."""
    try:
        bare = schedule_of(msgspec.structs.replace(spec, timezone="UTC"), row["tenant"], row["created_at"])
    except UsageError:
        return False
    return bare.timezone == spec.timezone != "UTC"


def edit_of(job: PreparedJob, row: Row) -> Edit:
    """The next tick is computed again only if the edit changes the schedule. One that waits for its release keeps the
    moment of it, whatever the edit says about the release of later ones."""
    job.schedule.start_question()
    old = msgspec.json.decode(row["definition"], type=JobSpec)
    _check_zone_rules(job, old, row)
    left = _runs_left(job.spec, old, row)
    tick = row["next_tick"]
    before = _former_schedule(old, row)
    if before == job.schedule or (_waits_for_release(row) and before is not None and _same_ticks(before, job.schedule)):
        if left == 0:
            return Edit(NOWHERE, job.grace, left)
        if tick is None and old.max_runs != job.spec.max_runs:
            where = cursor_at(job, next_tick(job.schedule, row["now"], row["last_tick"]))
            return Edit(where, job.grace, left)
        waits_late = tick is not None and tick <= row["now"] and job.spec.allow_past and job.schedule.at is not None
        grace = place(job, row["now"], row["last_tick"]).grace if waits_late else job.grace
        return Edit(None, grace, left)
    where = NOWHERE if left == 0 else place(job, row["now"], row["last_tick"])
    return Edit(where, where.grace, left)


def _check_zone_rules(job: PreparedJob, old: JobSpec, row: Row) -> None:
    """Another field of the job must not be the way by which new rules of its zone are accepted."""
    pinned, zone = row["zone_rules"], job.schedule.timezone
    if pinned is None or job.spec.tzdata_policy != "refuse" or zone != old.timezone or has_rules(zone, pinned):
        return
    raise Conflict(
        f"The job {row['name']!r} refuses the rules that the zone data of this node has for {zone} (tzdata_policy): "
        "set tzdata_policy to recompute to accept them, or change the job on a node with the zone data "
        f"{pinned.partition(':')[0]}."
    )


def _former_schedule(old: JobSpec, row: Row) -> Schedule | None:
    try:
        return schedule_in_force(old, row["cron"], row["tenant"], row["created_at"])
    except UsageError:  # for example, its zone was removed from the zone data
        return None


def is_computed(job: PreparedJob, row: Row) -> bool:
    """Whether the stored ticks are those of this definition. A node of an older version may have registered the same
    one, and have hashed its `H` from another key."""
    if job.spec.schedule is None or not may_hash(job.spec.schedule):
        return True
    return row["cron"] in (None, job.schedule.to_stored().get("cron"))


def _waits_for_release(row: Row) -> bool:
    return row["next_tick"] is not None and row["next_tick"] <= row["now"]


def _same_ticks(one: Schedule, other: Schedule) -> bool:
    """Whether two schedules differ at most in how long after a tick its run is released."""
    ticks = [{**each.to_stored(), **dict.fromkeys(SPREADING)} for each in (one, other)]
    return ticks[0] == ticks[1] and (one.anchor, one.at) == (other.anchor, other.at)


def _runs_left(new: JobSpec, old: JobSpec, row: Row) -> int | None:
    """`max_runs` counts from the creation of the job, or from when it was first set."""
    if new.max_runs is None:
        return None
    used = 0 if old.max_runs is None or row["runs_left"] is None else old.max_runs - row["runs_left"]
    return max(new.max_runs - used, 0)


def canonical(definition: str) -> bytes:
    """For comparison: a field that is newer than the stored document counts as its default."""
    return msgspec.json.encode(msgspec.json.decode(definition, type=JobSpec), order="deterministic")
