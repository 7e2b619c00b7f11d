"""POST /schedules/preview: a schedule in words, its next ticks, and what DST changes do to them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from detent.api.context import PREFIX, Api
from detent.api.references import job_id, unknown_job
from detent.api.routing import Routes
from detent.contract.job import Preview
from detent.contract.page import Instant
from detent.domain.job import Name
from detent.domain.job_schedule import hash_key_of, whole_milliseconds
from detent.domain.schedule import ScheduleError
from detent.domain.schedule.explain import explain_text
from detent.domain.schedule.instants import check_range
from detent.domain.schedule.preview import MAX_TICKS
from detent.errors import UsageError
from detent.runtime.arithmetic import compute

routes = Routes(PREFIX)


class PreviewRequest(Struct, forbid_unknown_fields=True, kw_only=True):
    """A schedule as in a job, null for a task, with the fields of a job that decide when it ticks. Ticks after `from`
    are listed, by default after now; an interval without an anchor counts from there. With a `job` (a name or an id),
    `H` and the anchor are those of that job. `H` of a job that does not exist yet is that of its `name`."""

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
    if body.job is not None:
        options |= await _of_job(api, body)
    try:
        found = await compute(explain_text, body.schedule, body.timezone, body.count, since, **options)
    except ScheduleError as error:
        raise UsageError(error.message, error.pointer or "/schedule") from error
    return msgspec.convert(found, Preview)


async def _of_job(api: Api, body: PreviewRequest) -> dict[str, Any]:
    """What decides about ticks and is not in the schedule: the job's name, unless it gets another, and its creation."""
    reference = body.job or ""
    found = await job_id(api, reference)
    job = await api.store.jobs.get(found, tenant=api.tenant)
    if job is None:
        raise unknown_job(reference)
    return {"hash_key": hash_key_of(api.tenant, body.name or job.name), "anchor": whole_milliseconds(job.created_at)}
