"""A run on its way through a worker: no I/O, no clock, only imports of pure modules.

A `Claim` is a worker's hold on a run: every later write names its token. A `HeldRun` is the run in the worker's hands,
from its claim until its end is written: the one value here that changes, and that knows the task that executes it. A
`Call` is what a target receives. An `Outcome` is the result of an attempt; one `match` in `worker/settle.py` turns it
into what is written: an `End`, a `PlannedRetry` or an `Acceptance`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple
from uuid import UUID

from msgspec import Struct

from detent.domain.callbacks import CallbackTicket
from detent.domain.identity import RunKey, run_id
from detent.domain.job import Definition, Target
from detent.domain.masking import Mask
from detent.domain.states import END_CODES, Event
from detent.domain.webhooks import Signing


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
    payload: str | None = None
    """The payload of an on-demand run as JSON, '' if it has none of its own; None: not read with the claim."""
    concurrency_key: str | None = None

    @property
    def key(self) -> RunKey:
        return RunKey(self.job, self.scheduled_at, self.serial)

    @property
    def identity(self) -> tuple[int, datetime, int, int]:
        """What distinguishes this claim from any other. The token alone does not: all runs start with the same one."""
        return self.job, self.scheduled_at, self.serial, self.token

    @property
    def run_id(self) -> UUID:
        return run_id(self.key)


class Call(Struct, frozen=True):
    """What a target receives about the run: the same facts under the same names for every kind."""

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
    tenant: int = 1
    """Whose job it is: decides which addresses and commands the run may use."""
    traceparent: str | None = None
    """The parent span for what the target does; None: the run is not traced."""
    window: Callable[[], datetime | None] = lambda: None
    """Computes `window_start`, which few targets need."""
    mask: Mask | None = None
    """Hides the secrets that were filled in, and literal credentials in headers; None: there are none."""
    filled: bool = False
    """Whether the values of secrets were filled in: then nothing that is made of the target may be kept."""
    signing: Signing | None = None
    """What signs an HTTP call; None: it is not signed."""
    timezone: str = "UTC"
    """The zone of the job, in which templates read the parts of times."""
    callback: CallbackTicket | None = None
    """What the target reports the end of the run with; None: its answer is the end."""
    lost: int = 0
    """How many attempts before this one ended with the loss of their node, not with an outcome."""

    def __repr__(self) -> str:
        """Without payload and target, which may hold secrets."""
        return f"Call({self.job!r}, {self.run_id}, attempt {self.attempt})"

    @property
    def window_start(self) -> datetime | None:
        """The previous tick; the run covers the time between the two. None: there is none."""
        return self.window()


INTERRUPTED = "the run was cancelled or timed out"
"""The message with which a task is cancelled because its run is to end. A task that is cancelled without it leaves its
run to another node, with what the run began elsewhere."""


class Succeeded(Struct, frozen=True):
    result: str | None = None


class Failed(Struct, frozen=True):
    """The attempt failed. Not retryable: a retry cannot help."""

    error: str
    retryable: bool = True
    outcome: Literal["failed", "timeout", "lost"] = "failed"
    retry_after: float | None = None
    result: str | None = None
    kinds: tuple[str, ...] = ()
    """The names of the exception's class and of its base classes."""
    traceback: str | None = None
    """Of the exception, if it was raised by a function."""
    gone: bool = False
    """The target says that it will not come back: its job is paused."""


class GoneTarget(NamedTuple):
    """A job whose target answered 410 Gone to a call of this revision."""

    job: int
    revision: int
    called_at: datetime


class Cancelled(Struct, frozen=True):
    reason: str = "cancelled"


class Committed(Struct, frozen=True):
    """The handler recorded the success of the run in its own transaction; nothing is left to write."""


class Accepted(Struct, frozen=True):
    """The target has accepted the run and reports its end later: the run goes on, under a lease instead of the worker's
    hold."""

    tenant: int
    lease_seconds: float


Outcome = Succeeded | Failed | Cancelled | Committed | Accepted


class NotBegun(Struct, frozen=True):
    """Not an outcome: the target was certainly not called, because the worker lacks capacity or could not read what it
    needs for the call, or because its host does not answer. The run returns to its queue, and the attempt does not
    count."""

    why: str
    retry_after: float = 0.0
    """Seconds for which the run waits there as pending; 0: any worker may claim it at once."""


class End(NamedTuple):
    """The end of a run as it is written: the code of its status, with its texts."""

    status: int
    reason: str | None = None
    result: str | None = None
    outcome: str = "succeeded"
    error: str | None = None
    traceback: str | None = None


SUCCESS = End(END_CODES[Event.SUCCEED])
"""Nearly all runs end so, and share this object."""


class PlannedRetry(NamedTuple):
    """A failed attempt as it is written, and the delay before the next."""

    outcome: str
    error: str
    delay: timedelta
    traceback: str | None = None


class Acceptance(NamedTuple):
    """A run that its target has accepted: the hold of its node becomes a lease, which a callback ends. `time_limit`
    counts from when it was called."""

    tenant: int
    time_limit: timedelta
    lease: timedelta
    outcome: str = "accepted"
    error: str | None = None
    traceback: str | None = None


class HeldRun:
    """A run that a worker holds: it waits for a slot, is called, or is over and being settled. There is one such object
    for each run, whose fields are filled in on its way: what is written of it are columns of these.

    Times are in seconds since 1970 on the database's clock, which cost a third of what datetimes do."""

    __slots__ = (
        *("alone", "begun", "called", "claim", "definition", "end", "expired", "finished", "followed", "gone", "over"),
        *("staggered", "started", "stop", "task", "tenant", "waited"),
    )

    def __init__(self, claim: Claim, started: float, tenant: int = 0) -> None:
        """`started`: when the worker got it, and later when its target was called. `tenant`: whose turn it is when this
        run starts (worker/queues/book.py)."""
        self.claim = claim
        self.tenant = tenant
        self.started = started
        self.definition: Definition | None = None
        # The asyncio task that executes it.
        self.task: Any = None
        self.begun = False
        # Its target is being called, or was: from here on it has an outcome, and is never given back as not started.
        self.called = False
        # It is tried alone (worker/suspects.py).
        self.alone = False
        self.stop = False
        self.expired = False
        # It did not end in the pass of the event loop in which it began: its time limit is watched.
        self.waited = False
        # Its outcome is with the settler.
        self.over = False
        # Another run of its job may wait for its end.
        self.followed = False
        # Its target says that it will not come back.
        self.gone = False
        # How many seconds after its tick it was to start, because its release is staggered.
        self.staggered = 0.0
        self.finished = 0.0
        self.end: End | PlannedRetry | Acceptance | None = None

    @property
    def outcome(self) -> str:
        return "" if self.end is None else self.end.outcome


def ended(claim: Claim, started: float, finished: float, end: End | PlannedRetry | Acceptance = SUCCESS) -> HeldRun:
    """A run with the end of its attempt, where no worker led it there step by step."""
    run = HeldRun(claim, started)
    run.finished, run.end = finished, end
    return run
