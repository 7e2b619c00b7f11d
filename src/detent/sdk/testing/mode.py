"""The clock, and what happens as it moves."""

from __future__ import annotations

import asyncio
import heapq
import inspect
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from math import inf
from typing import Any, NamedTuple, Protocol, TypedDict, TypeVar, Unpack
from uuid import NAMESPACE_URL, uuid5

import msgspec

from detent.domain.documents import utc_instant
from detent.domain.idempotency import idempotency_key
from detent.domain.identity import MILLISECOND, ON_DEMAND, RunKey, first_token, run_id
from detent.domain.job import PythonTarget
from detent.domain.registration import Timings, prepare, read_document
from detent.domain.retry import longest_delay, patient_delay
from detent.domain.run import Call, Failed
from detent.domain.states import RunStatus
from detent.errors import NotFound, UsageError
from detent.sdk.testing.records import HeldInTest, TestedAttempt, TestedJob, TestedRun
from detent.targets.exceptions import failure_of
from detent.targets.python import takes_run
from detent.targets.results import as_json
from detent.targets.run import HandlerRun
from detent.worker.execute import is_retryable
from detent.worker.windows import previous_tick

START = datetime(2026, 1, 1, tzinfo=UTC)
MAX_ATTEMPTS = 100_000

Answer = TypeVar("Answer")
# Yields coroutines to the driver, which sends their results back.
Steps = Generator[Coroutine[Any, Any, Any], Any, Answer]


class App(Protocol):
    """What is tested: a `Detent`."""

    name: str | None
    functions: dict[str, Callable[..., Any]]
    jobs: list[dict[str, Any]]


class ClockStep(TypedDict, total=False):
    """How far to move the clock: by some time, or to an instant."""

    days: float
    hours: float
    minutes: float
    seconds: float
    to: str | datetime


