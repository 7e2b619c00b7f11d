"""Verbs about dead runs: those whose last attempt failed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from detent.client.operation import Listing, Operation, Request
from detent.client.requests import PREFIX, given, reader
from detent.client.runs import RunWithResult
from detent.client.transport import PAGE_SIZE
from detent.contract.page import Page
from detent.contract.run import DeadGroups, Discarded, Redriven
from detent.domain.sequences import listed


def list_dead_letters(job: str | UUID | None = None, *, group: str | None = None) -> Request[Page[RunWithResult]]:
    """List dead runs from the newest tick to the oldest."""
    query = {"job": None if job is None else str(job), "group": group, "limit": PAGE_SIZE}
    return Request("GET", f"{PREFIX}/dead-letters", reader(Page[RunWithResult]), query=query)


def list_dead_groups(job: str | UUID | None = None) -> Request[DeadGroups]:
    """Count dead runs grouped by their error, the largest groups first."""
    query = {"job": None if job is None else str(job)}
    return Request("GET", f"{PREFIX}/dead-letters/groups", reader(DeadGroups), query=query)


def redrive_dead_letters(
    runs: Sequence[str | UUID] | None = None,
    *,
    job: str | UUID | None = None,
    group: str | None = None,
    before: datetime | None = None,
    limit: int = 1000,
) -> Request[Redriven]:
    """Retry dead runs under their own ids, with the full number of attempts. Without `runs`, retry all dead runs, or
    those of one job, of one group or that died before a time; at most `limit` per call."""
    body = _selection(runs, job, group, before, limit)
    return Request("POST", f"{PREFIX}/dead-letters/redrive", reader(Redriven), body=body, once=True)


def discard_dead_letters(
    runs: Sequence[str | UUID] | None = None,
    *,
    job: str | UUID | None = None,
    group: str | None = None,
    before: datetime | None = None,
    limit: int = 1000,
) -> Request[Discarded]:
    """Discard dead runs, selected as for a redrive: they stay in history and are no longer listed as dead letters."""
    body = _selection(runs, job, group, before, limit)
    return Request("POST", f"{PREFIX}/dead-letters/discard", reader(Discarded), body=body, once=True)


def _selection(
    runs: Sequence[str | UUID] | None,
    job: str | UUID | None,
    group: str | None,
    before: datetime | None,
    limit: int,
) -> dict[str, object]:
    chosen: dict[str, object] = {"all": True} if runs is None else {"runs": [str(run) for run in listed("runs", runs)]}
    return {**chosen, **given(job=None if job is None else str(job), group=group, before=before), "limit": limit}


class DeadLetterVerbs:
    """The verbs of the clients about dead runs."""

    list_dead_letters = Listing(list_dead_letters)
    list_dead_groups = Operation(list_dead_groups)
    redrive_dead_letters = Operation(redrive_dead_letters)
    discard_dead_letters = Operation(discard_dead_letters)
