"""The target of a job for people: in one line, and field by field."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator

from detent.cli import times
from detent.cli.output import Field, Item
from detent.cli.run_view import indented


def target_text(target: Item) -> str:
    match target.get("type"):
        case "http":
            return f"{target.get('method', 'POST')} {target.get('url')}"
        case "python":
            return f"python {target.get('function')}"
        case "shell":
            line = target.get("command")
            return f"shell {shlex.join(line) if isinstance(line, list) else line}"
        case "topic":
            return f"topic {target.get('topic')} at {target.get('url')}"
        case "celery":
            return f"celery {target.get('task')} of {target.get('app') or target.get('broker_url')}"
        case other:
            return str(other)


PARTS = (
    ("headers", "Headers"),
    ("env", "Environment"),
    ("credentials", "Credentials"),
    ("result_credentials", "Result credentials"),
    ("tls", "Certificates"),
)


def target_fields(target: Item) -> Iterator[Field]:
    """Every field of the target that is not a default. Values of parts that may be secret are not shown."""
    yield Field("target", "Target", target_text(target))
    isolate = target.get("isolate", "thread")
    yield Field("isolate", "Isolation", None if isolate == "thread" else isolate)
    yield Field("key", "Key", target.get("key"))
    yield Field("format", "Format", target.get("format"))
    callback = target.get("callback")
    lease = None if callback is None else callback.get("lease_seconds", 60)
    yield Field(
        "callback", "Callback", lease, f"after 202, with a heartbeat at least every {lease:g} s" if lease else ""
    )
    for name, title in PARTS:
        parts = target.get(name) or {}
        named = ", ".join(_named(part, value) for part, value in parts.items())
        yield Field(name, title, ", ".join(parts) or None, named)
    yield from _http_fields(target)
    if target.get("type") == "celery":
        yield from _celery_fields(target)


def _http_fields(target: Item) -> Iterator[Field]:
    body = target.get("body")
    text = body if isinstance(body, str | None) else json.dumps(body, ensure_ascii=False)
    yield Field("body", "Body", text)
    for name, title in (("success", "Succeeds on"), ("retry", "Retries on"), ("no_retry", "Does not retry")):
        statuses = (target.get("statuses") or {}).get(name)
        yield Field(f"{name}_statuses", title, ", ".join(map(str, statuses)) if statuses else None)
    yield Field("host_concurrency", "Calls per host", target.get("host_concurrency"))


def _celery_fields(target: Item) -> Iterator[Field]:
    """Queue and priority are those of the Celery workers: the job has its own, by the same names."""
    yield Field("args", "Arguments", target.get("args") or None, indented(target.get("args")))
    yield Field("kwargs", "Keywords", target.get("kwargs") or None, indented(target.get("kwargs")))
    yield Field("celery_queue", "Celery queue", target.get("queue"))
    yield Field("celery_priority", "Celery priority", target.get("priority"))
    expires = target.get("expires")
    yield Field(
        "expires", "Expires", expires, None if expires is None else f"{times.span(expires * 1000)} after it is sent"
    )
    yield Field("result_backend", "Result backend", target.get("result_backend"))
    yield Field("ignore_result", "Result", target.get("ignore_result") or None, "ignored")


def _named(part: str, value: object) -> str:
    """A part of a target whose value is not shown, but where it comes from."""
    return f"{part} (secret {value['secret']})" if isinstance(value, dict) and "secret" in value else part
