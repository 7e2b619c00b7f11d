"""What a handler gets: its run, with what it can do as that run. Exported as `detent.Run`."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from copy import deepcopy
from datetime import datetime
from functools import cached_property
from typing import Any, Protocol

from detent.domain.masking import Mask
from detent.domain.run import Call
from detent.errors import OwnershipLost
from detent.telemetry.tracing import traceparent_of


class Backend(Protocol):
    """The node that holds a run, as the handler's run sees it."""

    def held(self, run_id: str, token: int) -> bool:
        """Whether this node still holds the run, and the run was not asked to stop."""
        ...

    def transaction(self, run_id: str, token: int) -> AbstractAsyncContextManager[Any]:
        """A transaction that ends the run when it commits."""
        ...


class HandlerRun:
    """One attempt of one run, as its handler sees it."""

    def __init__(self, call: Call, backend: Backend) -> None:
        self._call = call
        self._backend = backend
        self.committed = False
        self._untraced = traceparent_of(call.run_id)
        self._window_start = call.window_start  # computed here: the handler may be in another thread
        self.log = logging.LoggerAdapter(
            logging.getLogger(f"detent.run.{call.job}"), {"run_id": call.run_id, "attempt": call.attempt}
        )

    @property
    def mask(self) -> Mask | None:
        """What hides the secrets in its payload from the log."""
        return self._call.mask

    @property
    def id(self) -> str:
        return self._call.run_id

    @property
    def job(self) -> str:
        return self._call.job

    @property
    def job_id(self) -> str:
        return self._call.job_id

    @property
    def scheduled_at(self) -> datetime:
        """The tick: when the run was scheduled, not when it started."""
        return self._call.scheduled_at

    @property
    def traceparent(self) -> str:
        """The trace context of this attempt, for calls that the handler makes."""
        return self._call.traceparent or self._untraced

    @property
    def window_start(self) -> datetime | None:
        """The previous tick of the job's schedule, whether or not it ran; None: there is none."""
        return self._window_start

    @property
    def window_end(self) -> datetime:
        """The tick: with `window_start`, the time that the run covers."""
        return self._call.scheduled_at

    @property
    def attempt(self) -> int:
        """1 for the first attempt."""
        return self._call.attempt

    @cached_property
    def payload(self) -> Any:
        """The run's own copy: changing it does not affect other runs."""
        return deepcopy(self._call.payload)

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt of this run, and for no other run."""
        return self._call.idempotency_key

    @property
    def token(self) -> int:
        """Grows with every claim of this run: a system that remembers the largest token of a run can refuse a worker
        that has lost it."""
        return self._call.token

    def heartbeat(self) -> None:
        """For long work: raises OwnershipLost when the run was cancelled or taken over. Then stop."""
        if not self._backend.held(self.id, self.token):
            raise OwnershipLost("This run was cancelled or taken over: stop, its result would be refused.")

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        """A transaction on detent's database in which the handler's effects and the run's success commit together.

        Yields an asyncpg connection. When the block ends without an error, the run is recorded as succeeded in the same
        transaction: both commit or neither. If the run was lost meanwhile, OwnershipLost is raised and nothing is
        written.
        """
        async with self._backend.transaction(self.id, self.token) as connection:
            yield connection
        self.committed = True
