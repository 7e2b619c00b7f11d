"""Errors as RFC 9457 problems. `type` is stable: programs distinguish problems by it, people open it.

The problem of a bad request says what was read and how to correct it. The problem of an internal failure shows only a
trace id, under which the log has the details.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
from starlette.responses import Response

from detent.domain.schedule.steps import CostlySchedule
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
    TenantSuspended,
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
        *("starts_at", "ends_at", "max_runs", "jitter_seconds", "release", "tzdata_policy"),
    }
)


class FieldFault(msgspec.Struct, frozen=True):
    """One of several faults, and its place in the request."""

    pointer: str
    detail: str


class TranslatedRequest(msgspec.Struct, frozen=True):
    """What to send instead of a request in the words of another program: it can be sent as it is."""

    method: str
    path: str
    body: Any = None


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a request failed. `type` is a page of this server about it; `pointer` is the JSON pointer of the wrong part
    of the request, if there is one. Where several parts are wrong, `errors` lists them; where a change was made for
    another revision, `revision` is the current one; where a quota is reached, `used` of `limit` are in use; where the
    request is one of another scheduler, `translation` is the same one for this server."""

    type: str
    title: str
    status: int
    detail: str
    pointer: str | None = None
    errors: list[FieldFault] | None = None
    revision: int | None = None
    limit: int | None = None
    used: int | None = None
    translation: TranslatedRequest | None = None
    trace_id: str


class Refusal(Exception):  # noqa: N818 - it is what the client gets
    """A request that is refused before its content matters: by its method, headers, key or rate."""

    def __init__(
        self,
        status: int,
        slug: str,
        detail: str,
        headers: Mapping[str, str] | None = None,
        translation: TranslatedRequest | None = None,
    ) -> None:
        super().__init__(detail)
        self.kind = ProblemKind(status, slug)
        self.detail = detail
        self.headers = dict(headers or {})
        self.translation = translation


class ForeignJob(UsageError):  # noqa: N818 - it says what was read
    """The body is a job in the words of another program."""

    def __init__(self, message: str, pointer: str, translation: TranslatedRequest) -> None:
        super().__init__(message, pointer)
        self.translation = translation


class BadCursor(UsageError):  # noqa: N818 - it says what is wrong
    def __init__(self) -> None:
        super().__init__("The cursor is not from this list: leave it out to start from the beginning.", "/cursor")


class ProblemKind(NamedTuple):
    status: int
    slug: str

    @property
    def title(self) -> str:
        return self.slug.replace("-", " ").capitalize()


def kind_of(error: DetentError) -> ProblemKind:
    match error:
        case BadCursor():
            return ProblemKind(422, "bad-cursor")
        case IdempotencyKeyReused():
            return ProblemKind(422, "idempotency-key-reused")
        case CostlySchedule():
            return ProblemKind(422, "costly-schedule")
        case ManyFaults():
            return ProblemKind(422, "many-faults")
        case UsageError(pointer=pointer):
            return ProblemKind(422, _slug_for(pointer))
        case NotFound():
            return ProblemKind(404, "not-found")
        case TenantSuspended():
            return ProblemKind(403, "tenant-suspended")
        case NotAuthorised():
            return ProblemKind(403, "not-authorised")
        case RevisionMismatch():
            return ProblemKind(412, "revision-mismatch")
        case RequestInProgress():
            return ProblemKind(409, "request-under-way")
        case Conflict():
            return ProblemKind(409, "conflict")
        case QuotaReached():
            return ProblemKind(409, "quota-reached")
        case OwnershipLost():
            return ProblemKind(409, "stale")
        case OutcomeUnknown():
            return ProblemKind(503, "outcome-unknown")
        case Unavailable() | LockTimeout():
            return ProblemKind(503, "unavailable")
        case _:
            return ProblemKind(500, "internal")


def _slug_for(pointer: str) -> str:
    field = pointer.split("/")[1] if pointer else ""
    if field in _SCHEDULE_FIELDS:
        return "bad-schedule"
    return {"target": "bad-target", "payload": "bad-payload"}.get(field, "invalid")


# The log has the cause of these; the caller gets what it can do.
_OWN_FAULTS = {
    "outcome-unknown": "The database did not answer in time, so the change may or may not have been made: check, "
    "then try again.",
    "unavailable": "The database cannot serve this request at the moment: try again.",
    "internal": "An unexpected error inside the server: its log has the details under this trace id.",
}


def answer(error: Exception, headers: Mapping[str, str], trace_id: str | None = None) -> Response:
    """The response to a request that failed; `headers` are the request's, `trace_id` its trace if that is known."""
    trace_id = trace_id or trace_of(headers)
    if isinstance(error, Refusal):
        return _respond(_with_details(_problem(error.kind, error.detail, trace_id), error), error.headers)
    kind = kind_of(error) if isinstance(error, DetentError) else ProblemKind(500, "internal")
    if kind.slug in _OWN_FAULTS:
        log.error("request failed", trace_id=trace_id, problem=kind.slug, exc_info=error)
    problem = _problem(kind, _OWN_FAULTS.get(kind.slug) or str(error), trace_id)
    return _respond(_with_details(problem, error), _headers_for(kind, error))


def _problem(kind: ProblemKind, detail: str, trace_id: str) -> Problem:
    return Problem(type=f"{PAGES}/{kind.slug}", title=kind.title, status=kind.status, detail=detail, trace_id=trace_id)


def _with_details(problem: Problem, error: Exception) -> Problem:
    faults = [FieldFault(fault.pointer, fault.message) for fault in getattr(error, "faults", ())]
    return msgspec.structs.replace(
        problem,
        pointer=error.pointer if isinstance(error, UsageError) else None,
        errors=faults or None,
        revision=error.revision if isinstance(error, RevisionMismatch) else None,
        limit=error.limit if isinstance(error, QuotaReached) else None,
        used=error.used if isinstance(error, QuotaReached) else None,
        translation=error.translation if isinstance(error, Refusal | ForeignJob) else None,
    )


def _headers_for(kind: ProblemKind, error: Exception) -> dict[str, str]:
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