class TestMode:
    """An app with a manual clock; created by `Detent.test`, used as a context manager.

    `runs` are in the order of their ticks' arrival. In a test that is itself a coroutine, use
    `await t.advance_async(…)`.
    """

    __test__ = False

    def __init__(self, app: App, start: str | datetime | None = None, connection: Any = None) -> None:
        self.now = START if start is None else _instant("start", start)
        self.runs: list[TestedRun] = []
        self._backend = HeldInTest(connection)
        self._runner = asyncio.Runner()
        self._order = count()
        self._due: list[tuple[datetime, int, int, Callable[[], Steps[None]]]] = []
        self._moving = False
        self._jobs = {job.prepared.name: job for job in _jobs(app, self.now)}
        for job in self._jobs.values():
            self._wait_for_tick(job)

    # --- for tests ---

    def advance(self, by: timedelta | None = None, **step: Unpack[ClockStep]) -> list[TestedRun]:
        """Move the clock by some time, or `to` an instant, and run what becomes due; the runs that ticked meanwhile."""
        return self._drive(self._advance(self._target(by, step)))

    async def advance_async(self, by: timedelta | None = None, **step: Unpack[ClockStep]) -> list[TestedRun]:
        """As `advance`, on the loop of a test that is a coroutine."""
        return await _drive_async(self._advance(self._target(by, step)))

    def trigger(self, job: str) -> TestedRun:
        """Run a job now, in addition to its schedule. If the job has its maximum of unfinished runs, the run is pending
        until one of them has ended."""
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

    def _target(self, by: timedelta | None, step: ClockStep) -> datetime:
        to = step.get("to")
        if to is not None and (by is not None or len(step) > 1):
            raise UsageError("advance() was given a time to wait and an instant to go to: give one of the two.")
        length = timedelta(
            step.get("days", 0), step.get("seconds", 0), 0, 0, step.get("minutes", 0), step.get("hours", 0)
        )
        target = self.now + (by or timedelta()) + length if to is None else _instant("to", to)
        if target < self.now:
            raise UsageError(f"The clock is at {self.now.isoformat()} and goes forward only: {target.isoformat()}.")
        return target

    def _advance(self, target: datetime) -> Steps[list[TestedRun]]:
        with self._alone():
            first, attempts = len(self.runs), 0
            while self._due and self._due[0][0] <= target:
                self.now, _, _, happen = heapq.heappop(self._due)
                yield from happen()
                attempts += 1
                if attempts > MAX_ATTEMPTS:
                    raise UsageError(
                        f"More than {MAX_ATTEMPTS} runs on the way to {target.isoformat()}: advance in smaller steps."
                    )
            self.now = target
            return self.runs[first:]

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if self._moving:
            raise UsageError("A function cannot move the clock while it runs.")
        self._moving = True
        try:
            yield
        finally:
            self._moving = False

    def _drive(self, steps: Steps[Answer]) -> Answer:
        """Run coroutines on a loop of this test mode; plain functions have run already."""
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

    def _at(self, moment: datetime, job: TestedJob, happen: Callable[[], Steps[None]]) -> None:
        heapq.heappush(self._due, (moment, -job.spec.priority, next(self._order), happen))

    # --- ticks, runs, attempts ---

    def _job(self, name: str) -> TestedJob:
        if name not in self._jobs:
            known = ", ".join(map(repr, self._jobs)) or "none"
            raise NotFound(f"The app has no job {name!r} with a function: there are {known}.")
        return self._jobs[name]

    def _wait_for_tick(self, job: TestedJob) -> None:
        if job.next_tick is not None and job.runs_left != 0:
            self._at(max(job.next_tick, self.now), job, lambda: self._tick(job))

    def _tick(self, job: TestedJob) -> Steps[None]:
        assert job.next_tick is not None
        run = self._new_run(job, RunKey(job.prepared.number, job.next_tick))
        job.next_tick = job.prepared.schedule.next_after(job.next_tick)
        yield from self._start(job, run)
        if job.runs_left == 0:
            job.next_tick = None
        self._wait_for_tick(job)

    def _trigger(self, job: TestedJob) -> Steps[TestedRun]:
        with self._alone():
            later = None if job.triggered is None else job.triggered + MILLISECOND  # the time identifies such a run
            job.triggered = max(self.now, later or self.now)
            run = self._new_run(job, RunKey(job.prepared.number, job.triggered, ON_DEMAND))
            if self._has_place(job):
                yield from self._start(job, run)
            else:
                job.backlog.append(run)
            return run

    def _new_run(self, job: TestedJob, key: RunKey) -> TestedRun:
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

    def _start(self, job: TestedJob, run: TestedRun) -> Steps[None]:
        """Start a run, let it wait for its predecessor, or skip a tick that finds no place."""
        if not self._has_place(job):
            run.status, run.reason = RunStatus.SKIPPED, "overlap"
            return
        if job.runs_left is not None:
            job.runs_left -= 1
        if job.live and job.spec.concurrent_policy == "QUEUE":
            job.waiting = run
            return
        if job.live and job.spec.concurrent_policy == "REPLACE":
            # The replaced run waits for its retry, since a function takes no time.
            job.live[0].status, job.live[0].reason = RunStatus.CANCELLED, "replaced"
            job.live.clear()
        job.live.append(run)
        yield from self._try(job, run)

    def _has_place(self, job: TestedJob) -> bool:
        if job.spec.schedule is None:
            return True  # any number of runs of a task may be unfinished
        match job.spec.concurrent_policy:
            case "QUEUE":
                return job.waiting is None
            case "REPLACE":
                return True
            case _:
                return len(job.live) < job.prepared.lanes

    def _try(self, job: TestedJob, run: TestedRun) -> Steps[None]:
        """One attempt, and what follows from it."""
        if run not in job.live:
            return  # it was replaced while it waited
        number = run.attempt + 1
        handle = HandlerRun(self._call(job, run, number), self._backend)
        ended = yield from _invoke(job.function, handle)
        if not handle.committed:  # else it succeeded with its transaction; a later failure changes nothing
            if ended.error is None:
                ended = _rendered(ended)
            if ended.error is not None:
                failed = failure_of(ended.error)
                run.attempts.append(TestedAttempt(number, self.now, "failed", failed.error, ended.error))
                yield from self._after_failure(job, run, failed)
                return
            run.result = ended.result
        run.attempts.append(TestedAttempt(number, self.now, "succeeded"))
        yield from self._ended(job, run, RunStatus.SUCCEEDED)

    def _ended(self, job: TestedJob, run: TestedRun, status: RunStatus, reason: str | None = None) -> Steps[None]:
        """End the run, and start one that waited for it."""
        run.status, run.reason = status, reason
        job.live.remove(run)
        if job.waiting is not None:
            following, job.waiting = job.waiting, None
            job.live.append(following)
            yield from self._try(job, following)
        while job.backlog and self._has_place(job):
            yield from self._start(job, job.backlog.pop(0))

    def _after_failure(self, job: TestedJob, run: TestedRun, failed: Failed) -> Steps[None]:
        spec = job.spec
        retryable = is_retryable(spec, failed)
        if not retryable or job.prepared.once or run.attempt > spec.max_retries:
            reason = "retries exhausted" if retryable else "not retryable"
            yield from self._ended(job, run, RunStatus.DEAD, reason)
            return
        run.status = RunStatus.RETRYING
        wait = longest_delay(run.attempt, spec.retry_backoff, spec.retry_base_seconds, spec.retry_max_seconds)
        wait = patient_delay(wait, failed.retry_after, spec.retry_max_seconds)
        self._at(self.now + timedelta(seconds=wait), job, lambda: self._try(job, run))

    def _call(self, job: TestedJob, run: TestedRun, attempt: int) -> Call:
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
            window=partial(previous_tick, job.prepared.schedule, run.scheduled_at),
        )


