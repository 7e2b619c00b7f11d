"""The references of a job to secrets: where they are, and the job with values in their place. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from detent.domain.job import (
    CeleryTarget,
    HttpTarget,
    JobSpec,
    ShellTarget,
    Target,
    TargetCredentials,
    TargetTls,
    TopicTarget,
)
from detent.domain.refusal import pointer_to
from detent.domain.secret_ref import SecretRef, is_reference_name, provider_of
from detent.domain.template import as_literal
from detent.errors import UsageError

# The value of a name; None: leave the reference.
Value = Callable[[str], str | None]

# Every reference has this in its JSON, so most jobs are known to have none without a walk through their payload.
MARK = b'"secret"'
_MARK_TEXT = MARK.decode()


class Reference(NamedTuple):
    """`path` leads to it in the document of the job."""

    path: tuple[str | int, ...]
    name: str

    @property
    def pointer(self) -> str:
        return pointer_to(*self.path)


def may_refer(encoded: bytes) -> bool:
    """Whether this JSON may have references."""
    return MARK in encoded


def refers(spec: JobSpec, text: str) -> bool:
    """Whether calls of a job need secrets; `text` is its JSON."""
    return _MARK_TEXT in text and any(True for _ in call_references(spec))


def references_of(spec: JobSpec) -> Iterator[Reference]:
    """Every reference of a job."""
    yield from call_references(spec)
    if spec.dead_letter_topic is not None:
        yield from target_references(spec.dead_letter_topic, "dead_letter_topic")


def call_references(spec: JobSpec) -> Iterator[Reference]:
    """The references that a call needs: in the target, the payload and the signing."""
    yield from target_references(spec.target)
    yield from references_in(spec.payload, ("payload",))
    if spec.signing is not None:
        yield Reference(("signing", "secret"), spec.signing.secret)


def target_references(target: Target, field_of_job: str = "target") -> Iterator[Reference]:
    for field, values in _values_of(target).items():
        for name, value in values.items():
            if isinstance(value, SecretRef):
                yield Reference((field_of_job, field, name, "secret"), value.secret)
    if isinstance(target, HttpTarget) and isinstance(target.body, dict | list):
        yield from references_in(target.body, (field_of_job, "body"))


def _values_of(target: Target) -> dict[str, Mapping[str, str | SecretRef | None]]:
    """What may be a reference, by field of the target."""
    match target:
        case HttpTarget(headers=headers):
            return {"headers": headers, **_members("tls", target.tls)}
        case TopicTarget(headers=headers):
            return {
                "headers": headers,
                **_members("credentials", target.credentials),
                **_members("tls", target.tls),
            }
        case CeleryTarget():
            return {
                **_members("credentials", target.credentials),
                **_members("result_credentials", target.result_credentials),
            }
        case ShellTarget(env=env):
            return {"env": env}
        case _:
            return {}


def _members(
    field: str, part: TargetTls | TargetCredentials | msgspec.UnsetType
) -> dict[str, Mapping[str, str | SecretRef | None]]:
    return {} if isinstance(part, msgspec.UnsetType) else {field: msgspec.structs.asdict(part)}


def references_in(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[Reference]:
    """Every reference inside a payload. Without recursion: a payload may be nested deeply."""
    left = [(path, value)]
    while left:
        place, found = left.pop()
        if isinstance(found, dict):
            name = name_in(found)
            if name is not None:
                yield Reference((*place, "secret"), name)
            else:
                left += [((*place, str(key)), inner) for key, inner in reversed(found.items())]
        elif isinstance(found, list):
            left += [((*place, index), inner) for index, inner in reversed(list(enumerate(found)))]


def name_in(value: dict[Any, Any]) -> str | None:
    """The name in `{"secret": "name"}`. An object with any other member is data."""
    name = value.get("secret") if len(value) == 1 else None
    return name if isinstance(name, str) else None


def check_references(spec: JobSpec, encoded: bytes) -> tuple[str, ...]:
    """The stored secrets that a job refers to, each once; UsageError where one cannot be the name of a secret."""
    if not may_refer(encoded):
        return ()
    names: dict[str, None] = {}
    for reference in references_of(spec):
        check_reference(reference)
        if provider_of(reference.name)[0] == "stored":
            names[reference.name] = None
    return tuple(names)


def check_reference(reference: Reference) -> None:
    if not is_reference_name(reference.name):
        raise UsageError(
            f"{reference.name[:60]!r} is not the name of a secret: use letters, digits, dots, hyphens and underscores; "
            'to send an object such as {"secret": …} as it is, add another member to it.',
            reference.pointer,
        )


def with_values(target: Target, payload: Any, value: Value) -> tuple[Target, Any]:
    """A target and a payload with values instead of references."""
    return _target_with(target, value), payload_with(payload, value)


_PARTS = {"tls": TargetTls, "credentials": TargetCredentials, "result_credentials": TargetCredentials}


def _target_with(target: Target, value: Value) -> Target:
    filled: dict[str, Any] = {}
    for field, values in _values_of(target).items():
        if any(isinstance(one, SecretRef) for one in values.values()):
            new = {name: _filled(one, value) for name, one in values.items()}
            filled[field] = _PARTS[field](**new) if field in _PARTS else new
    if isinstance(target, HttpTarget):
        filled |= _templates_with(target, filled, value)
    return msgspec.structs.replace(target, **filled) if filled else target


def _templates_with(target: HttpTarget, filled: dict[str, Any], value: Value) -> dict[str, Any]:
    """Headers and body are templates, and the value of a secret is none: it is sent as it is."""
    found: dict[str, Any] = {}
    if "headers" in filled:
        references = {name for name, one in target.headers.items() if isinstance(one, SecretRef)}
        found["headers"] = {
            name: as_literal(one) if name in references and isinstance(one, str) else one
            for name, one in filled["headers"].items()
        }
    if isinstance(target.body, dict | list) and any(True for _ in references_in(target.body)):
        found["body"] = payload_with(
            target.body, lambda name: None if (one := value(name)) is None else as_literal(one)
        )
    return found


def _filled(one: str | SecretRef | None, value: Value) -> Any:
    return found if isinstance(one, SecretRef) and (found := value(one.secret)) is not None else one


def payload_with(payload: Any, value: Value) -> Any:
    """A copy where anything is replaced. The depth is bounded by the check of documents."""
    if isinstance(payload, dict):
        name = name_in(payload)
        if name is None:
            return {key: payload_with(one, value) for key, one in payload.items()}
        found = value(name)
        return payload if found is None else found
    if isinstance(payload, list):
        return [payload_with(one, value) for one in payload]
    return payload
