"""The API as programs call it, described once: method, path, what is sent, and the type of the answer.

`Operations` is the list. A client is this list joined with a way to send: `Client` answers, `AsyncClient` is awaited,
and each verb has the same name, parameters and types in both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
from msgspec import UNSET

from detent.client.backfills import LateOperations
from detent.client.bulk import ManyOperations
from detent.client.operation import Listing, Operation, Procedure, Request, Result, Steps
from detent.client.ticks import LedgerOperations
from detent.client.transport import PAGE_SIZE, Answer, segment
from detent.contract import run as run_contract
from detent.contract.cluster import Cluster, ClusterNode, FormerNode, TickState
from detent.contract.job import BatchResult, Job, JobChange, JobStatus, OnResume, Preview
from detent.contract.page import Page
from detent.contract.pull import ClaimedRun, ClaimedRuns, Lease, SettledRun
from detent.domain.job import JobSpec, TargetKind
from detent.domain.states import OPEN, RunStatus
from detent.runtime.clock import monotonic

PREFIX = "/api/v1"
BATCH_SECONDS = 0.005  # of patience for each job of a batch
FIRST_LOOK_SECONDS = 0.1
SLOWEST_LOOK_SECONDS = 1.0
LOOKS_GROW = 1.5


class Run(run_contract.Run, frozen=True, kw_only=True):
    """What became of a tick. `result` is what the target answered."""

    result: Any


class Upserted(NamedTuple):
    """The job as it is now, and what had to be done for that."""

    job: Job
    change: JobChange


class Version(msgspec.Struct, frozen=True):
    version: str
    api: str
    tzdata: str


# --- jobs; a job is named by its id or its name ---


def create_job(job: JobSpec | Mapping[str, Any]) -> Request[Job]:
    """Register a job."""
    return Request("POST", f"{PREFIX}/jobs", _reader(Job), body=job, once=True)


def create_jobs(
    jobs: Sequence[JobSpec | Mapping[str, Any]], *, upsert: bool = False, owner: str | None = None
) -> Request[BatchResult]:
    """Register up to ten thousand jobs, all or none. `upsert`: those whose names are there already become this."""
    query = {"mode": "upsert" if upsert else "create", "owner": owner}
    body = {"jobs": list(jobs)}
    patience = len(jobs) * BATCH_SECONDS
    return Request(
        "POST", f"{PREFIX}/jobs/batch", _reader(BatchResult), query=query, body=body, patience=patience, once=True
    )


def upsert_job(job: JobSpec | Mapping[str, Any]) -> Request[Upserted]:
    """Make the job of this name be this; nothing happens when it is this already."""
    name = job.name if isinstance(job, JobSpec) else job.get("name")
    path = f"{PREFIX}/jobs/by-name/{segment(name or '')}"

    def read(answer: Answer) -> Upserted:
        change = msgspec.convert(answer.change, JobChange)
        return Upserted(msgspec.json.decode(answer.raw, type=Job), change)

    return Request("PUT", path, read, body=job)


def get_job(job: str | UUID) -> Request[Job]:
    """Look at one job."""
    return Request("GET", _job(job), _reader(Job))


def edit_job(job: str | UUID, changes: Mapping[str, Any], *, revision: int | None = None) -> Request[Job]:
    """Change some fields of a job, which never runs it; None puts a field back to its default. With a `revision`, only
    if the job still has that one; otherwise Conflict."""
    headers = {} if revision is None else {"If-Match": f'"{revision}"'}
    return Request("PATCH", _job(job), _reader(Job), body=changes, headers=headers)


def list_jobs(
    search: str | None = None,
    *,
    status: JobStatus | None = None,
    prefix: str | None = None,
    tag: str | None = None,
    target: TargetKind | None = None,
    owner: str | None = None,
) -> Request[Page[Job]]:
    """All jobs in the order of their creation, page by page. `search` is such as "tag:billing next:<1h"; `prefix` is
    the beginning of the name."""
    query = {"search": search, "status": status, "prefix": prefix, "tag": tag, "target": target, "owner": owner}
    return Request("GET", f"{PREFIX}/jobs", _reader(Page[Job]), query={**query, "limit": PAGE_SIZE})


def pause_job(
    job: str | UUID,
    reason: str | None = None,
    *,
    until: datetime | None = None,
    on_resume: OnResume | None = None,
) -> Request[Job]:
    """Stop a job from ticking until it is resumed, or until a time. `on_resume`: what then becomes of the ticks of the
    pause; they are skipped, if nothing is said."""
    body = _given(reason=reason, until=until, on_resume=on_resume)
    return Request("POST", f"{_job(job)}/pause", _reader(Job), body=body)


def resume_job(job: str | UUID, on_resume: OnResume | None = None) -> Request[Job]:
    """Let a paused job go on with its next tick to come."""
    return Request("POST", f"{_job(job)}/resume", _reader(Job), body=_given(on_resume=on_resume))


def trigger_job(job: str | UUID, payload: Any = UNSET) -> Request[Run]:
    """Run a job now, beside its schedule, with a payload of its own if one is given. Where it may not run at once, the
    run that comes back is `skipped`."""
    body = None if payload is UNSET else {"payload": payload}
    return Request("POST", f"{_job(job)}/trigger", _reader(Run), body=body, once=True)


def retry_job(job: str | UUID) -> Request[Run]:
    """Run a job's latest finished run once more, at once."""
    return Request("POST", f"{_job(job)}/retry", _reader(Run), once=True)


