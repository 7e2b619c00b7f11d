"""Queues in the public API."""

from __future__ import annotations

from msgspec import Struct

from detent.contract.page import Instant


class Queue(Struct, frozen=True, kw_only=True):
    """A queue with its limits (null: none), how many runs wait and how many run, and since when its oldest ready run
    has waited. `more`: more on-demand runs wait than were counted. `channels`: the numbers under which a broker offers
    its runs, one for each kind of target."""

    name: str
    max_concurrent: int | None
    rate_per_second: float | None
    waiting: int
    running: int
    oldest_ready_at: Instant | None
    more: bool = False
    channels: list[int] = []
