"""What a test sees of runs, and the backend of runs in test mode."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from detent.domain.effects import NewStep, OnceKey
from detent.domain.job import JobSpec
from detent.domain.registration import PreparedJob, place
from detent.domain.run import Call
from detent.domain.states import OPEN, RunStatus
from detent.errors import UsageError
from detent.sdk.binding import Binding
from detent.sdk.testing.ledger import TestLedger
from detent.targets.output import AttemptOutput


@dataclass(slots=True)
class TestedAttempt:
    """One call of the function: its time, its outcome, and the exception if there was one."""

    __test__ = False

    attempt: int
    at: datetime
    outcome: Literal["succeeded", "failed", "cancelled"]
    error: str | None = None
    exception: BaseException | None = None


@dataclass(slots=True)
class TestedRun:
    """The run of a tick, or one that was enqueued. `result` is what the function returned, converted through JSON;
    `logs` are the messages of `run.log`, and `progress` is the last one that it reported, with its message."""

    __test__ = False

    id: str
    job: str
    scheduled_at: datetime
    idempotency_key: str
    payload: Any
    status: RunStatus = RunStatus.PENDING
    reason: str | None = None
    result: Any = None
    attempts: list[TestedAttempt] = field(default_factory=list)
    priority: int = 5
    queue: str = "default"
    unique_key: str | None = None
    concurrency_key: str | None = None
    logs: list[str] = field(default_factory=list)
    progress: tuple[float, str] | None = None
    stopping: bool = False
    """Whether it was cancelled while its function ran."""

    @property
    def attempt(self) -> int:
        """How many times the function was called."""
        return len(self.attempts)

    @property
    def outcome(self) -> str | None:
        """The outcome of the last attempt; None when there was none."""
        return self.attempts[-1].outcome if self.attempts else None

    @property
    def error(self) -> str | None:
        return self.attempts[-1].error if self.attempts else None

    @property
    def unfinished(self) -> bool:
        return self.status in OPEN


class TestedJob:
    """A job of the app with its next tick."""

    __test__ = False

    def __init__(self, prepared: PreparedJob, binding: Binding, now: datetime) -> None:
        self.prepared = prepared
        self.binding = binding
        self.next_tick = place(prepared, now).next_tick
        self.runs_left = prepared.spec.max_runs
        self.enqueued = 0
        self.live: list[TestedRun] = []
        self.waiting: TestedRun | None = None
        self.backlog: list[TestedRun] = []  # due while the job had its maximum of unfinished runs
        self.ended_at: datetime | None = None  # the last end of a run
        self.replaced = False  # by another definition of the same name

    @property
    def spec(self) -> JobSpec:
        return self.prepared.spec

    def has_place(self) -> bool:
        if self.spec.schedule is None:
            return True  # any number of runs of a task may be unfinished
        match self.spec.concurrent_policy:
            case "QUEUE":
                return self.waiting is None
            case "REPLACE":
                return True
            case _:
                return len(self.live) < self.prepared.lanes


class HeldInTest:
    """The backend of one attempt in test mode: a transaction uses the test's connection."""

    def __init__(self, connection: Any, run: TestedRun | None = None, ledger: TestLedger | None = None) -> None:
        self._connection = connection
        self._run = run
        self._ledger = ledger or TestLedger()

    def held(self, run_id: str, token: int) -> bool:
        return self._run is None or not self._run.stopping

    def progress(self, run_id: str, token: int, fraction: float, message: str) -> None:
        if self._run is not None:
            self._run.progress = (fraction, message)

    def output(self, call: Call) -> AttemptOutput | None:
        return None  # `RunLines` keeps what a test sees

    @asynccontextmanager
    async def transaction(self, run_id: str, token: int) -> AsyncIterator[Any]:
        if self._connection is None:
            raise UsageError(
                "run.transaction() has no database in test mode: "
                "pass one with app.test(connection=connection), or test this function by itself."
            )
        async with self._connection.transaction():
            yield self._connection

    def once(self, run_id: str, token: int, once: OnceKey) -> AbstractAsyncContextManager[Any]:
        return self._ledger.once("" if self._run is None else self._run.job, once, self._connection)

    async def steps(self, run_id: str, token: int) -> dict[str, str | None]:
        return self._ledger.steps(run_id)

    async def add_step(self, run_id: str, token: int, step: NewStep) -> None:
        self._ledger.add_step(run_id, step)


class RunLines(logging.Handler):
    """Keeps what functions write to `run.log`, while a test is in its test mode."""

    def __init__(self, runs: dict[str, TestedRun]) -> None:
        super().__init__()
        self._runs = runs
        self._logger = logging.getLogger("detent.run")
        self._level = self._logger.level

    def emit(self, record: logging.LogRecord) -> None:
        run = self._runs.get(str(getattr(record, "run_id", "")))
        if run is not None:
            run.logs.append(record.getMessage())

    def begin(self) -> None:
        self._level = self._logger.level
        self._logger.addHandler(self)
        self._logger.setLevel(logging.DEBUG)

    def end(self) -> None:
        self._logger.removeHandler(self)
        self._logger.setLevel(self._level)
