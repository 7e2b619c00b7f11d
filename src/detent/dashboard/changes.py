"""What a change is, that somebody asks for on a page, and what they are answered."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

from starlette.requests import Request

from detent.api.auth import Scope
from detent.api.context import Api
from detent.api.request_parsing import check_content_type, read_body
from detent.errors import UsageError

FORM = "application/x-www-form-urlencoded"
MOST_FIELDS = 2_000
# Of a payload, each byte may be three in a form.
ENCODED = 3

Form = Mapping[str, list[str]]


@dataclass(frozen=True, slots=True)
class Answer:
    """A sentence that is said in passing; or a page to go to; or a piece of a page, with its values."""

    said: str = ""
    go_to: str | None = None
    template: str | None = None
    values: Mapping[str, Any] = field(default_factory=dict)


Make = Callable[[Api, Mapping[str, str], Form], Coroutine[Any, Any, Answer]]


@dataclass(frozen=True, slots=True)
class Change:
    """`changes`: whether anything is different afterwards, so that pages are to look again."""

    path: str
    scope: Scope
    make: Make
    changes: bool = True


async def form_of(request: Request, api: Api) -> Form:
    check_content_type(request, (FORM,))
    raw = await read_body(request, api.max_body_bytes * ENCODED)
    try:
        return parse_qs(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS)
    except ValueError as error:
        raise UsageError(f"The form cannot be read ({error}): reload the page and try again.") from error


def number_of(form: Form, name: str) -> int:
    """A count that a page of ours was given and hands back; 0 where it is none."""
    text = text_of(form, name)
    return int(text) if text.isdecimal() and len(text) < 12 else 0


def text_of(form: Form, name: str) -> str:
    """A field of a form as text without spaces around it; empty where it is not there."""
    return form.get(name, [""])[-1].strip()
