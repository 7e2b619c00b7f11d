"""Conversion between the job form and the document that the API takes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET

from detent.contract.job import Job
from detent.dashboard.changes import Form, text_of
from detent.dashboard.http_form import EMPTY_HTTP, http_from, http_values
from detent.dashboard.moment_fields import at_from
from detent.dashboard.schedule_form import EMPTY_PARTS, parts_from, parts_of
from detent.dashboard.topic_form import EMPTY, celery_from, topic_from, topic_values
from detent.domain.job import CeleryTarget, JobSpec, TopicTarget, kind_of
from detent.domain.job_fields import JobField, fields_of
from detent.domain.schedule.interval import parse_every
from detent.domain.secret_ref import SecretRef, read_header
from detent.errors import UsageError

_EVERY = re.compile(r"(?:@?every\s+)?(.+)", re.IGNORECASE)
_INSTANT = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}.*")
TASK = "task"
DEFAULTS = {field.name: field for field in msgspec.structs.fields(JobSpec)}


class Group(NamedTuple):
    title: str
    fields: Sequence[JobField]


GROUPS = (
    Group("Timeout and retries", fields_of("retries")),
    Group("Missed ticks and overlapping runs", fields_of("overlap")),
    Group("Concurrency limits", fields_of("concurrency")),
    Group("Deadlines and alerts", fields_of("deadlines")),
    Group(
        "Queue, limits and DST",
        (*fields_of("queue"), *(field for field in fields_of("schedule") if field.name != "timezone")),
    ),
)
FIELDS = {field.name: field for group in GROUPS for field in group.fields}
EMPTY_TARGET = {
    **dict.fromkeys(("url", "headers", "tls", "callback", "function", "command", "env"), ""),
    "method": "POST",
    "isolate": "thread",
}
SCHEDULE_FIELDS = ("dst_gap", "dst_overlap", "day_match", "dialect", "starts_at", "ends_at")


# --- from the form ---


def document_from(form: Form) -> dict[str, Any]:
    """The document of a form. An empty field is null, which means its default."""
    document: dict[str, Any] = {
        "name": text_of(form, "name") or None,
        "schedule": schedule_from(form),
        "timezone": text_of(form, "timezone") or None,
        "target": _target(form),
        "payload": _payload(form),
        "tags": _words(text_of(form, "tags")),
    }
    for field in FIELDS.values():
        document[field.name] = _value(field, text_of(form, field.name))
    return document


def schedule_from(form: Form) -> str | dict[str, Any] | None:
    """None: the job is a task."""
    kind = text_of(form, "kind")
    if kind == TASK:
        return None
    text = text_of(form, kind if kind in ("cron", "rrule", "every", "at") else "cron")
    if not text:
        raise UsageError("The schedule is empty: enter when the job runs.", "/schedule")
    match kind:
        case "every":
            found = _EVERY.fullmatch(text)
            return {"every": found[1] if found else text, **parts_from(form, interval=True)}
        case "at":
            at = at_from(text, text_of(form, "timezone") or "UTC", datetime.now(UTC))
            return {"at": at, **parts_from(form)}
        case "rrule":
            return {"rrule": text.removeprefix("RRULE:"), **parts_from(form)}
        case _:
            parts = parts_from(form)
            return {"cron": text, **parts} if parts else text


def _target(form: Form) -> dict[str, Any]:
    match text_of(form, "target"):
        case "python":
            return {
                "type": "python",
                "function": text_of(form, "function"),
                "isolate": text_of(form, "isolate") or "thread",
            }
        case "shell":
            shell: dict[str, Any] = {"type": "shell", "command": _command(text_of(form, "command"))}
            env = _variables(text_of(form, "env"))
            return {**shell, "env": env} if env else shell
        case "topic":
            return topic_from(form, _headers)
        case "celery":
            return celery_from(form)
        case _:
            target: dict[str, Any] = {"type": "http", "url": text_of(form, "url"), **http_from(form)}
            target["method"] = text_of(form, "method") or "POST"
            parts = {
                "headers": _headers(text_of(form, "headers")),
                "tls": _tls(text_of(form, "tls")),
                "callback": _callback(text_of(form, "callback")),
            }
            return {**target, **{name: part for name, part in parts.items() if part}}


def _headers(text: str) -> dict[str, Any]:
    headers: dict[str, Any] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, colon, value = line.partition(":")
        if not colon:
            raise UsageError(f"The header {line!r} has no colon: write one Name: value per line.", "/target")
        headers[name.strip()] = msgspec.to_builtins(read_header(value.strip()))
    return headers


def _tls(text: str) -> Any:
    try:
        return msgspec.json.decode(text) if text else None
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        example = '{"client_certificate": {"secret": "NAME"}}'
        raise UsageError(f"TLS is not JSON ({error}): for example {example}.", "/target/tls") from error


def _callback(text: str) -> dict[str, float] | None:
    return {"lease_seconds": number_from("duration", text, "Callback", "/target/callback")} if text else None


def _command(text: str) -> str | list[str]:
    """A command line; or the words of one as JSON, as the form shows a command that needs no shell."""
    try:
        return msgspec.json.decode(text, type=list[str]) if text.startswith("[") else text
    except (msgspec.DecodeError, UnicodeEncodeError):
        return text


def _variables(text: str) -> dict[str, Any]:
    variables: dict[str, Any] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, sign, value = line.partition("=")
        if not sign:
            raise UsageError(f"The variable {line!r} has no equals sign: write one NAME=value per line.", "/target")
        variables[name.strip()] = _variable_from(value.strip())
    return variables


def _variable_from(text: str) -> Any:
    """Text, a reference as JSON, or text as JSON, which may have line breaks and spaces at its ends."""
    try:
        return msgspec.json.decode(text, type=str) if text.startswith('"') else msgspec.to_builtins(read_header(text))
    except (msgspec.DecodeError, UnicodeEncodeError):
        return text


def _payload(form: Form) -> Any:
    return payload_from(text_of(form, "payload"))


def payload_from(text: str) -> Any:
    if not text:
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise UsageError(f'The payload is not JSON ({error}): for example {{"key": 1}}.', "/payload") from error


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _value(field: JobField, text: str) -> Any:
    if field.kind == "names":
        return _words(text)
    if not text:
        return None
    if field.kind in ("integer", "number", "duration", "grace"):
        return _number(field, text)
    if field.kind == "document":
        return _document(field, text)
    return _delays(field, text) if field.kind == "delays" else text


def _document(field: JobField, text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        example = '{"url": "nats://host:4222", "topic": "dead.runs"}'
        raise UsageError(f"{field.label} is not JSON ({error}): for example {example}.", f"/{field.name}") from error


def _delays(field: JobField, text: str) -> dict[str, float]:
    delays: dict[str, float] = {}
    for part in _words(text):
        name, equals, wait = part.partition("=")
        if not equals:
            raise UsageError(
                f"{field.label} is {text!r}: write it as TimeoutError=30s, RateLimited=2m.", f"/{field.name}"
            )
        delays[name.strip()] = number_from("duration", wait.strip(), field.label, f"/{field.name}")
    return delays


def _number(field: JobField, text: str) -> Any:
    if field.kind == "grace" and text == "auto":
        return text
    return number_from(field.kind, text, field.label, f"/{field.name}")


def number_from(kind: str, text: str, label: str, pointer: str) -> float:
    try:
        return _READERS.get(kind, int)(text)
    except ValueError:
        wanted = _NUMBERS.get(kind, "a whole number")
        raise UsageError(f"{label} is {text!r}: give {wanted}.", pointer) from None


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return parse_every(text) / 1000


_READERS: dict[str, Callable[[str], float]] = {"duration": _seconds, "number": float}
_NUMBERS = {"duration": "seconds, or a time such as 90s, 15m or 1h30m", "number": "a number, such as 5 or 0.5"}


def without_nulls(document: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if value is not None}


# --- to the form ---


def values_of(job: Job | None, query: Mapping[str, str]) -> dict[str, Any]:
    """The initial value of each field: from the job, else from the address, else the default."""
    if job is None:
        empty = {name: _shown(_default(name)) for name in FIELDS}
        start = {"kind": "cron", "cron": "0 9 * * MON-FRI", "rrule": "", "every": "15m", "at": "", **EMPTY_PARTS}
        rest = {"name": "", "timezone": "UTC", "payload": "", "tags": "", "target": "http"}
        target = EMPTY_TARGET | EMPTY_HTTP | EMPTY
        known = {**empty, **start, **rest, **target}
        return {**known, **{name: value for name, value in query.items() if name in known}}
    values = {name: _shown(getattr(job, name)) for name in FIELDS}
    payload = "" if job.payload is None else json.dumps(job.payload, indent=2, ensure_ascii=False)
    texts = {"name": job.name, "timezone": job.timezone, "tags": ", ".join(job.tags), "payload": payload}
    return {**values, **texts, **schedule_values(job.schedule), **_target_values(job)}


def changed_groups(values: Mapping[str, Any]) -> list[str]:
    """The groups with a field that differs from its default."""
    return [
        group.title
        for group in GROUPS
        if any(values[field.name] != _shown(_default(field.name)) for field in group.fields)
    ]


def _default(name: str) -> Any:
    field = DEFAULTS[name]
    return field.default if field.default is not msgspec.NODEFAULT else field.default_factory()


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, TopicTarget):
        return msgspec.json.encode(value).decode()
    if isinstance(value, list):
        return ", ".join(value)
    if isinstance(value, dict):
        return ", ".join(f"{name}={_shown(float(wait))}" for name, wait in value.items())
    if isinstance(value, float):
        return f"{value:g}"
    return str(msgspec.to_builtins(value))


def schedule_values(schedule: str | dict[str, Any] | None) -> dict[str, str]:
    values = {"kind": "cron", "cron": "", "rrule": "", "every": "", "at": "", **EMPTY_PARTS}
    if schedule is None:
        return {**values, "kind": TASK}
    if isinstance(schedule, dict):
        for kind in ("cron", "rrule", "every", "at"):
            if kind in schedule:
                return {**values, "kind": kind, kind: str(schedule[kind]), **parts_of(schedule)}
        return values
    lowered = schedule.lower()
    if lowered.startswith(("every ", "@every ")):
        return {**values, "kind": "every", "every": schedule.split(None, 1)[1]}
    if lowered.startswith(("rrule:", "dtstart", "freq=")):
        return {**values, "kind": "rrule", "rrule": schedule}
    if _INSTANT.fullmatch(schedule):
        return {**values, "kind": "at", "at": schedule}
    return {**values, "cron": schedule}


def _target_values(job: Job) -> dict[str, str]:
    if isinstance(job.target, TopicTarget | CeleryTarget):
        return {**EMPTY_TARGET, **EMPTY_HTTP, "target": kind_of(job.target), **topic_values(job.target)}
    target: Any = job.target
    command, tls = getattr(target, "command", ""), getattr(target, "tls", UNSET)
    callback = getattr(target, "callback", UNSET)
    return {
        **EMPTY,
        "target": kind_of(target),
        "url": getattr(target, "url", ""),
        "method": getattr(target, "method", "POST"),
        "headers": "\n".join(f"{name}: {value}" for name, value in getattr(target, "headers", {}).items()),
        "tls": "" if tls is UNSET else msgspec.json.encode(tls).decode(),
        "callback": "" if callback is UNSET else _shown(float(callback.lease_seconds)),
        "function": getattr(target, "function", ""),
        "isolate": getattr(target, "isolate", "thread"),
        "command": command if isinstance(command, str) else json.dumps(command, ensure_ascii=False),
        "env": "\n".join(f"{name}={_variable_text(value)}" for name, value in getattr(target, "env", {}).items()),
        **http_values(target),
    }


def _variable_text(value: str | SecretRef) -> str:
    """One line that `_variable_from` reads back."""
    if isinstance(value, SecretRef):
        return str(value)
    return value if _variable_from(value.strip()) == value and value.isprintable() else json.dumps(value)
