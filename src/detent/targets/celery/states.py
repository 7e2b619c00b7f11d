"""From what a result backend says about a task to the outcome of its run."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from detent.domain.run import Cancelled, Failed, Outcome, Succeeded
from detent.targets.exceptions import LONGEST_ERROR, failure_of, kinds_of
from detent.targets.results import NotJson, as_json
from detent.targets.text import storable_text
from detent.targets.tracebacks import shortened_traceback

EXPIRED = "expired"


def outcome_of(task_id: str, meta: Mapping[str, Any], limit: int) -> Outcome | None:
    """None: the task has not ended."""
    match meta.get("status"):
        case "SUCCESS":
            return Succeeded(_result(task_id, meta.get("result"), limit))
        case "FAILURE":
            return _failure(meta)
        case "REVOKED":
            return _revoked(meta.get("result"))
        case "REJECTED" | "IGNORED" as state:
            return Cancelled(f"the task was {state.lower()}")
        case None:
            return Failed(str(meta.get("unreadable", "The state of the task cannot be read.")), retryable=False)
        case _:
            return None


def _result(task_id: str, value: object, limit: int) -> str | None:
    known: dict[str, object] = {"task_id": task_id, "state": "SUCCESS"}
    try:
        return as_json({**known, "result": value}, limit)
    except NotJson:  # of an app that does not use JSON: the task has succeeded all the same
        return as_json({**known, "left_out": "the result has no JSON form"}, limit)


def _failure(meta: Mapping[str, Any]) -> Failed:
    raised = meta.get("result")
    trace = meta.get("traceback")
    if isinstance(raised, BaseException):
        failed = failure_of(raised)
    else:
        name, module, message = _described(raised)
        text = f"{name}: {message}" if message else name
        failed = Failed(storable_text(text)[:LONGEST_ERROR], kinds=_kinds(name, module))
    if not isinstance(trace, str):
        return failed
    return replace(failed, traceback=shortened_traceback(storable_text(trace), None))


def _described(raised: object) -> tuple[str, str, str]:
    """Name, module and text of an exception, as Celery writes it in JSON. It is not imported: a result backend may
    name any module."""
    if not isinstance(raised, Mapping):
        return "Exception", "", "" if raised is None else str(raised)
    said = raised.get("exc_message")
    parts = said if isinstance(said, list | tuple) else [said]
    text = ", ".join(str(part) for part in parts if part is not None)
    return str(raised.get("exc_type") or "Exception"), str(raised.get("exc_module") or ""), text


def _kinds(name: str, module: str) -> tuple[str, ...]:
    """The names by which retry_on and no_retry_on match; the base classes are known only of Python's own."""
    own = getattr(builtins, name, None) if module == "builtins" else None
    if isinstance(own, type) and issubclass(own, BaseException):
        return kinds_of(own)
    return (name, f"{module}.{name}") if module else (name,)


def _revoked(reason: object) -> Outcome:
    said = str(reason) if isinstance(reason, BaseException) else _described(reason)[2]
    if EXPIRED in said:
        return Failed("The task expired before a worker took it.", retryable=False)
    return Cancelled(f"the task was revoked{f': {storable_text(said)}' if said else ''}")
