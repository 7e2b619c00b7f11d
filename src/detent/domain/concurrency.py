"""Concurrency keys of runs: `customer-{{payload.customer}}`.

Runs with the same key share a limit: at most `concurrency_limit` of them run at the same time, and at most
`concurrency_rate` of them start per second. A job without a key has one limit for all of its runs.

The SQL functions that enqueue runs render the same template, so its rules are few: a value is text, a number without
trailing zeros, `true` or `false`; a value that is missing or null is empty; an empty key is no key.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from detent.domain.job import JobSpec
from detent.domain.refusal import shown
from detent.errors import UsageError

POINTER = "/concurrency_key"
LONGEST_KEY = 200
EXAMPLE = "write for example 'customer-{{payload.customer}}'"

_FACT = re.compile(r"\{\{\s*([^{}]*?)\s*\}\}")
_PATH = re.compile(r"payload(\.[A-Za-z_][A-Za-z0-9_-]*)+")


def check_concurrency(spec: JobSpec, name: str) -> None:
    """Refuse limits that have no effect, and a template that cannot be read or whose key is too long."""
    if spec.concurrency_limit is None and spec.concurrency_rate is None:
        for field, value, without in (
            ("concurrency_key", spec.concurrency_key, None),
            ("concurrency_scope", spec.concurrency_scope, "job"),
        ):
            if value != without:
                raise UsageError(
                    f"{field} is {shown(value)}, but nothing is limited: give concurrency_limit or concurrency_rate "
                    f"too, or remove {field}.",
                    f"/{field}",
                )
    if spec.concurrency_key is not None:
        _check_template(spec.concurrency_key)
        concurrency_key_of(spec, name, spec.payload)


def concurrency_key_of(spec: JobSpec, name: str, payload: Any) -> str | None:
    """The key of a run of this job with this payload; None: it has no key of its own."""
    template = spec.concurrency_key
    if template is None:
        return None

    def value(found: re.Match[str]) -> str:
        return name if found[1] == "job" else _text_of(found[1], payload)

    return check_key(_FACT.sub(value, template)) or None


def check_key(key: str, pointer: str = POINTER) -> str:
    """A concurrency key that can be stored, as a caller gave it or as its template was rendered."""
    if len(key) > LONGEST_KEY:
        raise UsageError(
            f"The concurrency key {shown(key)} has {len(key)} characters and {LONGEST_KEY} are allowed: "
            "make it shorter.",
            pointer,
        )
    if "\0" in key:
        raise UsageError(
            "The concurrency key has a NUL character (\\u0000), which cannot be stored: remove it.", pointer
        )
    return key


def _check_template(template: str) -> None:
    if not template.strip() or not template.isprintable():
        raise UsageError(
            f"concurrency_key {shown(template)} is empty, or has a character that cannot be shown: {EXAMPLE}.", POINTER
        )
    for fact in _FACT.findall(template):
        if fact != "job" and not _PATH.fullmatch(fact):
            raise UsageError(
                f"concurrency_key has {{{{{fact}}}}}, which is not known: use {{{{job}}}}, or a value of the payload "
                "such as {{payload.customer}} or {{payload.customer.id}}.",
                POINTER,
            )
    rest = _FACT.sub("", template)
    if "{{" in rest or "}}" in rest:
        raise UsageError(f"concurrency_key {shown(template)} has braces that do not match: {EXAMPLE}.", POINTER)


def _text_of(path: str, payload: Any) -> str:
    value = payload
    for part in path.split(".")[1:]:
        value = value.get(part) if isinstance(value, dict) else None
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, int | float):
        return _number(value)
    raise UsageError(
        f"concurrency_key has {{{{{path}}}}}, which is {shown(value)} in the payload: a key is made of text, numbers, "
        "true and false.",
        "/" + path.replace(".", "/"),
    )


def _number(value: float) -> str:
    """As numeric in PostgreSQL, without trailing zeros and without an exponent."""
    if isinstance(value, int):
        return str(value)
    number = Decimal(repr(value))
    return str(int(number)) if number == number.to_integral_value() else f"{number.normalize():f}"
