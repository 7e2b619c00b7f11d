"""The part of the API about queues, incidents and many jobs at once, as programs call it; see `operations.py`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from detent.client.operation import Listing, Operation, Procedure, Request, Result, Steps
from detent.client.transport import Answer, segment
from detent.contract.incident import Incident
from detent.contract.job import BulkAction, BulkJob, BulkResult, OnResume
from detent.contract.page import Page
from detent.contract.queue import Queue

PREFIX = "/api/v1"
CHUNK = 200


def list_queues() -> Request[Page[Queue]]:
    """The queues by name, with their limits and what is in them."""
    return Request("GET", f"{PREFIX}/queues", _reader(Page[Queue]))


def limit_queue(
    queue: str, *, max_concurrent: int | None = None, rate_per_second: float | None = None
) -> Request[Queue]:
    """Set the limits of a queue in place of those it had; None is no limit."""
    body = {"max_concurrent": max_concurrent, "rate_per_second": rate_per_second}
    return Request("PUT", f"{PREFIX}/queues/{segment(queue)}", _reader(Queue), body=body)


def list_incidents(*, job: str | None = None, only_open: bool = False) -> Request[Page[Incident]]:
    """The times that jobs did not start or finish as expected, from the newest to the oldest."""
    asked = {"job": job, "open": "true" if only_open else None}
    return Request("GET", f"{PREFIX}/incidents", _reader(Page[Incident]), query=asked)


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
    only count them. Chunk by chunk to the end: the answer is about all of them. `reason`, `until` and `on_resume` are
    as for a single job."""
    asked: dict[str, Any] = {"action": action, "filter": search, "dry_run": dry_run, "limit": CHUNK}
    asked |= {"reason": reason, "until": until, "on_resume": on_resume}
    matched = changed = 0
    sample: list[BulkJob] = []
    cursor = None
    while True:
        body = {**asked, "cursor": cursor}
        chunk: BulkResult = yield Request("POST", f"{PREFIX}/bulk", _reader(BulkResult), body=body)
        matched, changed, cursor = matched + chunk.matched, changed + chunk.changed, chunk.next_cursor
        sample = sample or chunk.sample
        if cursor is None:
            return msgspec.structs.replace(chunk, matched=matched, changed=changed, sample=sample)


class ManyOperations:
    """The verbs of the clients about queues, incidents and many jobs."""

    list_incidents = Listing(list_incidents)
    list_queues = Listing(list_queues)
    limit_queue = Operation(limit_queue)
    change_jobs = Procedure(change_jobs)


def _reader(kind: type[Result]) -> Callable[[Answer], Result]:
    return lambda answer: msgspec.json.decode(answer.raw, type=kind)
