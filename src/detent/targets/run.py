"""What a handler gets: its run, with what it can do as that run. Exported as `detent.Run`."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from copy import deepcopy
from datetime import datetime, timedelta
from functools import cached_property, partial
from typing import Any, ParamSpec, Protocol, TypeVar, overload

from detent.domain.effects import KEPT_DAYS, EffectScope, NewStep, OnceKey, once_key
from detent.domain.masking import Mask
from detent.domain.run import Call
from detent.domain.run_output import LONGEST_MESSAGE
from detent.errors import OwnershipLost, UsageError
from detent.targets.once import Once, Wait, alone
from detent.targets.output import AttemptOutput
from detent.targets.redis_once import RedisClient, RedisOnce
from detent.targets.steps import RunSteps, StepLedger
from detent.targets.text import storable_text
from detent.telemetry.log import logger
from detent.telemetry.tracing import traceparent_of

# What sums of fractions may be off by.
_ROUNDING = 1e-6
_KEPT_FOR = timedelta(days=KEPT_DAYS)

P = ParamSpec("P")
R = TypeVar("R")


class Backend(Protocol):
    """The node that holds a run, as the handler's run sees it."""

    def held(self, run_id: str, token: int) -> bool:
        """Whether this node still holds the run, and the run was not asked to stop."""
        ...

    def transaction(self, run_id: str, token: int) -> AbstractAsyncContextManager[Any]:
        """A transaction that ends the run when it commits."""
        ...

    def once(self, run_id: str, token: int, once: OnceKey) -> AbstractAsyncContextManager[Any]:
        """A transaction that marks an effect as done when it commits: its connection, or None if it is done."""
        ...

    async def steps(self, run_id: str, token: int) -> dict[str, str | None]:
        """The stored steps of the run, with their results as JSON."""
        ...

    async def add_step(self, run_id: str, token: int, step: NewStep) -> None:
        """Store a step, unless the run was lost."""
        ...

    def output(self, call: Call) -> AttemptOutput | None:
        """Where the lines of this attempt are kept; asked for with the first of them. None: they are not kept."""
        ...

    def progress(self, run_id: str, token: int, fraction: float, message: str) -> None:
        """Record how far the run is, soon and not necessarily each time."""
        ...


