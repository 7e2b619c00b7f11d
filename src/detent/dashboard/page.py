"""A page view, and the request that it is given."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from starlette.requests import Request

from detent.api.context import Api
from detent.api.request_parsing import decode_segment
from detent.dashboard.authentication import Visitor
from detent.errors import UsageError


@dataclass(frozen=True, slots=True)
class PageRequest:
    """One request for a page: the visitor, the path and the time. `api` acts as this visitor."""

    api: Api
    visitor: Visitor
    path: str
    query: Mapping[str, str]
    names: Mapping[str, str]
    now: datetime

    @property
    def tenant(self) -> int:
        return self.api.tenant

    @property
    def key(self) -> tuple[object, ...]:
        """Everything that decides the content of the page, except the time."""
        caller = self.visitor.caller
        return self.path, tuple(sorted(self.query.items())), caller.tenant, caller.grants

    @property
    def limited(self) -> bool:
        """Whether the visitor sees some jobs of the tenant only: figures of all are not for this page."""
        return self.visitor.caller.limits("read") is not None

    def number(self, name: str, default: int, largest: int) -> int:
        text = self.query.get(name, "")
        return min(int(text), largest) if text.isdecimal() and len(text) < 10 else default


Load = Callable[[PageRequest], Awaitable[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class PageView:
    """A page: its path, the function that loads its values, and the template blocks that are updated live."""

    name: str
    path: str
    load: Load
    parts: tuple[str, ...] = ()
    template: str = field(default="")

    @property
    def file(self) -> str:
        return self.template or f"{self.name}.html"


def query_of(request: Request) -> dict[str, str]:
    query = dict(request.query_params)
    for name, text in query.items():
        if "\0" in text:
            raise UsageError(f"The query parameter {name} has a NUL character: remove it.", f"/{name}")
    return query


def names_of(request: Request) -> dict[str, str]:
    return {name: decode_segment(value) for name, value in request.path_params.items()}
