"""Queues in the public API."""

from __future__ import annotations

from msgspec import Struct

from detent.contract.page import Instant


class QueueChannel(Struct, frozen=True):
    """The number under which a broker offers runs of a queue, and what a worker needs to execute them: `python:` and
    the name of a function, `shell`, or nothing for HTTP; after `task:`, for runs of jobs without a schedule."""

    channel: int
    needs: str


class Queue(Struct, frozen=True, kw_only=True):
    """A queue with its limits (null: none), how many runs wait and how many run. `waiting` are all runs that have not
    started; `ready` are those of them that wait for a worker or for a limit, not for their time, a retry or another
    run. The oldest ready run has waited since `oldest_ready_at`, for `oldest_ready_seconds` (0 if there is none).
    `more`: more on-demand runs wait than were counted. `channels`: under which numbers a broker offers its runs, one
    for each kind of target."""

    name: str
    max_concurrent: int | None
    rate_per_second: float | None
    waiting: int
    ready: int
    running: int
    oldest_ready_at: Instant | None
    oldest_ready_seconds: float
    more: bool = False
    channels: list[QueueChannel] = []
