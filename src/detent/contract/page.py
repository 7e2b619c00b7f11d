"""Lists in the public API, page by page."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Generic, TypeVar

from msgspec import Meta, Struct

Instant = Annotated[datetime, Meta(tz=True)]


Item = TypeVar("Item")


class Page(Struct, Generic[Item], frozen=True):
    """A page of a list; `next_cursor` continues with the next page, and is null at the end."""

    items: list[Item]
    next_cursor: str | None
