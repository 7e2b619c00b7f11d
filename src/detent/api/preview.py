"""POST /schedules/preview: a schedule in words, its next ticks, and what DST changes do to them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from detent.api.context import PREFIX, Api
from detent.api.references import job_id
from detent.api.routing import Routes
from detent.contract.job import Preview
from detent.contract.page import Instant
from detent.domain.job import Name
from detent.domain.job_schedule import hash_key_of, whole_milliseconds
from detent.domain.schedule import ScheduleError, tzdata_version
from detent.domain.schedule.explain import explain_text
from detent.domain.schedule.instants import check_range
from detent.domain.schedule.preview import MAX_TICKS
from detent.domain.schedule.zones import has_rules
from detent.errors import UsageError
from detent.runtime.arithmetic import compute
from detent.store.db import Row

routes = Routes(PREFIX)


class PreviewRequest(Struct, forbid_unknown_fields=True, kw_only=True):
    """A schedule as in a job, null for a task, with the fields of a job that decide when it ticks. Ticks after `from`
    are listed, by default after now; an interval without an anchor counts from there. With a `job` (a name or an id),
    `H` and the anchor are those of that job, and ticks that were asked to be skipped are marked. `H` of a job that does
    not exist yet is that of its `name`."""

    schedule: str | dict[str, Any] | None
    timezone: str = "UTC"
    count: Annotated[int, Meta(ge=1, le=MAX_TICKS)] = 10
    from_: Instant | None = msgspec.field(default=None, name="from")
    dst_gap: Literal["run", "shift", "skip"] = "run"
    dst_overlap: Literal["first", "last", "both"] = "first"
    day_match: Literal["or", "and"] | None = None
    dialect: Literal["unix", "quartz", "aws"] = "unix"
    starts_at: Instant | None = None
    ends_at: Instant | None = None
    job: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    name: Name | None = None


@routes.post("/schedules/preview", scope="read")
async def preview_schedule(api: Api, body: PreviewRequest) -> Preview:
    """Explain a schedule in words and by its next ticks, without creating a job."""
    since = body.from_ or await api.store.upkeep.now()
    try:
        check_range(since)
    except ScheduleError as error:
        raise UsageError(error.message, "/from") from error
    options: dict[str, Any] = {
        "hash_key": hash_key_of(api.tenant, body.name or "preview"),
        "dst_gap": body.dst_gap,
        "dst_overlap": body.dst_overlap,
        "day_match": body.day_match,
        "dialect": body.dialect,
        "starts_at": body.starts_at,
        "ends_at": body.ends_at,
    }
    job = None if body.job is None else await _job(api, body.job)
    if job is not None:
        # What decides about ticks and is not in the document.
        hash_key = hash_key_of(api.tenant, body.name or job["name"])
        options |= {"hash_key": hash_key, "anchor": whole_milliseconds(job["created_at"])}
    try:
        found = await compute(explain_text, body.schedule, body.timezone, body.count, since, **options)
    except ScheduleError as error:
        raise UsageError(error.message, error.pointer or "/schedule") from error
    if job is not None:
        await _as_of_job(api, job, found)
    return msgspec.convert(found, Preview)


async def _job(api: Api, reference: str) -> Row:
    return await api.store.jobs.to_change(tenant=api.tenant, job_id=await job_id(api, reference))


async def _as_of_job(api: Api, job: Row, found: dict[str, Any]) -> None:
    """Mark the ticks that were asked to be skipped, and say if the job does not tick by the zone data of this node."""
    skips = {skip.at for skip in await api.store.skips.list(job["job"])}
    for tick in found["ticks"] if skips else ():
        tick["skipped"] = datetime.fromisoformat(tick["at"]) in skips
    pinned = job["zone_rules"]
    if pinned is not None and not has_rules(found["timezone"], pinned):
        found["warnings"] = [
            *found["warnings"],
            f"The job does not fire: its ticks were computed by zone data {pinned.partition(':')[0]}, and these by "
            f"{tzdata_version()}, whose rules for {found['timezone']} it refuses. Set its tzdata_policy to recompute "
            "to accept them.",
        ]
