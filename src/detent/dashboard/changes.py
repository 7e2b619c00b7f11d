"""A change that a page requests with a form, and the answer to it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

from starlette.requests import Request

from detent.api.context import Api
from detent.api.request_parsing import check_content_type, read_body
from detent.domain.roles import Scope
from detent.errors import UsageError

FORM = "application/x-www-form-urlencoded"
MAX_FIELDS = 2_000
# Form encoding can turn each byte of a payload into three.
ENCODED_BYTES = 3
# A key and a path. The login form needs no session, so any client may send it.
LOGIN_BYTES = 16_384
# Everything but a payload: a page full of chosen runs is the most.
FORM_BYTES = 262_144

Form = Mapping[str, list[str]]


@dataclass(frozen=True, slots=True)
class ChangeAnswer:
    """One of: a message shown as a toast, a page to redirect to, or a template to render with its values."""

    message: str = ""
    redirect: str | None = None
    template: str | None = None
    values: Mapping[str, Any] = field(default_factory=dict)


Apply = Callable[[Api, Mapping[str, str], Form], Coroutine[Any, Any, ChangeAnswer]]


@dataclass(frozen=True, slots=True)
class FormChange:
    """A form that a page can post. `modifies`: it changes data, so open pages are refreshed afterwards. `payload`: it
    has a field for a job's payload, so it may be large."""

    path: str
    scope: Scope
    apply: Apply
    modifies: bool = True
    payload: bool = False

    def max_bytes(self, api: Api) -> int:
        return api.max_body_bytes * ENCODED_BYTES if self.payload else FORM_BYTES


async def read_form(request: Request, max_bytes: int) -> Form:
    check_content_type(request, (FORM,))
    raw = await read_body(request, max_bytes)
    try:
        form = parse_qs(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS)
    except ValueError as error:
        raise UsageError(f"The form cannot be read ({error}): reload the page and try again.") from error
    for name, texts in form.items():
        if any("\0" in text for text in texts):
            raise UsageError(f"The field {name} has a NUL character: remove it.", f"/{name}")
    return form


def number_of(form: Form, name: str) -> int:
    """A count that an earlier answer put into the form; 0 if it is not a number."""
    text = text_of(form, name)
    return int(text) if text.isdecimal() and len(text) < 12 else 0


def text_of(form: Form, name: str) -> str:
    """The stripped text of a form field; empty if the field is missing."""
    return form.get(name, [""])[-1].strip()
