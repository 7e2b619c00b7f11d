"""Routes about jobs. A path accepts the id or the name of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from detent.api.conditions import ChangeHeaders, PutHeaders, ReadHeaders, expected, not_modified, tag_of
from detent.api.context import PREFIX, Api
from detent.api.cursors import after_job, after_run, binding, read_after_job, read_after_run
from detent.api.references import job_id, unknown_job
from detent.api.routing import Reply, Routes
from detent.api.search import RunSearch, job_search, past_moment, run_search
from detent.api.serving import with_worker_warning
from detent.contract.job import IfBusy, Job, JobStatus, OnResume
from detent.contract.page import Instant, Page
from detent.contract.run import Run
from detent.domain.identity import run_id
from detent.domain.job import JobSpec, Name, TargetKind
from detent.domain.names import is_job_id
from detent.domain.refusal import shown
from detent.domain.states import RunStatus
from detent.domain.text import check_seen
from detent.errors import NotFound, UsageError
from detent.store.job_search import JobSearch
from detent.telemetry.transitions import log_requested

routes = Routes(PREFIX)

Limit = Annotated[int, Meta(ge=1, le=500)]
SearchText = Annotated[str, Meta(max_length=500)]
TimeText = Annotated[str, Meta(max_length=40)]
Reason = Annotated[str, Meta(max_length=1000)]


class JobQuery(Struct, forbid_unknown_fields=True):
    """`search` is the grammar of api/search.py; `prefix` is the beginning of the name. All filters must match. Without
    a status, deleted jobs are left out."""

    search: SearchText | None = None
    status: JobStatus | None = None
    prefix: Name | None = None
    tag: Name | None = None
    target: TargetKind | None = None
    owner: Name | None = None
    cursor: str | None = None
    limit: Limit = 50


class PutQuery(Struct, forbid_unknown_fields=True):
    """`owner` is the label of the team or file that manages this job; without it, the job keeps its owner."""

    owner: Name | None = None


class RunQuery(Struct, forbid_unknown_fields=True):
    """`search` is the grammar of api/search.py; `status` may be given more than once. `since` and `until` bound the
    tick: an instant, or a duration before now such as `1h`."""

    search: SearchText | None = None
    status: list[RunStatus] = []
    since: TimeText | None = None
    until: TimeText | None = None
    cursor: str | None = None
    limit: Limit = 50


if TYPE_CHECKING:

    class JobPatch(Struct):
        """Some fields of a job; null puts one back to its default."""

else:
    # The fields of a JobSpec, each of which may be left out or null.
    JobPatch = msgspec.defstruct(
        "JobPatch",
        [(field.name, field.type | None | UnsetType, UNSET) for field in msgspec.structs.fields(JobSpec)],
        namespace={"__doc__": "Some fields of a job; null puts one back to its default."},
        module=__name__,
        kw_only=True,
        forbid_unknown_fields=True,
    )


class PauseRequest(Struct, forbid_unknown_fields=True):
    """Why a job is paused; until when, or until it is resumed; and which ticks during the pause run then: none (`skip`,
    the default), the latest (`once`) or all."""

    reason: Reason | None = None
    until: Instant | None = None
    on_resume: OnResume | None = None


class Resume(Struct, forbid_unknown_fields=True):
    """Which ticks during the pause run, if not as the pause said."""

    on_resume: OnResume | None = None


class Trigger(Struct, forbid_unknown_fields=True):
    """The payload of this run, instead of its job's. If the job has its maximum of unfinished runs, the run waits until
    one of them has ended, or is refused."""

    payload: Any | UnsetType = UNSET
    if_busy: IfBusy = "wait"


@routes.post("/jobs", status=201, scope="write", once=True, registers=True)
async def create_job(api: Api, body: JobSpec) -> Reply[Job]:
    """Register a job."""
    (job,) = await api.jobs.registration.add([body], tenant=api.tenant, by=api.by)
    return Reply(await with_worker_warning(api, job), Location=f"{PREFIX}/jobs/{job.id}")


@routes.get("/jobs")
async def list_jobs(api: Api, query: JobQuery) -> Page[Job]:
    """List jobs in the order of their creation."""
    bound = binding(api.tenant, query)
    start = JobSearch(
        statuses=None if query.status is None else (query.status,),
        prefix=query.prefix,
        tags=() if query.tag is None else (query.tag,),
        targets=() if query.target is None else (query.target,),
        owner=query.owner,
    )
    jobs, following = await api.store.jobs.list(
        job_search(query.search or "", start),
        after=read_after_job(query.cursor, bound),
        limit=query.limit,
        tenant=api.tenant,
    )
    return Page(jobs, None if following is None else after_job(following, bound))


@routes.put("/jobs/by-name/{name}", or_else=(201,), scope="write")
async def put_job(api: Api, name: str, query: PutQuery, body: JobSpec, headers: PutHeaders) -> Reply[Job]:
    """Create or update the job of this name; nothing changes when it is the same already."""
    if body.name is not None and body.name != name:
        raise UsageError(
            f"The name is {shown(body.name)} in the body and {shown(name)} in the path: leave it out of the body.",
            "/name",
        )
    check_seen(query.owner or "", "The owner", "/owner")
    named = msgspec.structs.replace(body, name=name)
    job, change = await api.jobs.registration.upsert(
        named, tenant=api.tenant, owner=query.owner, expected=expected(headers), by=api.by
    )
    status = 201 if change == "created" else 200
    warned = await with_worker_warning(api, job)
    return Reply(warned, status, Location=f"{PREFIX}/jobs/{job.id}", Detent_Change=change)


@routes.get("/jobs/{id}", or_else=(304,))
async def get_job(api: Api, id: str, headers: ReadHeaders) -> Reply[Job]:  # noqa: A002 - part of the contract
    """Get one job."""
    if is_job_id(id):
        job = await api.store.jobs.get(UUID(id), tenant=api.tenant)
    else:
        job = await api.store.jobs.find(id, tenant=api.tenant)
        if job is None:
            job = await api.store.jobs.get(await job_id(api, id), tenant=api.tenant)
    if job is None or job.status == "deleted":
        raise unknown_job(id)
    if not_modified(headers, job.revision):
        return Reply.empty(304, ETag=tag_of(job.revision))
    return Reply(job)


@routes.patch("/jobs/{id}", scope="write")
async def patch_job(api: Api, id: str, body: JobPatch, headers: ChangeHeaders) -> Reply[Job]:  # noqa: A002 - as above
    """Change some fields of a job; null sets a field back to its default. A change never triggers a run."""
    fields = {name: value for name, value in msgspec.structs.asdict(body).items() if value is not UNSET}
    number = await job_id(api, id)
    job, change = await api.jobs.registration.patch(
        number, fields, tenant=api.tenant, expected=expected(headers), by=api.by
    )
    return Reply(await with_worker_warning(api, job), Detent_Change=change)


@routes.delete("/jobs/{id}", scope="write")
async def delete_job(api: Api, id: str, headers: ChangeHeaders) -> None:  # noqa: A002 - as above
    """Delete a job: it has no more ticks and its name is free; running runs continue and history stays."""
    await api.jobs.lifecycle.delete(await job_id(api, id), tenant=api.tenant, expected=expected(headers), by=api.by)


@routes.post("/jobs/{id}/pause", scope="operate")
async def pause_job(api: Api, id: str, body: PauseRequest | None) -> Job:  # noqa: A002 - as above
    """Stop a job from ticking until it is resumed, or until a time."""
    asked = body or PauseRequest()
    return await api.jobs.lifecycle.pause(
        await job_id(api, id),
        asked.reason,
        until=asked.until,
        on_resume=asked.on_resume,
        tenant=api.tenant,
        by=api.by,
    )


@routes.post("/jobs/{id}/resume", scope="operate")
async def resume_job(api: Api, id: str, body: Resume | None) -> Job:  # noqa: A002 - as above
    """Resume a paused job with its next tick."""
    on_resume = body.on_resume if body else None
    return await api.jobs.lifecycle.resume(await job_id(api, id), on_resume=on_resume, tenant=api.tenant, by=api.by)


@routes.post("/jobs/{id}/trigger", status=202, scope="operate", once=True)
async def trigger_job(api: Api, id: str, body: Trigger | None) -> Reply[Run]:  # noqa: A002 - as above
    """Run a job now, in addition to its schedule. If it has its maximum of unfinished runs, the run waits its turn."""
    asked = body or Trigger()
    key = await api.jobs.lifecycle.trigger(
        await job_id(api, id),
        asked.payload,
        tenant=api.tenant,
        may_refer=api.caller.may_everywhere("write"),
        if_busy=asked.if_busy,
    )
    run = await api.store.runs.get(key, tenant=api.tenant)
    if run is None:
        raise NotFound(f"There is no run {run_id(key)}.")
    log_requested("run triggered", [run.id], api.by)
    return Reply(run, Location=f"{PREFIX}/runs/{run.id}")


@routes.get("/jobs/{id}/runs", "/jobs/{id}/executions")
async def list_runs_of_job(api: Api, id: str, query: RunQuery) -> Page[Run]:  # noqa: A002 - as above
    """List the runs of one job from the newest tick to the oldest."""
    return await page_of_runs(api, query, await job_id(api, id))


async def page_of_runs(api: Api, query: RunQuery, job: UUID | None = None) -> Page[Run]:
    since, until = past_moment("since", query.since), past_moment("until", query.until)
    search = run_search(query.search or "", RunSearch(None, frozenset(query.status) or None, since, until))
    if search.job is not None:
        if job is not None:
            raise UsageError(
                "The search names a job, and the path does already: leave it out of the search.", "/search"
            )
        job = await job_id(api, search.job)
    if search.statuses is not None and not search.statuses:
        return Page([], None)
    bound = binding(api.tenant, query, str(job))
    runs, following = await api.store.runs.list(
        job=job,
        status=search.statuses or (),
        since=search.since,
        until=search.until,
        after=read_after_run(query.cursor, bound),
        limit=query.limit,
        tenant=api.tenant,
    )
    return Page(runs, None if following is None else after_run(following, bound))
