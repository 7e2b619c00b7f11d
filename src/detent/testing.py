"""Test mode: an app's schedules and functions under a clock that the test moves. No database, no server, no waiting.

    with app.test(start="2026-03-28T12:00:00Z") as t:
        t.advance(days=2)
    assert [run.scheduled_at.hour for run in t.runs] == [8, 7]

Ticks come from the same schedules as in production, with time zones and DST; a function that raises is tried again as
its job says; a tick whose job still has a run waiting for its next try is skipped, as the overlap rule says. Moving the
clock runs what becomes due, one after another, in the test's own thread. Four things are simpler than in production: a
function takes no time, so nothing times out; the wait before a retry is always the longest the policy allows, without
jitter; a tick is not spread by `jitter_seconds`; and `H` in a cron expression stands for another minute. Only jobs that
call a function of the app are run.
"""

from __future__ import annotations

import asyncio
import heapq
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, Literal, Protocol, TypedDict, TypeVar, Unpack
from uuid import NAMESPACE_URL, uuid5

import msgspec

from detent.errors import NotFound, UsageError
from detent.identity import MANUAL, MILLISECOND, RunKey, first_token, run_id
from detent.keys import idempotency_key
from detent.model import Call, JobSpec, PythonTarget
from detent.registration import Prepared, place, prepare, read_document
from detent.retry import longest_delay
from detent.run import Run
from detent.states import RunStatus
from detent.targets.python import as_json, takes_run

START = datetime(2026, 1, 1, tzinfo=UTC)
MOST_ATTEMPTS = 100_000

Answer = TypeVar("Answer")
# A coroutine to be run by whoever drives the steps, and its result sent back.
Steps = Generator[Coroutine[Any, Any, Any], Any, Answer]


class App(Protocol):
    """What is tested: a `Detent`."""

    name: str | None
    functions: dict[str, Callable[..., Any]]
    jobs: list[dict[str, Any]]


class Step(TypedDict, total=False):
    """How far to move the clock: by some time, or to an instant."""

    days: float
    hours: float
    minutes: float
    seconds: float
    to: str | datetime


@dataclass(slots=True)
class TestedAttempt:
    """One call of the function: when, what became of it, and the exception if there was one."""

    __test__ = False

    attempt: int
    at: datetime
    outcome: Literal["succeeded", "failed"]
    error: str | None = None
    exception: Exception | None = None


@dataclass(slots=True)
class TestedRun:
    """What became of a tick. `result` is what the function returned, as JSON keeps it."""

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
        """How often the function was called."""
        return len(self.attempts)

    @property
    def outcome(self) -> str | None:
        """Of the last attempt; None when there was none."""
        return self.attempts[-1].outcome if self.attempts else None

    @property
    def error(self) -> str | None:
        return self.attempts[-1].error if self.attempts else None


class _Job:
    """A job of the app with where its schedule stands."""

    def __init__(self, prepared: Prepared, function: Callable[..., Any], now: datetime) -> None:
        self.prepared = prepared
        self.function = function
        self.next_tick = place(prepared, now).next_tick
        self.runs_left = prepared.spec.max_runs
        self.triggered: datetime | None = None
        self.live = 0

    @property
    def spec(self) -> JobSpec:
        return self.prepared.spec


