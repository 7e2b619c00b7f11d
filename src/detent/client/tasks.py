"""Verbs about tasks, and about enqueuing runs of any job. A job is named by its id or its name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from msgspec import UNSET

from detent.client.operation import Listing, Operation, Request
from detent.client.requests import PREFIX, given, reader
from detent.client.transport import PAGE_SIZE, ApiAnswer, segment
from detent.contract.page import Page
from detent.contract.task import EnqueuedRun, EnqueuedRuns, TaskSummary
from detent.domain.on_demand import NewRun

MANY_SECONDS = 0.002  # added to the timeout for each run


def enqueue(
    task: str | UUID,
    payload: Any = UNSET,
    *,
    at: datetime | None = None,
    delay_seconds: float | None = None,
    priority: int | None = None,
    queue: str | None = None,
    unique_key: str | None = None,
    unique_for_seconds: float | None = None,
    concurrency_key: str | None = None,
) -> Request[EnqueuedRun]:
    """Enqueue a run of a task, or of any other job: due now, at a time, or after a delay. What is not given is as the
    job says. If an unfinished run has the unique key, that run is returned, with `created` False."""
    fields = given(
        at=at,
        delay_seconds=delay_seconds,
        priority=priority,
        queue=queue,
        unique_key=unique_key,
        unique_for_seconds=unique_for_seconds,
        concurrency_key=concurrency_key,
    )
    body = fields if payload is UNSET else {**fields, "payload": payload}
    return Request("POST", _runs(task), _only, body=body, once=True)


def enqueue_many(task: str | UUID, runs: Sequence[NewRun | Mapping[str, Any]]) -> Request[list[EnqueuedRun]]:
    """Enqueue up to ten thousand runs of a task or of any other job, all or none. Each is a document with the
    parameters of `enqueue` as its fields; the results are in the same order."""
    patience = len(runs) * MANY_SECONDS
    return Request("POST", _runs(task), _all, body={"runs": list(runs)}, patience=patience, once=True)


def list_tasks() -> Request[Page[TaskSummary]]:
    """List the tasks in the order of their creation, with their unfinished runs."""
    return Request("GET", f"{PREFIX}/tasks", reader(Page[TaskSummary]), query={"limit": PAGE_SIZE})


def _runs(task: str | UUID) -> str:
    return f"{PREFIX}/tasks/{segment(str(task))}/runs"


def _only(answer: ApiAnswer) -> EnqueuedRun:
    (run,) = _all(answer)
    return run


def _all(answer: ApiAnswer) -> list[EnqueuedRun]:
    return msgspec.json.decode(answer.raw, type=EnqueuedRuns).items


class TaskVerbs:
    """The verbs of the clients about tasks."""

    enqueue = Operation(enqueue)
    enqueue_many = Operation(enqueue_many)
    list_tasks = Listing(list_tasks)
