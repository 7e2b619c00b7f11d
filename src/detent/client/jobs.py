"""Verbs about jobs. A job is named by its id or its name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
from msgspec import UNSET

from detent.client.operation import Listing, Operation, Request
from detent.client.requests import PREFIX, given, job_path, no_content, reader
from detent.client.runs import RunWithResult
from detent.client.transport import PAGE_SIZE, ApiAnswer, segment
from detent.contract.job import BatchResult, IfBusy, Job, JobChange, JobStatus, OnResume
from detent.contract.page import Page
from detent.contract.run import CancelledRuns
from detent.domain.job import JobSpec, TargetKind

BATCH_SECONDS = 0.005  # added to the timeout for each job of a batch


class Upserted(NamedTuple):
    """The job as it is now, and what the upsert did."""

    job: Job
    change: JobChange


def create_job(job: JobSpec | Mapping[str, Any]) -> Request[Job]:
    """Register a job."""
    return Request("POST", f"{PREFIX}/jobs", reader(Job), body=job, once=True)


def create_jobs(
    jobs: Sequence[JobSpec | Mapping[str, Any]], *, upsert: bool = False, owner: str | None = None
) -> Request[BatchResult]:
    """Register up to ten thousand jobs, all or none. With `upsert`, jobs whose names exist are changed."""
    return Request(
        "POST",
        f"{PREFIX}/jobs/batch",
        reader(BatchResult),
        query={"mode": "upsert" if upsert else "create", "owner": owner},
        body={"jobs": list(jobs)},
        patience=len(jobs) * BATCH_SECONDS,
        once=True,
    )


def upsert_job(job: JobSpec | Mapping[str, Any]) -> Request[Upserted]:
    """Create the job of this name, or change it to this; an identical job is not changed."""
    name = job.name if isinstance(job, JobSpec) else job.get("name")
    path = f"{PREFIX}/jobs/by-name/{segment(name or '')}"

    def read(answer: ApiAnswer) -> Upserted:
        change = msgspec.convert(answer.change, JobChange)
        return Upserted(msgspec.json.decode(answer.raw, type=Job), change)

    return Request("PUT", path, read, body=job)


def get_job(job: str | UUID) -> Request[Job]:
    """Get one job."""
    return Request("GET", job_path(job), reader(Job))


def edit_job(job: str | UUID, changes: Mapping[str, Any], *, revision: int | None = None) -> Request[Job]:
    """Change some fields of a job; None resets a field to its default. This never starts a run. With `revision`, raises
    Conflict unless the job is at that revision."""
    headers = {} if revision is None else {"If-Match": f'"{revision}"'}
    return Request("PATCH", job_path(job), reader(Job), body=changes, headers=headers)


def list_jobs(
    search: str | None = None,
    *,
    status: JobStatus | None = None,
    prefix: str | None = None,
    tag: str | None = None,
    target: TargetKind | None = None,
    owner: str | None = None,
) -> Request[Page[Job]]:
    """List jobs in the order of their creation. `search` is such as "tag:billing next:<1h"; `prefix` is the beginning
    of the name."""
    query = {"search": search, "status": status, "prefix": prefix, "tag": tag, "target": target, "owner": owner}
    return Request("GET", f"{PREFIX}/jobs", reader(Page[Job]), query={**query, "limit": PAGE_SIZE})


def pause_job(
    job: str | UUID,
    reason: str | None = None,
    *,
    until: datetime | None = None,
    on_resume: OnResume | None = None,
) -> Request[Job]:
    """Stop a job from ticking until it is resumed, or until a time. `on_resume` decides which ticks of the pause run
    afterwards: none (`skip`, the default), the latest (`once`) or `all`."""
    body = given(reason=reason, until=until, on_resume=on_resume) or None
    return Request("POST", f"{job_path(job)}/pause", reader(Job), body=body)


def resume_job(job: str | UUID, on_resume: OnResume | None = None) -> Request[Job]:
    """Resume a paused job from its next tick."""
    return Request("POST", f"{job_path(job)}/resume", reader(Job), body=given(on_resume=on_resume) or None)


def trigger_job(job: str | UUID, payload: Any = UNSET, *, if_busy: IfBusy = "wait") -> Request[RunWithResult]:
    """Run a job now, in addition to its schedule, with its own payload if one is given. If the job has its maximum of
    unfinished runs, the run waits until one of them has ended; with `if_busy="refuse"`, Conflict is raised."""
    body = {} if payload is UNSET else {"payload": payload}
    if if_busy != "wait":
        body["if_busy"] = if_busy
    return Request("POST", f"{job_path(job)}/trigger", reader(RunWithResult), body=body or None, once=True)


def retry_job(job: str | UUID) -> Request[RunWithResult]:
    """Run a job's latest finished run again, now, as a new run of the same tick."""
    return Request("POST", f"{job_path(job)}/retry", reader(RunWithResult), once=True)


def cancel_job_runs(job: str | UUID) -> Request[CancelledRuns]:
    """Cancel all unfinished runs of a job; running ones are asked to stop."""
    return Request("POST", f"{job_path(job)}/cancel", reader(CancelledRuns))


def delete_job(job: str | UUID) -> Request[None]:
    """Delete a job: no more ticks, its name is free, unfinished runs continue and history stays."""
    return Request("DELETE", job_path(job), no_content)


class JobVerbs:
    """The verbs of the clients about jobs."""

    create_job = Operation(create_job)
    create_jobs = Operation(create_jobs)
    upsert_job = Operation(upsert_job)
    get_job = Operation(get_job)
    edit_job = Operation(edit_job)
    list_jobs = Listing(list_jobs)
    pause_job = Operation(pause_job)
    resume_job = Operation(resume_job)
    trigger_job = Operation(trigger_job)
    retry_job = Operation(retry_job)
    cancel_job_runs = Operation(cancel_job_runs)
    delete_job = Operation(delete_job)
