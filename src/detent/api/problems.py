"""Errors as RFC 9457 problems. `type` is stable: programs may tell problems apart by it, people follow it.

A refusal says what was read and how to put it right. A failure of our own says nothing of the inside but its trace
id, under which the whole story is in the log.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from typing import NamedTuple

import msgspec
from starlette.responses import Response

from detent.errors import (
    Conflict,
    DetentError,
    IdempotencyKeyReused,
    ManyFaults,
    NotAuthorised,
    NotFound,
    OwnershipLost,
    QuotaReached,
    RequestInProgress,
    RevisionMismatch,
    Unavailable,
    UsageError,
)
from detent.store.db import LockTimeout, OutcomeUnknown
from detent.telemetry.log import logger

log = logger("api")

RETRY_SECONDS = "1"
PAGES = "/problems"

_TRACE = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_SCHEDULE_FIELDS = frozenset(
    {
        *("schedule", "timezone", "dialect", "day_match", "dst_gap", "dst_overlap"),
        *("starts_at", "ends_at", "max_runs", "jitter_seconds"),
    }
)


class Fault(msgspec.Struct, frozen=True):
    """One of several things that are wrong, and where it is."""

    pointer: str
    detail: str


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a request was not served. `type` is a page of this server about it; `pointer` is the JSON pointer of the
    wrong part of the request, if one is. Where several parts are wrong, `errors` has each; where a change was made for
    another revision, `revision` is the one there is; where a quota is reached, `used` of `limit` are in use."""

    type: str
    title: str
    status: int
    detail: str
    pointer: str | None = None
    errors: list[Fault] | None = None
    revision: int | None = None
    limit: int | None = None
    used: int | None = None
    trace_id: str


class Refusal(Exception):  # noqa: N818 - it is what the client gets
    """A request that the protocol itself does not allow, apart from what it asks for."""

    def __init__(self, status: int, slug: str, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.kind = Kind(status, slug)
        self.detail = detail
        self.headers = dict(headers or {})


class BadCursor(UsageError):  # noqa: N818 - it says what is wrong
    def __init__(self) -> None:
        super().__init__("The cursor is not one that this list gave out: leave it out to start anew.", "/cursor")


class Kind(NamedTuple):
    status: int
    slug: str

    @property
    def title(self) -> str:
        return self.slug.replace("-", " ").capitalize()


def kind_of(error: DetentError) -> Kind:
    match error:
        case BadCursor():
            return Kind(422, "bad-cursor")
        case IdempotencyKeyReused():
            return Kind(422, "idempotency-key-reused")
        case ManyFaults():
            return Kind(422, "many-faults")
        case UsageError(pointer=pointer):
            return Kind(422, _slug_for(pointer))
        case NotFound():
            return Kind(404, "not-found")
        case NotAuthorised():
            return Kind(403, "not-authorised")
        case RevisionMismatch():
            return Kind(412, "revision-mismatch")
        case RequestInProgress():
            return Kind(409, "request-under-way")
        case Conflict():
            return Kind(409, "conflict")
        case QuotaReached():
            return Kind(409, "quota-reached")
        case OwnershipLost():
            return Kind(409, "stale")
        case OutcomeUnknown():
            return Kind(503, "outcome-unknown")
        case Unavailable() | LockTimeout():
            return Kind(503, "unavailable")
        case _:
            return Kind(500, "internal")


def _slug_for(pointer: str) -> str:
    field = pointer.split("/")[1] if pointer else ""
    if field in _SCHEDULE_FIELDS:
        return "bad-schedule"
    return {"target": "bad-target", "payload": "bad-payload"}.get(field, "invalid")


# What the inside says of these is for the log; people are told what they can do.
_OWN_FAULTS = {
    "outcome-unknown": "The database did not answer in time, so the change may have been made or not: look first, "
    "then try again.",
    "unavailable": "The database cannot serve this request at the moment: try again.",
    "internal": "Something went wrong inside the server: its log has the details under this trace id.",
}


def answer(error: Exception, headers: Mapping[str, str]) -> Response:
    """The response to a request that failed; `headers` are the request's."""
    trace_id = trace_of(headers)
    if isinstance(error, Refusal):
        return _respond(_problem(error.kind, error.detail, trace_id), error.headers)
    kind = kind_of(error) if isinstance(error, DetentError) else Kind(500, "internal")
    if kind.slug in _OWN_FAULTS:
        log.error("request failed", trace_id=trace_id, problem=kind.slug, exc_info=error)
    problem = _problem(kind, _OWN_FAULTS.get(kind.slug) or str(error), trace_id)
    return _respond(_with_details(problem, error), _headers_for(kind, error))


def _problem(kind: Kind, detail: str, trace_id: str) -> Problem:
    return Problem(type=f"{PAGES}/{kind.slug}", title=kind.title, status=kind.status, detail=detail, trace_id=trace_id)


def _with_details(problem: Problem, error: Exception) -> Problem:
    faults = [Fault(fault.pointer, fault.message) for fault in getattr(error, "faults", ())]
    return msgspec.structs.replace(
        problem,
        pointer=error.pointer if isinstance(error, UsageError) else None,
        errors=faults or None,
        revision=error.revision if isinstance(error, RevisionMismatch) else None,
        limit=error.limit if isinstance(error, QuotaReached) else None,
        used=error.used if isinstance(error, QuotaReached) else None,
    )


def _headers_for(kind: Kind, error: Exception) -> dict[str, str]:
    if kind.status == 503 or isinstance(error, RequestInProgress):
        return {"Retry-After": RETRY_SECONDS}
    if isinstance(error, RevisionMismatch) and error.revision is not None:
        return {"ETag": f'"{error.revision}"'}
    return {}


def _respond(problem: Problem, headers: Mapping[str, str]) -> Response:
    return Response(
        msgspec.json.encode(problem),
        problem.status,
        {"Cache-Control": "no-store", **headers},
        media_type="application/problem+json",
    )


def trace_of(headers: Mapping[str, str]) -> str:
    """The trace the request belongs to, or a new one."""
    found = _TRACE.fullmatch(headers.get("traceparent", ""))
    return found[1] if found else secrets.token_hex(16)
