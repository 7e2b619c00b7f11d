"""Checks of a target at registration, so that a bad one does not fail at every tick instead."""

from __future__ import annotations

import re
from collections.abc import Mapping

from detent.domain.celery_rules import check_celery
from detent.domain.http_rules import check_http
from detent.domain.job import CeleryTarget, HttpTarget, PythonTarget, ShellTarget, Target, TargetTls, TopicTarget
from detent.domain.refusal import pointer_to
from detent.domain.secret_ref import SecretRef
from detent.domain.sensitive import MASKED
from detent.domain.target_url import TargetError
from detent.domain.topic_rules import check_topic
from detent.domain.topics import has_tls, tls_schemes

MAX_HEADER_CHARACTERS = 16_384
PEM_CERTIFICATE = "-----BEGIN CERTIFICATE-----"

# On every request that a node sends for a job: `run`, `notice` or `ping`. Nodes refuse requests with it, so that no job
# uses the cluster it runs in. No job can set or remove it, like every header of this prefix.
CALL_HEADER = "Detent-Call"

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\xa0-\ud7ff\ue000-\U0010ffff]*")
_OURS = frozenset({"idempotency-key"})
_CONNECTION = frozenset(
    {
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*(:[\w.]+)?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _pointer(*parts: str | int) -> str:
    return pointer_to("target", *parts)


def check_target(target: Target) -> None:
    """Raise TargetError if no worker can call this target."""
    match target:
        case HttpTarget(url=url, headers=headers, tls=tls):
            check_http(target)
            check_headers(headers)
            if isinstance(tls, TargetTls):
                _check_tls(url.lower().startswith("https:"), "https://", tls)
        case TopicTarget(url=url, headers=headers, tls=tls):
            check_topic(target)
            check_headers(headers)
            if isinstance(tls, TargetTls):
                _check_tls(has_tls(url), tls_schemes(), tls)
        case PythonTarget(function=function):
            _check_function(function)
        case ShellTarget():
            _check_shell(target)
        case CeleryTarget():
            check_celery(target)


def check_headers(headers: Mapping[str, str | SecretRef]) -> None:
    seen: set[str] = set()
    for name, value in headers.items():
        lowered = name.lower()
        sentence = _header_fault(name, lowered, value)
        if sentence is None and lowered in seen:
            sentence = f"The header {name} is given twice; header names do not differ by case."
        if sentence is not None:
            raise TargetError(_pointer("headers", name), sentence)
        seen.add(lowered)
    size = sum(len(name) + len(value) for name, value in headers.items() if isinstance(value, str))
    if size > MAX_HEADER_CHARACTERS:
        raise TargetError(
            _pointer("headers"),
            f"The headers hold {size} characters; at most {MAX_HEADER_CHARACTERS} can be sent. "
            "Move the rest into the payload.",
        )


def _header_fault(name: str, lowered: str, value: str | SecretRef) -> str | None:
    if not _HEADER_NAME.fullmatch(name):
        return f"{name!r} is not a header name; use letters, digits and hyphens."
    if lowered in _OURS or lowered.startswith("detent-"):
        return f"The header {name} is set by detent for every call; remove it or choose another name."
    if lowered in _CONNECTION:
        return f"The header {name} belongs to the connection, not to the job; remove it."
    if isinstance(value, SecretRef):  # its value is checked when it is filled in
        return None
    if value == MASKED:
        return (
            f"The value of the header {name} is {MASKED}, which stands for one that your key could not see: read the "
            "job with a key of a higher scope, or write the value."
        )
    if not _HEADER_VALUE.fullmatch(value):
        return f"The value of the header {name} contains a line break or another control character; remove it."
    return None


def _check_tls(encrypted: bool, schemes: str, tls: TargetTls) -> None:
    if not encrypted:
        raise TargetError(_pointer("tls"), f"The address does not begin with {schemes}, so it has no TLS; remove tls.")
    if tls.client_certificate is None and tls.ca is None:
        raise TargetError(_pointer("tls"), "tls is empty; give client_certificate or ca, or remove it.")
    if isinstance(tls.client_certificate, str):
        raise TargetError(
            _pointer("tls", "client_certificate"),
            "The client certificate and its key are given as plain text; store them with `detent secret set NAME`, and "
            'write {"secret": "NAME"}.',
        )
    if isinstance(tls.ca, str) and "PRIVATE KEY" in tls.ca:
        raise TargetError(_pointer("tls", "ca"), "The text contains a private key; give certificates only.")
    if isinstance(tls.ca, str) and PEM_CERTIFICATE not in tls.ca:
        raise TargetError(_pointer("tls", "ca"), f"The text has no certificate; give PEM text with {PEM_CERTIFICATE}.")


def _check_function(function: str) -> None:
    if not _FUNCTION.fullmatch(function):
        raise TargetError(
            _pointer("function"),
            f"{function!r} is not a function name; write package.module:name or the name under which it is registered.",
        )


def _check_shell(target: ShellTarget) -> None:
    if isinstance(target.command, str):
        _check_word(target.command, _pointer("command"))
        if not target.command.strip():
            raise TargetError(_pointer("command"), "The command is empty; write the command to run.")
    else:
        for position, word in enumerate(target.command):
            _check_word(word, _pointer("command", position))
        if not target.command or not target.command[0]:
            raise TargetError(_pointer("command", 0), "The first item is empty; it must name the program to run.")
    for name, value in target.env.items():
        _check_variable(name, value)


def _check_variable(name: str, value: str | SecretRef) -> None:
    pointer = _pointer("env", name)
    if not _VARIABLE.fullmatch(name):
        raise TargetError(
            pointer,
            f"{name!r} is not a name for an environment variable; use letters, digits and underscores, "
            "and no digit first.",
        )
    if name.startswith("DETENT_"):
        raise TargetError(pointer, f"{name} cannot be set; names that start with DETENT_ are set by detent.")
    if isinstance(value, str):
        _check_word(value, pointer)


def _check_word(word: str, pointer: str) -> None:
    if "\0" in word:
        raise TargetError(pointer, "The text contains a NUL character, which no command can receive; remove it.")
