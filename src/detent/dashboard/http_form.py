"""The body, the statuses and the limit of HTTP targets in the form of a job."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UnsetType

from detent.dashboard.changes import Form, text_of
from detent.domain.http_body import body_text, read_body
from detent.domain.job import HttpTarget, Target
from detent.errors import UsageError

EMPTY_HTTP = {"body": "", "statuses": "", "host_concurrency": ""}


def http_from(form: Form) -> dict[str, Any]:
    """The members of the target that are given."""
    parts: dict[str, Any] = {}
    if body := text_of(form, "body"):
        parts["body"] = read_body(body)
    if statuses := text_of(form, "statuses"):
        parts["statuses"] = _statuses(statuses)
    if limit := text_of(form, "host_concurrency"):
        parts["host_concurrency"] = int(limit) if limit.isascii() and limit.isdigit() and len(limit) < 10 else limit
    return parts


def _statuses(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        example = '{"success": ["2xx", 304], "retry": [409]}'
        raise UsageError(f"Statuses are not JSON ({error}): for example {example}.", "/target/statuses") from error


def http_values(target: Target) -> dict[str, str]:
    """What the form shows of a target."""
    if not isinstance(target, HttpTarget):
        return EMPTY_HTTP
    return {
        "body": "" if isinstance(target.body, UnsetType) else body_text(target.body),
        "statuses": "" if isinstance(target.statuses, UnsetType) else msgspec.json.encode(target.statuses).decode(),
        "host_concurrency": "" if isinstance(target.host_concurrency, UnsetType) else str(target.host_concurrency),
    }