class HandlerRun:
    """One attempt of one run, as its handler sees it."""

    def __init__(self, call: Call, backend: Backend) -> None:
        self._call = call
        self._backend = backend
        self.committed = False
        # Awaits on the handlers' loop, from the thread of a plain function; None: the handler is a coroutine.
        self.wait: Wait | None = None
        self._steps: RunSteps | None = None
        # Made with the first line, in whatever thread writes it.
        self._output: AttemptOutput | None = None
        self._silent = False
        self._unlogged = 0
        self._window_start = call.window_start  # computed here: the handler may be in another thread

    @cached_property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """The log of this run: its lines are kept with the attempt, and are in the log of the node."""
        name = f"detent.run.{self._call.job}"
        return logging.LoggerAdapter(logging.getLogger(name), {"run_id": self.id, "attempt": self.attempt})

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

    @cached_property
    def traceparent(self) -> str:
        """The trace context of this attempt, for calls that the handler makes."""
        return self._call.traceparent or traceparent_of(self._call.run_id)

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

    def progress(self, fraction: float, message: str = "") -> None:
        """Report how far this run is, from 0 to 1, with a word about what it does. Call it as often as you like: it is
        written a few times a second at most."""
        try:
            number = float(fraction)
        except (TypeError, ValueError):
            number = -1.0
        if not -_ROUNDING <= number <= 1 + _ROUNDING:
            raise UsageError(f"run.progress got {fraction!r}: give a fraction from 0 to 1, such as 0.4.")
        text = str(message)[:LONGEST_MESSAGE]
        hidden = text if self.mask is None else self.mask.cut_text(text)
        self._backend.progress(self.id, self.token, min(max(number, 0.0), 1.0), storable_text(hidden))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        """A transaction on detent's database in which the handler's effects and the run's success commit together.

        Yields an asyncpg connection. When the block ends without an error, the run is recorded as succeeded in the same
        transaction: both commit or neither. If the run was lost meanwhile, OwnershipLost is raised and nothing is
        written.
        """
        with alone("run.transaction()"):
            async with self._backend.transaction(self.id, self.token) as connection:
                yield connection
        self.committed = True

    # --- what has been done already ---

    @overload
    async def step(self, name: str, function: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    async def step(self, name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    async def step(self, name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a function and store its result, as JSON. A later attempt of this run gets the stored result, and does
        not call the function again.

            charge = await run.step("charge", charge_card, order)

        A crash between the end of the function and the store repeats the step: give what it calls a key, such as
        `run.idempotency_key`.
        """
        return await self._stepping().perform(name, function, args, kwargs)

    def step_sync(self, name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """As `step`, in a plain function."""
        result: R = self._stepping().perform_sync(name, function, args, kwargs, self._waiting())
        return result

    @overload
    def once(
        self, key: str, *, scope: EffectScope = "job", keep_for: float | timedelta = _KEPT_FOR, redis: None = None
    ) -> Once: ...
    @overload
    def once(
        self, key: str, *, scope: EffectScope = "job", keep_for: float | timedelta = _KEPT_FOR, redis: RedisClient
    ) -> RedisOnce: ...
    def once(
        self,
        key: str,
        *,
        scope: EffectScope = "job",
        keep_for: float | timedelta = _KEPT_FOR,
        redis: RedisClient | None = None,
    ) -> Once | RedisOnce:
        """An effect that happens once per key, whichever run does it.

            async with run.once("invoice-42") as effect:
                if effect.first:
                    await effect.connection.execute("INSERT INTO invoices …")

        The effect is marked as done when the block ends without an error, in the transaction of `effect.connection`:
        statements on it happen exactly once. Everything else in the block happens at least once: a crash before the end
        of the block repeats it. A second caller with the same key waits for the first.

        `scope`: of which jobs the key is, this job or all of its tenant. `keep_for`: a timedelta, or seconds;
        afterwards the effect may happen again. `redis`: keep the mark in this Redis instead.
        """
        call = self._call
        once = once_key(key, scope, keep_for, tenant=call.tenant, timeout_seconds=call.timeout_seconds)
        if redis is not None:
            owner = f"tenant-{once.tenant}" if once.shared else self.job_id
            name = f"detent:once:{owner}:{key}"
            return RedisOnce(key, name, redis, once.kept_for, self.id, self.heartbeat)
        return Once(key, partial(self._backend.once, self.id, self.token, once), self._waiting)

    def _stepping(self) -> RunSteps:
        if self._steps is None:
            load = partial(self._backend.steps, self.id, self.token)
            self._steps = RunSteps(self, StepLedger(load, partial(self._backend.add_step, self.id, self.token)))
        return self._steps

    def _waiting(self) -> Wait:
        if self.wait is None:
            raise UsageError(
                "This is for plain functions: in a coroutine, write `await run.step(…)` and `async with run.once(…)`."
            )
        return self.wait

    # --- lines of this attempt (telemetry/capture.py) ---

    @property
    def facts(self) -> Mapping[str, object]:
        return {"job": self.job, "run_id": self.id, "attempt": self.attempt}

    def logged(self, record: logging.LogRecord) -> bool:
        """The log of the node has the first lines only: writing a line there costs more than keeping it here."""
        output = self._output or self._begin_output()
        if output is None or output.over or output.log(record):
            return True
        self._unlogged += 1
        return False

    def printed(self, stream: str, text: str) -> None:
        output = self._output or self._begin_output()
        if output is not None and not output.over:
            output.printed(stream, text)

    def _begin_output(self) -> AttemptOutput | None:
        """Two threads may both be first: the attribute decides, and the output that lost is empty."""
        if self._silent:
            return None
        made = self._backend.output(self._call)
        self._silent = made is None
        if self._output is None:
            self._output = made
        return self._output

    def ended(self) -> None:
        """The handler has returned: what it left running writes no more lines of this attempt."""
        self._silent = True
        if self._output is not None:
            self._output.end()
            if self._unlogged:
                # Created here, because users import this module.
                logger("python").info("lines of this attempt are not in this log", **self.facts, lines=self._unlogged)
