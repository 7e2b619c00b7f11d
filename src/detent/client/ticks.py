"""Verbs about the ticks of a schedule: past, planned and skipped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from detent.client.operation import Listing, Operation, Request
from detent.client.requests import PREFIX, given, job_path, no_content, reader
from detent.client.transport import PAGE_SIZE
from detent.contract.job import Preview
from detent.contract.page import Page
from detent.contract.tick import AuditedJob, Explanation, LedgerTick, Skip
from detent.domain.sequences import listed


def preview_schedule(
    schedule: str | Mapping[str, Any] | None, timezone: str = "UTC", **options: Any
) -> Request[Preview]:
    """Describe a schedule in words and list its next ticks, without creating a job. `options` are further fields of
    the request, such as count, from_ and dst_gap."""
    body = {"schedule": schedule, "timezone": timezone, **{key.rstrip("_"): value for key, value in options.items()}}
    return Request("POST", f"{PREFIX}/schedules/preview", reader(Preview), body=body)


def skip_tick(job: str | UUID, at: datetime, reason: str | None = None) -> Request[Skip]:
    """Skip one future tick."""
    return Request("POST", f"{job_path(job)}/skip", reader(Skip), body=given(at=at, reason=reason))


def unskip_tick(job: str | UUID, at: datetime) -> Request[None]:
    """Withdraw the skip of a tick, so that it runs."""
    return Request("DELETE", f"{job_path(job)}/skip", no_content, query={"at": at.isoformat()})


def list_skips(job: str | UUID) -> Request[list[Skip]]:
    """List the planned skips of a job, and the recent ones."""
    return Request("GET", f"{job_path(job)}/skips", reader(list[Skip]))


def list_ticks(
    job: str | UUID, start: datetime | None = None, end: datetime | None = None
) -> Request[Page[LedgerTick]]:
    """List the ticks of a job with their status, oldest first. Default: the last and the next 24 hours."""
    query = {"from": start and start.isoformat(), "to": end and end.isoformat(), "limit": PAGE_SIZE}
    return Request("GET", f"{job_path(job)}/ticks", reader(Page[LedgerTick]), query=query)


def explain_tick(job: str | UUID, at: datetime | str) -> Request[Explanation]:
    """Explain in sentences what happened to a job at one instant. `at` as text without an offset is a time in the
    job's zone; "last" and "next" are the ticks before and after now."""
    moment = at if isinstance(at, str) else at.isoformat()
    return Request("GET", f"{job_path(job)}/explain", reader(Explanation), query={"at": moment})


def audit(
    since: datetime | None = None,
    until: datetime | None = None,
    *,
    jobs: Sequence[str | UUID] = (),
    late_ms: int = 1000,
) -> Request[Page[AuditedJob]]:
    """Compare the expected ticks with the recorded ones, job by job. Default: the last 24 hours."""
    query = {
        "since": since and since.isoformat(),
        "until": until and until.isoformat(),
        "job": tuple(map(str, listed("jobs", jobs))),
        "late_ms": late_ms,
    }
    return Request("GET", f"{PREFIX}/audit", reader(Page[AuditedJob]), query=query)


class TickVerbs:
    """The verbs of the clients about ticks."""

    preview_schedule = Operation(preview_schedule)
    skip_tick = Operation(skip_tick)
    unskip_tick = Operation(unskip_tick)
    list_skips = Operation(list_skips)
    list_ticks = Listing(list_ticks)
    explain_tick = Operation(explain_tick)
    audit = Listing(audit)
