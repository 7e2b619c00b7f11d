"""Jobs and runs as people read them. Field names, their order and their meaning are the public contract."""

from __future__ import annotations

from msgspec import Struct

from detent.contract.page import Instant


class Queue(Struct, frozen=True, kw_only=True):
    """A queue with its limits, null where there is none, how many runs wait in it and how many are under way, and since
    when the oldest waits that could start."""

    name: str
    max_concurrent: int | None
    rate_per_second: float | None
    waiting: int
    running: int
    oldest_ready_at: Instant | None
