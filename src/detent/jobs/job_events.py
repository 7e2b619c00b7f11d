"""Events of the audit log about jobs: what they say, and what they leave out. No I/O.

An event is kept longer than what it speaks of, and read by more people. So it never has a payload, a header or a
variable of a target, nor the part of an address that often holds a token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

import msgspec

from detent.declarative.plan import Difference, differences_between, masked
from detent.domain.audit_event import HIDDEN, Facts, NewEvent, listed
from detent.domain.documents import plain
from detent.domain.identity import RunKey, run_id
from detent.domain.job import JobSpec
from detent.domain.registration import PreparedJob
from detent.store.db import Row

_DEFAULTS: dict[str, Any] = {
    field.name: plain(field.default if field.default is not msgspec.NODEFAULT else field.default_factory())
    for field in msgspec.structs.fields(JobSpec)
    if not field.required
}


def created(jobs: Sequence[PreparedJob], tenant: int, owner: str | None) -> NewEvent:
    if len(jobs) > 1:
        return NewEvent("job.create", tenant, "jobs", after=listed([str(job.job_id) for job in jobs]) | _owned(owner))
    (job,) = jobs
    return NewEvent("job.create", tenant, "job", str(job.job_id), job.name, after=_definition(job.spec) | _owned(owner))


def updated(job: PreparedJob, row: Row, owner: str | None) -> NewEvent:
    former = msgspec.json.decode(row["definition"], type=JobSpec)
    was, becomes = plain(former), plain(job.spec)
    payload = [was.pop("payload"), becomes.pop("payload")]
    differences = differences_between({**was, "payload": None}, {**becomes, "payload": None})
    if payload[0] != payload[1]:
        differences.append(Difference("payload", *payload))
    if owner is not None and owner != row["owner"]:
        differences.append(Difference("owner", row["owner"], owner))
    before = {each.path: _shown(each.path, each.before) for each in differences if each.has_before}
    after = {each.path: _shown(each.path, each.after) for each in differences if each.has_after}
    return of_job(row, "job.update", before | {"revision": row["revision"]}, after | {"revision": row["revision"] + 1})


def adopted(row: Row, owner: str) -> NewEvent:
    return of_job(row, "job.update", {"owner": row["owner"]}, {"owner": owner})


def registered(
    new: Sequence[PreparedJob], changed: Sequence[tuple[PreparedJob, Row]], same: Sequence[Row], tenant: int
) -> NewEvent:
    """One event for a whole batch: how many jobs it created and changed, and which."""
    after = {
        "created": listed([str(job.job_id) for job in new]),
        "updated": listed([str(job.job_id) for job, _ in changed]),
        "adopted": listed([str(row["id"]) for row in same]),
    }
    return NewEvent("job.apply", tenant, "jobs", after={name: some for name, some in after.items() if some["count"]})


def paused(row: Row, reason: str | None, until: datetime | None, on_resume: str | None) -> NewEvent:
    asked = {"reason": reason, "until": written(until), "on_resume": on_resume}
    given = {name: value for name, value in asked.items() if value is not None}
    return of_job(row, "job.pause", {"status": row["status"]}, {"status": "paused", **given})


def resumed(row: Row, on_resume: str) -> NewEvent:
    return of_job(row, "job.resume", {"status": row["status"]}, {"status": "active", "on_resume": on_resume})


def deleted(row: Row) -> NewEvent:
    try:
        before = _definition(msgspec.json.decode(row["definition"], type=JobSpec))
    except msgspec.ValidationError:  # written by another version: it can be deleted all the same
        before = None
    return of_job(row, "job.delete", before, None)


def triggered(row: Row, key: RunKey, own_payload: bool) -> NewEvent:
    return of_job(row, "job.trigger", None, {"run": str(run_id(key))} | ({"payload": HIDDEN} if own_payload else {}))


def skipped(row: Row, at: datetime, reason: str | None) -> NewEvent:
    return of_job(row, "job.skip", None, {"tick": written(at)} | ({"reason": reason} if reason else {}))


def unskipped(row: Row, at: datetime) -> NewEvent:
    return of_job(row, "job.unskip", {"tick": written(at)}, None)


def cancelled(row: Row, owners: Mapping[RunKey, int | None]) -> NewEvent:
    return of_job(row, "job.cancel", None, listed([str(run_id(key)) for key in owners]))


def of_job(row: Row, action: str, before: Facts | None, after: Facts | None) -> NewEvent:
    return NewEvent(action, row["tenant"], "job", str(row["id"]), row["name"], before, after)


def _owned(owner: str | None) -> dict[str, Any]:
    return {} if owner is None else {"owner": owner}


def _definition(spec: JobSpec) -> dict[str, Any]:
    """The fields that are not as by default."""
    fields = {name: value for name, value in plain(spec).items() if name not in _DEFAULTS or value != _DEFAULTS[name]}
    fields["target"] = masked(fields["target"])[0]
    return {name: _shown(name, value) for name, value in fields.items()}


def _shown(path: str, value: Any) -> Any:
    match path:
        case "payload" | "target.headers" | "target.env":
            return None if value is None else HIDDEN
        case _ if path.startswith("target.body"):
            return HIDDEN
        case "notify_url" | "target.url":
            return value if value is None else _shown_address(value, whole=path == "target.url")
        case "target" if isinstance(value, dict) and "url" in value:
            hidden = {"body": HIDDEN} if "body" in value else {}
            return {**value, "url": _shown_address(value["url"], whole=True), **hidden}
        case _:
            return value


def _shown_address(url: str, whole: bool) -> str:
    """The URL without user and query, which may contain tokens; of a webhook, whose path is a token, only the host."""
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
    except ValueError:
        return HIDDEN
    path = parts.path if whole else f"/{HIDDEN}"
    query = f"?{HIDDEN}" if parts.query and whole else ""
    return f"{parts.scheme}://{host}{path}{query}"


def written(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat().replace("+00:00", "Z")
