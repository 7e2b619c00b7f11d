"""The parts of the job form for topic targets, and for Celery targets, which it shows as JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import UnsetType

from detent.dashboard.changes import Form, text_of
from detent.domain.job import CeleryTarget, Target, TopicTarget
from detent.errors import UsageError

EMPTY = {
    "topic_url": "",
    "topic": "",
    "topic_key": "",
    "topic_format": "plain",
    "topic_headers": "",
    "topic_credentials": "",
    "topic_tls": "",
    "celery_task": "",
    "celery": "",
}


def topic_from(form: Form, read_headers: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    parts = {
        "key": text_of(form, "topic_key"),
        "format": text_of(form, "topic_format"),
        "headers": read_headers(text_of(form, "topic_headers")),
        "credentials": _json(text_of(form, "topic_credentials"), "Credentials", "credentials"),
        "tls": _json(text_of(form, "topic_tls"), "TLS", "tls"),
    }
    chosen = {name: value for name, value in parts.items() if value}
    return {"type": "topic", "url": text_of(form, "topic_url"), "topic": text_of(form, "topic"), **chosen}


def celery_from(form: Form) -> dict[str, Any]:
    """The fields of a Celery target other than its task are one JSON object."""
    example = '{"app": "shop.celery:app", "queue": "reports"}'
    try:
        rest = msgspec.json.decode(text_of(form, "celery") or "{}", type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise UsageError(
            f"The Celery target is not a JSON object ({error}): for example {example}.", "/target"
        ) from error
    return {**rest, "type": "celery", "task": text_of(form, "celery_task")}


def _json(text: str, what: str, place: str) -> Any:
    try:
        return msgspec.json.decode(text) if text else None
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        example = '{"username": "detent", "password": {"secret": "NAME"}}'
        raise UsageError(
            f"{what} is not JSON ({error}): write an object, such as {example}.", f"/target/{place}".rstrip("/")
        ) from error


def topic_values(target: Target) -> dict[str, str]:
    """What the form shows of a target."""
    if isinstance(target, CeleryTarget):
        shown = msgspec.to_builtins(target)
        rest = {name: value for name, value in shown.items() if name not in ("type", "task")}
        return {**EMPTY, "celery_task": target.task, "celery": msgspec.json.format(msgspec.json.encode(rest)).decode()}
    if not isinstance(target, TopicTarget):
        return EMPTY
    return {
        **EMPTY,
        "topic_url": target.url,
        "topic": target.topic,
        "topic_key": target.key or "",
        "topic_format": target.format,
        "topic_headers": "\n".join(f"{name}: {value}" for name, value in target.headers.items()),
        "topic_credentials": _text(target.credentials),
        "topic_tls": _text(target.tls),
    }


def _text(part: Any) -> str:
    return "" if isinstance(part, UnsetType) else msgspec.json.encode(part).decode()