def delete_job(job: str | UUID) -> Request[None]:
    """Delete a job: no more ticks, its name is free, runs in flight go on and history stays."""
    return Request("DELETE", _job(job), _nothing)


# --- runs ---


def list_runs(
    job: str | UUID | None = None, *, search: str | None = None, status: Sequence[RunStatus | str] = ()
) -> Request[Page[Run]]:
    """Runs of one job or of all, from the newest tick to the oldest, page by page."""
    path = f"{PREFIX}/runs" if job is None else f"{_job(job)}/runs"
    query = {"search": search, "status": tuple(str(each) for each in status), "limit": PAGE_SIZE}
    return Request("GET", path, _reader(Page[Run]), query=query)


def get_run(run: str | UUID) -> Request[Run]:
    """Look at one run with its attempts."""
    return Request("GET", _run(run), _reader(Run))


def cancel_run(run: str | UUID) -> Request[Run]:
    """Cancel a run that is not over; one that is running is asked to stop."""
    return Request("POST", f"{_run(run)}/cancel", _reader(Run))


def retry_run(run: str | UUID) -> Request[Run]:
    """Run a finished run once more, at once, as a new run of the same tick."""
    return Request("POST", f"{_run(run)}/retry", _reader(Run), once=True)


def list_dead_letters(job: str | UUID | None = None, *, group: str | None = None) -> Request[Page[Run]]:
    """Dead runs from the newest tick to the oldest, page by page."""
    query = {"job": None if job is None else str(job), "group": group, "limit": PAGE_SIZE}
    return Request("GET", f"{PREFIX}/dead-letters", _reader(Page[Run]), query=query)


def wait_for_run(run: str | UUID, timeout: float | None = None) -> Steps[Run]:
    """Wait for the end of a run; TimeoutError when it has not come within `timeout` seconds."""
    deadline = None if timeout is None else monotonic() + timeout
    pause = FIRST_LOOK_SECONDS
    while True:
        found: Run = yield get_run(run)
        if found.status not in OPEN:
            return found
        left = pause if deadline is None else deadline - monotonic()
        if left <= 0:
            raise TimeoutError(f"Run {found.id} of {found.job} is still {found.status} after {timeout:g} s.")
        yield min(pause, left)
        pause = min(pause * LOOKS_GROW, SLOWEST_LOOK_SECONDS)


# --- work; for workers that pull ---


def claim_runs(
    queue: str,
    worker: str,
    *,
    limit: int = 1,
    lease_seconds: float = 60,
    wait_seconds: float = 0,
    targets: Sequence[TargetKind] = ("python",),
    functions: Sequence[str] | None = None,
) -> Request[list[ClaimedRun]]:
    """Claim runs of a queue, waiting for up to `wait_seconds` if none is ready. Each is held for `lease_seconds`."""
    body = {
        "worker": worker,
        "limit": limit,
        "lease_seconds": lease_seconds,
        "wait_seconds": wait_seconds,
        "targets": list(targets),
        "functions": None if functions is None else list(functions),
    }
    path = f"{PREFIX}/queues/{segment(queue)}/claim"
    return Request("POST", path, lambda answer: _reader(ClaimedRuns)(answer).runs, body=body, patience=wait_seconds)


