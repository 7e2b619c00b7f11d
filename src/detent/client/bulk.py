"""Verbs that change all jobs that a search finds."""

from __future__ import annotations

from datetime import datetime

import msgspec

from detent.client.operation import Operation, Procedure, Request, Steps
from detent.client.requests import PREFIX, reader
from detent.contract.job import BulkAction, BulkJob, BulkResult, OnResume

CHUNK = 200


def change_jobs_chunk(
    action: BulkAction,
    search: str,
    *,
    dry_run: bool = False,
    reason: str | None = None,
    until: datetime | None = None,
    on_resume: OnResume | None = None,
    cursor: str | None = None,
    limit: int | None = None,
) -> Request[BulkResult]:
    """Change one chunk of the jobs that a search finds, or with `dry_run` count it. Continue with its `next_cursor`
    until that is None."""
    body = {
        "action": action,
        "filter": search,
        "dry_run": dry_run,
        "reason": reason,
        "until": until,
        "on_resume": on_resume,
        "cursor": cursor,
        "limit": CHUNK if limit is None else limit,
    }
    return Request("POST", f"{PREFIX}/bulk", reader(BulkResult), body=body)


def change_jobs(
    action: BulkAction,
    search: str,
    *,
    dry_run: bool = False,
    reason: str | None = None,
    until: datetime | None = None,
    on_resume: OnResume | None = None,
) -> Steps[BulkResult]:
    """Pause, resume or delete all jobs that a search finds, retry their dead runs, or cancel their runs; with `dry_run`
    only count them. Works chunk by chunk and returns the sum. `reason`, `until` and `on_resume` are as for a single
    job."""
    matched = changed = 0
    sample: list[BulkJob] = []
    cursor = None
    while True:
        chunk: BulkResult = yield change_jobs_chunk(
            action, search, dry_run=dry_run, reason=reason, until=until, on_resume=on_resume, cursor=cursor
        )
        matched, changed, cursor = matched + chunk.matched, changed + chunk.changed, chunk.next_cursor
        sample = sample or chunk.sample
        if cursor is None:
            return msgspec.structs.replace(chunk, matched=matched, changed=changed, sample=sample)


class BulkVerbs:
    """The verbs of the clients about many jobs."""

    change_jobs_chunk = Operation(change_jobs_chunk)
    change_jobs = Procedure(change_jobs)
