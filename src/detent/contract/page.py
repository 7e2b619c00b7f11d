"""Jobs and runs as people read them. Field names, their order and their meaning are the public contract."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Generic, TypeVar

from msgspec import Meta, Struct

Instant = Annotated[datetime, Meta(tz=True)]


Item = TypeVar("Item")


class Page(Struct, Generic[Item], frozen=True):
    """Some of a list; `next_cursor` asks for what follows, and is null at the end."""

    items: list[Item]
    next_cursor: str | None
