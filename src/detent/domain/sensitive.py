"""Headers whose literal values are hidden from callers that may only read. No I/O."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from detent.domain.job import HttpTarget, Target, TopicTarget
from detent.domain.secret_ref import SecretRef

MASKED = "********"
_NAMES = frozenset({"authorization", "cookie", "proxy-authorization"})
_ENDINGS = ("-key", "-token", "-secret")


def is_sensitive(header: str) -> bool:
    lowered = header.lower()
    return lowered in _NAMES or lowered.endswith(_ENDINGS)


def literal_secrets(target: Target) -> list[str]:
    """The headers of a target that hold a secret as plain text."""
    if not isinstance(target, HttpTarget | TopicTarget):
        return []
    return [name for name, value in target.headers.items() if is_sensitive(name) and isinstance(value, str)]


def literal_values(target: HttpTarget | TopicTarget) -> tuple[str, ...]:
    """What those headers hold."""
    return tuple(value for name, value in target.headers.items() if isinstance(value, str) and is_sensitive(name))


def masked_target(target: Target) -> Target:
    hidden = literal_secrets(target)
    if not hidden:
        return target
    assert isinstance(target, HttpTarget | TopicTarget)
    return msgspec.structs.replace(target, headers=masked_headers(target.headers))


def masked_headers(headers: Mapping[str, str | SecretRef]) -> dict[str, str | SecretRef]:
    return {name: MASKED if isinstance(value, str) and is_sensitive(name) else value for name, value in headers.items()}


def literal_warnings(target: Target) -> list[str]:
    """Not of templates, which most often name a secret of the payload."""
    from detent.domain.template import is_template  # needed at registration only; users import this module with `Run`

    headers = target.headers if isinstance(target, HttpTarget | TopicTarget) else {}
    return [
        f"The header {name} is stored as plain text, which every key with a scope above read can see: store its value "
        f'with `detent secret set NAME`, and write {{"secret": "NAME"}} instead.'
        for name in literal_secrets(target)
        if not is_template(str(headers.get(name, "")))
    ]
