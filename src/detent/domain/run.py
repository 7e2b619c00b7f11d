"""The values that travel between the parts. No I/O, no clock, imports nothing of ours but pure modules.

`JobSpec` is the document people send; its field names are the public contract. `Claim` is a worker's hold on a run:
every later write names its token. `Call` is what a target is told. An `Outcome` is what became of an attempt; one
`match` in `worker/settle.py` turns it into a transition.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Literal, NamedTuple
from uuid import UUID

from msgspec import Struct

from detent.domain.identity import RunKey, run_id
from detent.domain.job import Target


class Claim(NamedTuple):
    """A node's hold on a run, as the database granted it."""

    job: int
    lane: int
    scheduled_at: datetime
    serial: int
    token: int
    revision: int
    attempt: int = 1
    crashes: int = 0
    once: bool = False
    cancel: bool = False
    queue: int = 0

    @property
    def key(self) -> RunKey:
        return RunKey(self.job, self.scheduled_at, self.serial)

    @property
    def identity(self) -> tuple[int, datetime, int, int]:
        """What tells this hold from any other. The token alone does not: first tokens of all runs are alike."""
        return self.job, self.scheduled_at, self.serial, self.token

    @property
    def run_id(self) -> UUID:
        return run_id(self.key)


class Call(Struct, frozen=True):
    """What a target is told about the run: the same facts under the same names for every kind."""

    job_id: str
    job: str
    run_id: str
    scheduled_at: datetime
    attempt: int
    idempotency_key: str
    token: int
    payload: Any
    target: Target
    timeout_seconds: float
    traceparent: str | None = None
    """Where its trace goes on, for what the target does; None: nobody traces it."""
    window: Callable[[], datetime | None] = lambda: None
    """Works out `window_start`, which not every target wants to know."""

    @property
    def window_start(self) -> datetime | None:
        """The tick before this one; the run is about the time between the two. None: there is none."""
        return self.window()


class Succeeded(Struct, frozen=True):
    result: str | None = None


class Failed(Struct, frozen=True):
    """The attempt did not succeed. Not retryable: trying again cannot help."""

    error: str
    retryable: bool = True
    outcome: Literal["failed", "timeout"] = "failed"
    retry_after: float | None = None
    result: str | None = None
    kinds: tuple[str, ...] = ()
    """What an exception is: the names of its class and of those that it is derived from."""


class Cancelled(Struct, frozen=True):
    reason: str = "cancelled"


class Committed(Struct, frozen=True):
    """The handler recorded its own success inside its own transaction; there is nothing left to write."""


Outcome = Succeeded | Failed | Cancelled | Committed


class NotBegun(Struct, frozen=True):
    """No outcome: the target was surely never called, for want of what it needs. The run goes back, uncounted."""

    why: str
