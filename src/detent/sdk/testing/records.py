"""What a test sees of runs, and the backend of runs in test mode."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from detent.domain.job import JobSpec
from detent.domain.registration import PreparedJob, place
from detent.domain.run import Call
from detent.domain.states import RunStatus
from detent.errors import UsageError
from detent.targets.output import AttemptOutput


@dataclass(slots=True)
class TestedAttempt:
    """One call of the function: its time, its outcome, and the exception if there was one."""

    __test__ = False

    attempt: int
    at: datetime
    outcome: Literal["succeeded", "failed"]
    error: str | None = None
    exception: BaseException | None = None


@dataclass(slots=True)
class TestedRun:
    """The run of a tick. `result` is what the function returned, converted through JSON."""

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


class TestedJob:
    """A job of the app with its next tick."""

    def __init__(self, prepared: PreparedJob, function: Callable[..., Any], now: datetime) -> None:
        self.prepared = prepared
        self.function = function
        self.next_tick = place(prepared, now).next_tick
        self.runs_left = prepared.spec.max_runs
        self.triggered: datetime | None = None
        self.live: list[TestedRun] = []
        self.waiting: TestedRun | None = None
        self.backlog: list[TestedRun] = []  # triggered while the job had its maximum of unfinished runs

    @property
    def spec(self) -> JobSpec:
        return self.prepared.spec


class HeldInTest:
    """The backend of runs in test mode: a run is never lost, and a transaction uses the test's connection."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def held(self, run_id: str, token: int) -> bool:
        return True

    def output(self, call: Call) -> AttemptOutput | None:
        return None  # the lines of a test are the test's

    def progress(self, run_id: str, token: int, fraction: float, message: str) -> None:
        pass

    @asynccontextmanager
    async def transaction(self, run_id: str, token: int) -> AsyncIterator[Any]:
        if self._connection is None:
            raise UsageError(
                "run.transaction() has no database in test mode: "
                "pass one with app.test(connection=connection), or test this function by itself."
            )
        async with self._connection.transaction():
            yield self._connection
