"""Checks of a target at registration: its templates, its body and its statuses. Only HTTP targets have templates."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from detent.domain.http_statuses import check_statuses
from detent.domain.job import HttpTarget, JobSpec, TargetStatuses, TopicTarget
from detent.domain.refusal import pointer_to
from detent.domain.secret_ref import SecretRef
from detent.domain.target_url import TargetError, check_url
from detent.domain.template import Placeholder, TemplateError, is_template
from detent.domain.template_facts import FactError, in_payload
from detent.domain.template_places import Compiled, body_template, header_template, placeholders, url_template

JSON = "application/json"
WITH_BODY = frozenset({"POST", "PUT", "PATCH", "DELETE"})


def check_http(target: HttpTarget) -> None:
    """TargetError for what is not in the rules of headers and TLS."""
    if not is_template(target.url):
        check_url(target.url)
    if target.body is not UNSET and target.method not in WITH_BODY:
        raise TargetError(
            "/target/body",
            f"A {target.method} call has no body; choose one of the methods POST, PUT, PATCH and DELETE, or remove "
            "body.",
        )
    _templates(target)
    if isinstance(target.statuses, TargetStatuses):
        check_statuses(target.statuses)


def content_type_of(target: HttpTarget) -> str:
    """TargetError if it is not plain text: what values in the body look like depends on it."""
    for name, value in target.headers.items():
        if name.lower() == "content-type":
            if isinstance(value, SecretRef) or is_template(value):
                raise TargetError(
                    pointer_to("target", "headers", name),
                    "The header Content-Type is a secret or a template, but the body depends on it; write it out.",
                )
            return value
    return JSON


def _templates(target: HttpTarget) -> list[tuple[str, Compiled]]:
    """All templates of the target, each with its pointer; TargetError if one of them cannot be read."""
    found: list[tuple[str, Compiled]] = []
    pointer = "/target/url"
    try:
        if is_template(target.url):
            found.append((pointer, url_template(target.url).pieces))
        for name, value in target.headers.items():
            if isinstance(value, str) and is_template(value):
                pointer = pointer_to("target", "headers", name)
                found.append((pointer, header_template(value)))
        if not isinstance(target.body, UnsetType):
            pointer = "/target/body"
            found.append((pointer, body_template(target.body, content_type_of(target))))
    except TemplateError as error:
        raise TargetError(pointer + pointer_to(*error.path), str(error)) from None
    return found


def template_warnings(spec: JobSpec) -> list[str]:
    """Values that the ticks of a job will not find, so that all of them would fail; and placeholders in a message."""
    if isinstance(spec.target, TopicTarget):
        return _literal_warnings(spec.target)
    if not isinstance(spec.target, HttpTarget):
        return []
    named = [(pointer, one) for pointer, pieces in _templates(spec.target) for one in placeholders(pieces)]
    return list(dict.fromkeys(warning for where, one in named if (warning := _warning(spec, where, one))))


def _literal_warnings(target: TopicTarget) -> list[str]:
    """What looks like a template in the place of one."""
    texts = {"target.topic": target.topic, "target.key": target.key or ""}
    texts |= {f"target.headers.{name}": value for name, value in target.headers.items() if isinstance(value, str)}
    return [
        f"{where} has {{{{, which is sent as it is: only HTTP targets have templates."
        for where, text in texts.items()
        if is_template(text)
    ]


def _warning(spec: JobSpec, pointer: str, one: Placeholder) -> str | None:
    where = pointer.strip("/").replace("/", ".")
    if spec.schedule is None:
        if one.path[0] not in ("window_start", "window_end"):
            return None
        return f"{where} names {one}, but no tick precedes a run of a task, so that its runs fail; remove it."
    if one.path[0] != "payload":
        return None
    try:
        in_payload(one, spec.payload)
    except FactError as error:
        return f"{where} names a value that the job does not have, so that its ticks fail: {error}; add it."
    return None
