"""Verbs about runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from detent.client.operation import Listing, Operation, Procedure, Request, Steps
from detent.client.requests import PREFIX, job_path, reader, run_path
from detent.client.transport import PAGE_SIZE
from detent.contract.page import Page
from detent.contract.run import LogLine, Run
from detent.contract.tick import RunExplanation
from detent.domain.states import OPEN, RunStatus
from detent.runtime.clock import monotonic

FIRST_POLL_SECONDS = 0.1
SLOWEST_POLL_SECONDS = 1.0
POLL_GROWTH = 1.5


class RunWithResult(Run, frozen=True, kw_only=True):
    """A run with its `result` decoded: the JSON that the target returned."""

    result: Any


def list_runs(
    job: str | UUID | None = None, *, search: str | None = None, status: Sequence[RunStatus | str] = ()
) -> Request[Page[RunWithResult]]:
    """List runs of one job or of all jobs, from the newest tick to the oldest."""
    path = f"{PREFIX}/runs" if job is None else f"{job_path(job)}/runs"
    query = {"search": search, "status": tuple(str(each) for each in status), "limit": PAGE_SIZE}
    return Request("GET", path, reader(Page[RunWithResult]), query=query)


def get_run(run: str | UUID) -> Request[RunWithResult]:
    """Get one run with its attempts."""
    return Request("GET", run_path(run), reader(RunWithResult))


def explain_run(run: str | UUID) -> Request[RunExplanation]:
    """Explain in sentences what happened to one run, or what it waits for."""
    return Request("GET", f"{run_path(run)}/explain", reader(RunExplanation))


def list_run_logs(run: str | UUID, *, attempt: int | None = None) -> Request[Page[LogLine]]:
    """List the lines that a run has written so far, of one attempt or of all. Where numbers are missing, lines were
    left out."""
    query = {"attempt": attempt, "limit": PAGE_SIZE}
    return Request("GET", f"{run_path(run)}/logs", reader(Page[LogLine]), query=query)


def cancel_run(run: str | UUID) -> Request[RunWithResult]:
    """Cancel an unfinished run; a running one is asked to stop."""
    return Request("POST", f"{run_path(run)}/cancel", reader(RunWithResult))


def retry_run(run: str | UUID) -> Request[RunWithResult]:
    """Run a finished run again, now, as a new run of the same tick."""
    return Request("POST", f"{run_path(run)}/retry", reader(RunWithResult), once=True)


def wait_for_run(run: str | UUID, timeout: float | None = None) -> Steps[RunWithResult]:
    """Wait until a run has finished; raises TimeoutError after `timeout` seconds."""
    deadline = None if timeout is None else monotonic() + timeout
    pause = FIRST_POLL_SECONDS
    while True:
        found: RunWithResult = yield get_run(run)
        if found.status not in OPEN:
            return found
        left = pause if deadline is None else deadline - monotonic()
        if left <= 0:
            raise TimeoutError(f"Run {found.id} of {found.job} is still {found.status} after {timeout:g} s.")
        yield min(pause, left)
        pause = min(pause * POLL_GROWTH, SLOWEST_POLL_SECONDS)


class RunVerbs:
    """The verbs of the clients about runs."""

    list_runs = Listing(list_runs)
    get_run = Operation(get_run)
    explain_run = Operation(explain_run)
    list_run_logs = Listing(list_run_logs)
    cancel_run = Operation(cancel_run)
    retry_run = Operation(retry_run)
    wait_for_run = Procedure(wait_for_run)