def _jobs(app: App, now: datetime) -> Iterator[TestedJob]:
    """The app's jobs that call one of its functions, with ids that are the same in every test."""
    for number, document in enumerate(app.jobs, 1):
        job_id = uuid5(NAMESPACE_URL, f"detent:{app.name or 'app'}:{document['name']}")
        try:
            prepared = prepare(read_document(document), job_id, number, now, timings=Timings(each=inf))
            target = prepared.spec.target
            if isinstance(target, PythonTarget) and target.function in app.functions:
                yield TestedJob(prepared, app.functions[target.function], now)
        except UsageError as error:
            raise UsageError(f"Job {document['name']!r} of the app: {error.message}", error.pointer) from error


class Ended(NamedTuple):
    """How a function ended. Its exception is passed as a value, because generators would replace a raised
    StopIteration."""

    result: Any = None
    error: BaseException | None = None


def _invoke(function: Callable[..., Any], run: HandlerRun) -> Steps[Ended]:
    try:
        result = function(run) if takes_run(function) else function()
    except BaseException as error:
        return _as_failed(error)
    if not inspect.iscoroutinefunction(function):
        return Ended(result)
    ended: Ended = yield _awaited(result)
    return ended


async def _awaited(work: Coroutine[Any, Any, Any]) -> Ended:
    try:
        return Ended(await work)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return Ended(error=error)
    except BaseException as error:
        return _as_failed(error)


def _rendered(ended: Ended) -> Ended:
    try:
        stored = as_json(ended.result)
    except BaseException as error:
        return _as_failed(error)
    return Ended(None if stored is None else msgspec.json.decode(stored))


def _as_failed(error: BaseException) -> Ended:
    """As on a worker, everything that a function raises is a failed attempt, except what concerns the test itself:
    KeyboardInterrupt, and pytest's own exceptions (fail, skip, timeout)."""
    kinds = type(error).__mro__
    if KeyboardInterrupt in kinds or any(str(kind.__module__).startswith("_pytest.") for kind in kinds):
        raise error
    return Ended(error=error)


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
    return utc_instant(moment, name)
