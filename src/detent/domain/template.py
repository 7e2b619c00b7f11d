"""Templates of HTTP targets: text with placeholders such as `{{ scheduled_at.date }}` or `{{ payload.customer.id }}`.

A placeholder names a fact of the run or a value of the payload. There is no code: no expressions, no conditions, no
loops. A literal `{{` is written `{{ "{{" }}`; `}}` outside a placeholder is text. No I/O.

Keys (`schedule/keys.py`, `concurrency.py`) have the same braces and fewer facts: a key must not depend on the attempt,
and SQL functions render those of concurrency as well.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from detent.domain.refusal import nearest

OPEN, CLOSE = "{{", "}}"
ESCAPED = '{{ "{{" }}'
MAX_PLACEHOLDERS = 200

TIMES = ("scheduled_at", "window_start", "window_end")
TIME_PARTS = ("date", "time", "hour", "week", "month", "year", "unix", "local")
FACTS = ("job", "job_id", "run_id", "attempt", "token", "idempotency_key", *TIMES, "payload")
# Without names of days and months: these depend on the language of the worker's system.
DIRECTIVES = "YmdHMSjyGVuz%"

_ESCAPED = re.compile(r'\{\{\s*"\{\{"\s*\}\}')
_NAME = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_DIRECTIVE = re.compile("%(.?)", re.DOTALL)


class TemplateError(ValueError):
    """A template that cannot be read; `path` leads to it in a document of templates."""

    path: tuple[str | int, ...] = ()


class Placeholder(NamedTuple):
    """`path` is the name, divided at its dots; `form` a format of strftime for a time."""

    path: tuple[str, ...]
    form: str | None = None

    def __str__(self) -> str:
        return ".".join(self.path)


Pieces = tuple[str | Placeholder, ...]


def is_template(text: str) -> bool:
    return OPEN in text


def as_literal(text: str) -> str:
    """The template that renders exactly this text."""
    return text.replace(OPEN, ESCAPED) if OPEN in text else text


def parse(text: str) -> Pieces:
    """Texts and placeholders in turn; TemplateError with the position of what cannot be read."""
    pieces: list[str | Placeholder] = []
    place = 0
    while (start := text.find(OPEN, place)) >= 0:
        _add(pieces, text[place:start])
        if escaped := _ESCAPED.match(text, start):
            _add(pieces, OPEN)
            place = escaped.end()
            continue
        end = text.find(CLOSE, start + 2)
        if end < 0:
            raise TemplateError(
                f"The placeholder at character {start + 1} has no end: close it with }}}}, or write a literal {{{{ as "
                f"{ESCAPED}."
            )
        pieces.append(_read(text[start + 2 : end], start + 1))
        place = end + 2
    _add(pieces, text[place:])
    if sum(isinstance(piece, Placeholder) for piece in pieces) > MAX_PLACEHOLDERS:
        raise TemplateError(f"The template has more than {MAX_PLACEHOLDERS} placeholders: use fewer.")
    return tuple(pieces)


def _add(pieces: list[str | Placeholder], text: str) -> None:
    if text and pieces and isinstance(pieces[-1], str):
        pieces[-1] += text
    elif text:
        pieces.append(text)


def _read(inside: str, position: int) -> Placeholder:
    written, pipe, form = inside.partition("|")
    name, form = written.strip(), form.strip()
    at = f"at character {position}"
    if not _NAME.fullmatch(name):
        raise TemplateError(
            f"{_quoted(inside)} {at} is not the name of a fact: write for example {{{{ scheduled_at.date }}}} or "
            f"{{{{ payload.customer.id }}}}; a literal {{{{ is written {ESCAPED}."
        )
    path = tuple(name.split("."))
    if path[0] not in FACTS:
        raise TemplateError(f"{_quoted(name)} {at} is not known{_meant(name)}; known are {', '.join(FACTS)}.")
    if path[0] in TIMES:
        _check_time(path, at)
    elif path[0] != "payload" and len(path) > 1:
        raise TemplateError(f"{_quoted(name)} {at} is not known: {path[0]} has no parts; write {path[0]}.")
    if not pipe:
        return Placeholder(path)
    if path[0] not in TIMES or len(path) > 1:
        raise TemplateError(f"{_quoted(name)} {at} has a format, which only {', '.join(TIMES)} can have: remove it.")
    _check_form(form, at)
    return Placeholder(path, form)


def _check_time(path: tuple[str, ...], at: str) -> None:
    if len(path) > 2 or (len(path) == 2 and path[1] not in TIME_PARTS):
        near = nearest(path[1], TIME_PARTS)
        meant = f" (did you mean {path[0]}.{near}?)" if near else ""
        raise TemplateError(
            f"{_quoted('.'.join(path))} {at} is not known{meant}; the parts of {path[0]} are {', '.join(TIME_PARTS)}."
        )


def _check_form(form: str, at: str) -> None:
    if not form or not form.isprintable():
        raise TemplateError(f"The format {at} is empty or cannot be shown: write for example %Y-%m-%d.")
    for directive in _DIRECTIVE.findall(form):
        if not directive or directive not in DIRECTIVES:
            known = " ".join(f"%{one}" for one in DIRECTIVES)
            raise TemplateError(f"The format {at} has %{directive}, which is not known: use {known}.")


def _meant(name: str) -> str:
    """`date` is a part of a time, as in the templates of keys; other names may be misspelt."""
    if name in TIME_PARTS:
        return f" (did you mean scheduled_at.{name}?)"
    first, *rest = name.split(".")
    near = nearest(first, FACTS)
    return f" (did you mean {'.'.join([near, *rest])}?)" if near else ""


def _quoted(inside: str) -> str:
    shown = " ".join(inside.split())
    return f"{{{{ {shown if len(shown) <= 60 else shown[:59] + '…'} }}}}"
