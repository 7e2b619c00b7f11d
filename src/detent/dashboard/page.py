"""What a view is, and what it is given."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from starlette.requests import Request

from detent.api.context import Api
from detent.api.request_parsing import decode_segment
from detent.dashboard.entrance import Visitor


@dataclass(frozen=True, slots=True)
class Page:
    """One look at a page: who looks, at what, and when. `api` acts as the one who looks."""

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
        """All that decides how the page looks, but for the time."""
        who = self.visitor.caller
        return self.path, tuple(sorted(self.query.items())), who.tenant, who.scope

    def number(self, name: str, default: int, most: int) -> int:
        text = self.query.get(name, "")
        return min(int(text), most) if text.isdecimal() and len(text) < 10 else default


Look = Callable[[Page], Awaitable[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class View:
    """A page: where it is, how it looks, and which of its blocks are kept up to date."""

    name: str
    path: str
    look: Look
    parts: tuple[str, ...] = ()
    template: str = field(default="")

    @property
    def file(self) -> str:
        return self.template or f"{self.name}.html"


def names_of(request: Request) -> dict[str, str]:
    return {name: decode_segment(value) for name, value in request.path_params.items()}
