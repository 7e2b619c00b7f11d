"""The part of the API about a job's past and its ticks, as programs call it; see `operations.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from detent.client.operation import Listing, Operation, Request, Result
from detent.client.transport import PAGE_SIZE, Answer, segment
from detent.contract.job import Job
from detent.contract.page import Page
from detent.contract.revision import Revision, WholeRevision
from detent.contract.run import CancelledRuns
from detent.contract.tick import AuditedJob, Explanation, LedgerTick, Skip

PREFIX = "/api/v1"


def skip_tick(job: str | UUID, at: datetime, reason: str | None = None) -> Request[Skip]:
    """Skip one tick that is yet to come."""
    return Request(
        "POST", f"{_job(job)}/skip", _reader(Skip), body={"at": at, **({} if reason is None else {"reason": reason})}
    )


def unskip_tick(job: str | UUID, at: datetime) -> Request[None]:
    """Let a tick that was to be skipped run after all."""
    return Request("DELETE", f"{_job(job)}/skip", _nothing, query={"at": at.isoformat()})


def list_skips(job: str | UUID) -> Request[list[Skip]]:
    """The ticks of a job that are to be skipped, and those of the last days that were."""
    return Request("GET", f"{_job(job)}/skips", _reader(list[Skip]))


def cancel_job_runs(job: str | UUID) -> Request[CancelledRuns]:
    """Cancel all runs of a job that are not over; those that are running are asked to stop."""
    return Request("POST", f"{_job(job)}/cancel", _reader(CancelledRuns))


def list_revisions(job: str | UUID) -> Request[Page[Revision]]:
    """The revisions of a job from the newest to the oldest, each with who made it and what changed, page by page."""
    return Request("GET", f"{_job(job)}/revisions", _reader(Page[Revision]), query={"limit": PAGE_SIZE})


def get_revision(job: str | UUID, revision: int) -> Request[WholeRevision]:
    """Look at a job as it was in one revision."""
    return Request("GET", f"{_job(job)}/revisions/{revision}", _reader(WholeRevision))


def roll_back_job(job: str | UUID, revision: int) -> Request[Job]:
    """Make a job what it was in an earlier revision, as a new revision."""
    return Request("POST", f"{_job(job)}/rollback", _reader(Job), body={"revision": revision})


# --- ticks ---


def list_ticks(
    job: str | UUID, start: datetime | None = None, end: datetime | None = None
) -> Request[Page[LedgerTick]]:
    """The ticks of a job with what became of each, oldest first, page by page: the last and the next 24 hours, if
    nothing is said."""
    query = {"from": start and start.isoformat(), "to": end and end.isoformat(), "limit": PAGE_SIZE}
    return Request("GET", f"{_job(job)}/ticks", _reader(Page[LedgerTick]), query=query)


def explain_tick(job: str | UUID, at: datetime | str) -> Request[Explanation]:
    """What became of one instant of a job, in sentences. A text without an offset is a time of the job's zone."""
    return Request("GET", f"{_job(job)}/explain", _reader(Explanation), query={"at": _moment(at)})


def audit(
    since: datetime | None = None,
    until: datetime | None = None,
    *,
    jobs: Sequence[str | UUID] = (),
    late_ms: int = 1000,
) -> Request[Page[AuditedJob]]:
    """The ticks that were to be expected against those on record, job by job; the last 24 hours, if nothing is
    said."""
    query = {
        "since": since and since.isoformat(),
        "until": until and until.isoformat(),
        "job": tuple(map(str, jobs)),
        "late_ms": late_ms,
    }
    return Request("GET", f"{PREFIX}/audit", _reader(Page[AuditedJob]), query=query)


class LedgerOperations:
    """The verbs of the clients that are here."""

    skip_tick = Operation(skip_tick)
    unskip_tick = Operation(unskip_tick)
    list_skips = Operation(list_skips)
    cancel_job_runs = Operation(cancel_job_runs)
    list_revisions = Listing(list_revisions)
    get_revision = Operation(get_revision)
    roll_back_job = Operation(roll_back_job)
    list_ticks = Listing(list_ticks)
    explain_tick = Operation(explain_tick)
    audit = Listing(audit)


def _moment(at: datetime | str) -> str:
    return at if isinstance(at, str) else at.isoformat()


def _reader(kind: type[Result]) -> Callable[[Answer], Result]:
    return lambda answer: msgspec.json.decode(answer.raw, type=kind)


def _nothing(answer: Answer) -> None:
    return None


def _job(job: str | UUID) -> str:
    return f"{PREFIX}/jobs/{segment(str(job))}"