class _Held:
    """What stands behind a run in test mode: nobody takes it away, and a transaction is the test's own."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def held(self, run_id: str, token: int) -> bool:
        return True

    @asynccontextmanager
    async def transaction(self, run_id: str, token: int) -> AsyncIterator[Any]:
        if self._connection is None:
            raise UsageError(
                "run.transaction() has no database in test mode: "
                "give one of yours, app.test(connection=connection), or test this function by itself."
            )
        async with self._connection.transaction():
            yield self._connection


class TestMode:
    """An app under a manual clock; made by `Detent.test`, used as a context manager.

    `runs` are in the order of their ticks' arrival. In a test that is itself a coroutine, use
    `await t.advance_async(…)`.
    """

    __test__ = False

    def __init__(self, app: App, start: str | datetime | None = None, connection: Any = None) -> None:
        self.now = START if start is None else _instant("start", start)
        self.runs: list[TestedRun] = []
        self._backend = _Held(connection)
        self._runner = asyncio.Runner()
        self._order = count()
        self._due: list[tuple[datetime, int, int, Callable[[], Steps[None]]]] = []
        self._moving = False
        self._jobs = {job.prepared.name: job for job in _jobs(app, self.now)}
        for job in self._jobs.values():
            self._wait_for_tick(job)

    # --- what a test asks ---

    def advance(self, by: timedelta | None = None, **step: Unpack[Step]) -> list[TestedRun]:
        """Move the clock by some time, or `to` an instant, and run what becomes due; the runs that ticked meanwhile."""
        return self._drive(self._advance(self._target(by, step)))

    async def advance_async(self, by: timedelta | None = None, **step: Unpack[Step]) -> list[TestedRun]:
        """As `advance`, on the loop of a test that is a coroutine."""
        return await _drive_async(self._advance(self._target(by, step)))

    def trigger(self, job: str) -> TestedRun:
        """Run a job now, beside its schedule."""
        return self._drive(self._trigger(self._job(job)))

    async def trigger_async(self, job: str) -> TestedRun:
        """As `trigger`, on the loop of a test that is a coroutine."""
        return await _drive_async(self._trigger(self._job(job)))

    def next_tick(self, job: str) -> datetime | None:
        """When a job ticks next; None when it never will."""
        return self._job(job).next_tick

    def runs_of(self, job: str) -> list[TestedRun]:
        self._job(job)
        return [run for run in self.runs if run.job == job]

    def __enter__(self) -> TestMode:
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.close()

    # --- the clock ---

    def _target(self, by: timedelta | None, step: Step) -> datetime:
        to = step.get("to")
        if to is not None and (by is not None or len(step) > 1):
            raise UsageError("advance() was given a time to wait and an instant to go to: give one of the two.")
        length = timedelta(
            step.get("days", 0), step.get("seconds", 0), 0, 0, step.get("minutes", 0), step.get("hours", 0)
        )
        target = self.now + (by or timedelta()) + length if to is None else _instant("to", to)
        if target < self.now:
            raise UsageError(f"The clock stands at {self.now.isoformat()} and goes forward only: {target.isoformat()}.")
        return target

    def _advance(self, target: datetime) -> Steps[list[TestedRun]]:
        with self._alone():
            first, attempts = len(self.runs), 0
            while self._due and self._due[0][0] <= target:
                self.now, _, _, happen = heapq.heappop(self._due)
                yield from happen()
                attempts += 1
                if attempts > MOST_ATTEMPTS:
                    raise UsageError(
                        f"More than {MOST_ATTEMPTS} runs on the way to {target.isoformat()}: advance in smaller steps."
                    )
            self.now = target
            return self.runs[first:]

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if self._moving:
            raise UsageError("The clock is being moved already: a function cannot move it while it runs.")
        self._moving = True
        try:
            yield
        finally:
            self._moving = False

    def _drive(self, steps: Steps[Answer]) -> Answer:
        """Run the coroutines of functions on a loop of our own; plain functions have run by themselves."""
        if _on_a_loop():
            raise UsageError("This test runs on an event loop: use `await t.advance_async(…)` or `trigger_async`.")
        try:
            step = next(steps)
            while True:
                try:
                    result = self._runner.run(step)
                except Exception as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(result)
        except StopIteration as end:
            answer: Answer = end.value
            return answer

    def _at(self, moment: datetime, job: _Job, happen: Callable[[], Steps[None]]) -> None:
        heapq.heappush(self._due, (moment, -job.spec.priority, next(self._order), happen))

    # --- ticks, runs, attempts ---

    def _job(self, name: str) -> _Job:
        if name not in self._jobs:
            known = ", ".join(map(repr, self._jobs)) or "none"
            raise NotFound(f"The app has no job {name!r} with a function: there are {known}.")
        return self._jobs[name]

    def _wait_for_tick(self, job: _Job) -> None:
        if job.next_tick is not None and job.runs_left != 0:
            self._at(max(job.next_tick, self.now), job, lambda: self._tick(job))

    def _tick(self, job: _Job) -> Steps[None]:
        assert job.next_tick is not None
        run = self._new_run(job, RunKey(job.prepared.number, job.next_tick))
        job.next_tick = job.prepared.schedule.next_after(job.next_tick)
        yield from self._start(job, run)
        if job.runs_left == 0:
            job.next_tick = None
        self._wait_for_tick(job)

    def _trigger(self, job: _Job) -> Steps[TestedRun]:
        with self._alone():
            later = None if job.triggered is None else job.triggered + MILLISECOND  # the time alone names such a run
            job.triggered = max(self.now, later or self.now)
            run = self._new_run(job, RunKey(job.prepared.number, job.triggered, MANUAL))
            yield from self._start(job, run)
            return run

    def _new_run(self, job: _Job, key: RunKey) -> TestedRun:
        prepared, spec = job.prepared, job.spec
        run = TestedRun(
            id=str(run_id(key)),
            job=prepared.name,
            scheduled_at=key.scheduled_at,
            idempotency_key=idempotency_key(prepared.job_id, prepared.name, spec, key),
            payload=spec.payload,
        )
        self.runs.append(run)
        return run

    def _start(self, job: _Job, run: TestedRun) -> Steps[None]:
        if job.live >= job.prepared.lanes:
            run.status, run.reason = RunStatus.SKIPPED, "overlap"
            return
        if job.runs_left is not None:
            job.runs_left -= 1
        job.live += 1
        yield from self._try(job, run)

    def _try(self, job: _Job, run: TestedRun) -> Steps[None]:
        """One attempt, and what follows from it."""
        number = run.attempt + 1
        handle = Run(self._call(job, run, number), self._backend)
        try:
            result = yield from _invoke(job.function, handle)
        except Exception as error:
            if not handle.committed:
                words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
                run.attempts.append(TestedAttempt(number, self.now, "failed", words, error))
                self._after_failure(job, run)
                return
            result = None  # the run has succeeded with its transaction; what failed after it changes nothing
        stored = None if handle.committed else as_json(result)
        run.result = None if stored is None else msgspec.json.decode(stored)
        run.attempts.append(TestedAttempt(number, self.now, "succeeded"))
        run.status = RunStatus.SUCCEEDED
        job.live -= 1

    def _after_failure(self, job: _Job, run: TestedRun) -> None:
        spec = job.spec
        if job.prepared.once or run.attempt > spec.max_retries:
            run.status, run.reason = RunStatus.DEAD, "retries exhausted"
            job.live -= 1
            return
        run.status = RunStatus.RETRYING
        wait = longest_delay(run.attempt, spec.retry_backoff, spec.retry_base_seconds, spec.retry_max_seconds)
        self._at(self.now + timedelta(seconds=wait), job, lambda: self._try(job, run))

    def _call(self, job: _Job, run: TestedRun, attempt: int) -> Call:
        return Call(
            job_id=str(job.prepared.job_id),
            job=run.job,
            run_id=run.id,
            scheduled_at=run.scheduled_at,
            attempt=attempt,
            idempotency_key=run.idempotency_key,
            token=first_token(1) - 1 + attempt,
            payload=run.payload,
            target=job.spec.target,
            timeout_seconds=job.spec.timeout_seconds,
        )


def _jobs(app: App, now: datetime) -> Iterator[_Job]:
    """The app's jobs that call one of its functions, with ids that are the same in every test."""
    for number, document in enumerate(app.jobs, 1):
        job_id = uuid5(NAMESPACE_URL, f"detent:{app.name or 'app'}:{document['name']}")
        try:
            prepared = prepare(read_document(document), job_id, number, now)
            target = prepared.spec.target
            if isinstance(target, PythonTarget) and target.function in app.functions:
                yield _Job(prepared, app.functions[target.function], now)
        except UsageError as error:
            raise UsageError(f"Job {document['name']!r} of the app: {error.message}", error.pointer) from error


def _invoke(function: Callable[..., Any], run: Run) -> Steps[Any]:
    result = function(run) if takes_run(function) else function()
    if inspect.iscoroutinefunction(function):
        result = yield result
    return result


async def _drive_async(steps: Steps[Answer]) -> Answer:
    try:
        step = next(steps)
        while True:
            try:
                result = await step
            except Exception as error:
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as end:
        answer: Answer = end.value
        return answer


def _on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _instant(name: str, value: str | datetime) -> datetime:
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError as error:
        raise UsageError(f"{name} is {value!r}: give a time such as 2026-03-29T00:00:00Z.") from error
    if moment.tzinfo is None:
        raise UsageError(f"{name} is {moment.isoformat()}, without a zone: write {moment.isoformat()}Z or an offset.")
    return moment.astimezone(UTC)