def heartbeat_run(run: ClaimedRun, lease_seconds: float = 60) -> Request[Lease]:
    """Hold a claimed run for longer, and hear whether it is asked to stop. OwnershipLost: it is somebody else's."""
    return _about(run, "heartbeat", Lease, lease_seconds=lease_seconds)


def complete_run(run: ClaimedRun, result: object = None) -> Request[SettledRun]:
    """Report that a claimed run succeeded. OwnershipLost: too late, the report is refused."""
    return _about(run, "complete", SettledRun, result=result)


def fail_run(
    run: ClaimedRun, error: str, *, retryable: bool = True, retry_after: float | None = None
) -> Request[SettledRun]:
    """Report that an attempt failed; the job says whether there is another. OwnershipLost: too late."""
    return _about(run, "fail", SettledRun, error=error, retryable=retryable, retry_after=retry_after)


# --- the rest ---


def preview_schedule(schedule: str | Mapping[str, Any], timezone: str = "UTC", **options: Any) -> Request[Preview]:
    """A schedule in words and in its next ticks, without making a job. `options` are such as count, from_, dst_gap."""
    body = {"schedule": schedule, "timezone": timezone, **{key.rstrip("_"): value for key, value in options.items()}}
    return Request("POST", f"{PREFIX}/schedules/preview", _reader(Preview), body=body)


def get_cluster() -> Request[Cluster]:
    """Look at the nodes, at who leads each partition, and at what is wrong."""
    return Request("GET", f"{PREFIX}/cluster", _reader(Cluster))


def pause_all(reason: str) -> Request[TickState]:
    """Let no tick of any job fire until they are resumed; runs that have been fired go on."""
    return Request("POST", f"{PREFIX}/cluster/pause", _reader(TickState), body={"reason": reason})


def resume_all() -> Request[TickState]:
    """Let ticks fire again. Those that fell into the pause are late or missed, by each job's own rule."""
    return Request("POST", f"{PREFIX}/cluster/resume", _reader(TickState))


def drain_node(node: str) -> Request[ClusterNode]:
    """Ask a node to hand over what it leads, to finish what it runs, and to take nothing new."""
    return Request("POST", f"{PREFIX}/cluster/nodes/{segment(node)}/drain", _reader(ClusterNode))


def dismiss_node(node: str) -> Request[FormerNode]:
    """Take note that a node was lost, so that it is no longer among the problems."""
    return Request("POST", f"{PREFIX}/cluster/nodes/{segment(node)}/dismiss", _reader(FormerNode))


def resume_node(node: str) -> Request[ClusterNode]:
    """Let a node that is draining take part again."""
    return Request("POST", f"{PREFIX}/cluster/nodes/{segment(node)}/resume", _reader(ClusterNode))


def version() -> Request[Version]:
    """Which detent answers."""
    return Request("GET", "/version", _reader(Version))


class Operations(LateOperations, LedgerOperations, ManyOperations):
    """Every verb of the clients."""

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
    delete_job = Operation(delete_job)
    list_runs = Listing(list_runs)
    get_run = Operation(get_run)
    cancel_run = Operation(cancel_run)
    retry_run = Operation(retry_run)
    list_dead_letters = Listing(list_dead_letters)
    wait_for_run = Procedure(wait_for_run)
    claim_runs = Operation(claim_runs)
    heartbeat_run = Operation(heartbeat_run)
    complete_run = Operation(complete_run)
    fail_run = Operation(fail_run)
    preview_schedule = Operation(preview_schedule)
    get_cluster = Operation(get_cluster)
    pause_all = Operation(pause_all)
    resume_all = Operation(resume_all)
    drain_node = Operation(drain_node)
    dismiss_node = Operation(dismiss_node)
    resume_node = Operation(resume_node)
    version = Operation(version)


def _about(run: ClaimedRun, verb: str, kind: type[Result], **fields: object) -> Request[Result]:
    return Request("POST", f"{_run(run.run_id)}/{verb}", _reader(kind), body={"token": run.token, **fields})


def _reader(kind: type[Result]) -> Callable[[Answer], Result]:
    return lambda answer: msgspec.json.decode(answer.raw, type=kind)


def _given(**fields: object) -> dict[str, object] | None:
    return {name: value for name, value in fields.items() if value is not None} or None


def _nothing(answer: Answer) -> None:
    return None


def _job(job: str | UUID) -> str:
    return f"{PREFIX}/jobs/{segment(str(job))}"


def _run(run: str | UUID) -> str:
    return f"{PREFIX}/runs/{segment(str(run))}"
