"""Verbs for workers that claim runs over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from detent.client.operation import Operation, Request, Result
from detent.client.requests import PREFIX, given, no_content, reader, run_path
from detent.client.transport import segment
from detent.contract.pull import ClaimedRun, ClaimedRuns, Lease, PulledKind, SettledRun
from detent.domain.run_output import COMMAND
from detent.domain.sequences import listed


def claim_runs(
    queue: str,
    worker: str,
    *,
    limit: int = 1,
    lease_seconds: float = 60,
    wait_seconds: float = 0,
    targets: Sequence[PulledKind] = ("python",),
    functions: Sequence[str] | None = None,
    runs: Sequence[UUID | str] | None = None,
) -> Request[list[ClaimedRun]]:
    """Claim runs of a queue; if none is ready, wait up to `wait_seconds` for one. Each is leased for
    `lease_seconds`. `runs`: ids of runs that a broker has offered; those that still wait are claimed, at once."""
    body = {
        "worker": worker,
        "limit": limit,
        "lease_seconds": lease_seconds,
        "wait_seconds": wait_seconds,
        "targets": listed("targets", targets),
        "functions": None if functions is None else listed("functions", functions),
        **({} if runs is None else {"runs": [str(each) for each in listed("runs", runs)]}),
    }
    path = f"{PREFIX}/queues/{segment(queue)}/claim"
    return Request("POST", path, lambda answer: reader(ClaimedRuns)(answer).runs, body=body, patience=wait_seconds)


def heartbeat_run(
    run: ClaimedRun, lease_seconds: float = 60, *, progress: float | None = None, message: str = ""
) -> Request[Lease]:
    """Extend the lease of a claimed run, and learn whether it is asked to stop. `progress`, from 0 to 1, and `message`
    say how far it is. Raises OwnershipLost when another worker has the run."""
    report = {} if progress is None else {"progress": {"fraction": progress, "message": message}}
    return _report(run, "heartbeat", Lease, lease_seconds=lease_seconds, **report)


def log_run(run: ClaimedRun, *messages: str, level: str = "info", logger: str = COMMAND) -> Request[None]:
    """Add lines to a claimed run, which `detent run logs` shows. Raises OwnershipLost when another worker has the
    run."""
    lines = [{"message": message, "level": level, "logger": logger} for message in messages]
    return Request("POST", f"{run_path(run.run_id)}/logs", no_content, body={"token": run.token, "lines": lines})


def complete_run(run: ClaimedRun, result: object = None) -> Request[SettledRun]:
    """Report that a claimed run succeeded. Raises OwnershipLost when the report is too late."""
    return _report(run, "complete", SettledRun, result=result)


def fail_run(
    run: ClaimedRun,
    error: str,
    *,
    retryable: bool = True,
    retry_after: float | None = None,
    traceback: str | None = None,
) -> Request[SettledRun]:
    """Report that an attempt failed; the job's retry policy decides about another. Raises OwnershipLost when the report
    is too late."""
    return _report(
        run, "fail", SettledRun, error=error, retryable=retryable, retry_after=retry_after, **given(traceback=traceback)
    )


def _report(run: ClaimedRun, verb: str, kind: type[Result], **fields: object) -> Request[Result]:
    return Request("POST", f"{run_path(run.run_id)}/{verb}", reader(kind), body={"token": run.token, **fields})


class PullVerbs:
    """The verbs of the clients for workers."""

    claim_runs = Operation(claim_runs)
    heartbeat_run = Operation(heartbeat_run)
    log_run = Operation(log_run)
    complete_run = Operation(complete_run)
    fail_run = Operation(fail_run)
