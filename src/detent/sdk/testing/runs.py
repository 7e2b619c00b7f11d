"""Ticks, enqueued runs and attempts of an app, as the clock of a test moves."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from contextvars import copy_context
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from math import inf
from threading import RLock
from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_URL, uuid5

import msgspec

from detent.domain.idempotency import idempotency_key
from detent.domain.identity import ON_DEMAND, RunKey, first_token, run_id
from detent.domain.job import PythonTarget
from detent.domain.registration import PreparedJob, Timings, prepare, read_document
from detent.domain.retry import longest_delay, patient_delay
from detent.domain.run import Call, Failed
from detent.domain.states import RunStatus
from detent.errors import NotFound, UsageError
from detent.sdk.serving import ServedApp
from detent.sdk.steps import Ended, awaited, perform
from detent.sdk.testing.drive import ClockSteps, Work, within
from detent.sdk.testing.ledger import TestLedger, wait_at_once
from detent.sdk.testing.records import HeldInTest, TestedAttempt, TestedJob, TestedRun
from detent.targets.exceptions import discarded, failure_of
from detent.targets.results import as_json
from detent.targets.run import HandlerRun
from detent.worker.execute import is_retryable, wait_asked
from detent.worker.windows import previous_tick

if TYPE_CHECKING:
    from detent.sdk.app import Detent

Happening = Callable[[], ClockSteps[None]]


class AppUnderTest:
    """The jobs of an app and their runs. The lock is for enqueues, which come from another thread."""

    def __init__(self, app: Detent, now: datetime, connection: Any) -> None:
        self.now = now
        self.lock = RLock()
        self.runs: list[TestedRun] = []
        self.by_id: dict[str, TestedRun] = {}
        self.reached: list[TestedRun] = []
        """Runs whose time has come, in that order."""
        self.served = ServedApp(app, eager=False)
        self.started = False
        self.running: TestedRun | None = None
        self._app = app
        self._connection = connection
        self._ledger = TestLedger(lambda: self.now)
        self._order = count()
        self._due: list[tuple[datetime, int, int, Happening]] = []
        self.jobs: dict[str, TestedJob] = {}
        app.check()
        for document in app.jobs:
            self.add(document)

    # --- jobs ---

    def add(self, document: dict[str, Any]) -> PreparedJob:
        """A job of the app, or one that is scheduled while the test runs; it replaces one of the same name. Its id is
        the same in every test. Jobs that call no function of the app are left out."""
        name = document["name"]
        job_id = uuid5(NAMESPACE_URL, f"detent:{self._app.name or 'app'}:{name}")
        try:
            number = len(self.jobs) + 1 if name not in self.jobs else self.jobs[name].prepared.number
            prepared = prepare(read_document(document), job_id, number, self.now, timings=Timings(each=inf))
            target = prepared.spec.target
            if isinstance(target, PythonTarget) and target.function in self._app.bindings:
                self._register(TestedJob(prepared, self._app.bindings[target.function], self.now))
        except UsageError as error:
            raise UsageError(f"Job {name!r} of the app: {error.message}", error.pointer) from error
        return prepared

    def _register(self, job: TestedJob) -> None:
        before = self.jobs.get(job.prepared.name)
        if before is not None:
            before.replaced, job.enqueued = True, before.enqueued
        self.jobs[job.prepared.name] = job
        self._wait_for_tick(job)

    def job(self, name: str) -> TestedJob:
        if name not in self.jobs:
            known = ", ".join(map(repr, self.jobs)) or "none"
            raise NotFound(f"The app has no job {name!r} with a function: there are {known}.")
        return self.jobs[name]

    # --- what is due ---

    def at(self, moment: datetime, priority: int, happen: Happening) -> None:
        with self.lock:
            heapq.heappush(self._due, (max(moment, self.now), -priority, next(self._order), happen))

    def next_due(self, until: datetime) -> Happening | None:
        """Move the clock to the next thing that happens, if it does so until then."""
        with self.lock:
            if not self._due or self._due[0][0] > until:
                return None
            self.now, _, _, happen = heapq.heappop(self._due)
            return happen

    def _wait_for_tick(self, job: TestedJob) -> None:
        if job.next_tick is not None and job.runs_left != 0:
            self.at(job.next_tick, job.spec.priority, lambda: self._tick(job))

    def _tick(self, job: TestedJob) -> ClockSteps[None]:
        if job.replaced:
            return
        assert job.next_tick is not None
        delayed = job.prepared.schedule.delay is not None
        if delayed and self._put_off(job, job.next_tick):
            return
        run = self.new_run(job, RunKey(job.prepared.number, job.next_tick))
        job.next_tick = job.prepared.schedule.next_after(job.next_tick)
        self.reached.append(run)
        yield from self.start(job, run)
        if job.runs_left == 0:
            job.next_tick = None
        if not delayed:
            self._wait_for_tick(job)

    def _put_off(self, job: TestedJob, tick: datetime) -> bool:
        """Whether a tick that counts from the end of a run has to wait: for that end, or for the delay since."""
        after = None if job.ended_at is None else job.prepared.schedule.after_end(job.ended_at)
        if not job.live and (after is None or after <= tick):
            return False
        job.next_tick = None if job.live else after
        self._wait_for_tick(job)
        return True

    def _count_delay(self, job: TestedJob) -> None:
        """A run of the job has ended: its next tick counts from now, unless it is planned already."""
        job.ended_at = self.now
        if job.prepared.schedule.delay is not None and job.next_tick is None and not job.live:
            job.next_tick = job.prepared.schedule.after_end(self.now)
            self._wait_for_tick(job)

    # --- runs ---

    def new_run(self, job: TestedJob, key: RunKey, **chosen: Any) -> TestedRun:
        prepared, spec = job.prepared, job.spec
        facts = {"payload": spec.payload, "priority": spec.priority, "queue": spec.queue, **chosen}
        made = TestedRun(
            id=str(run_id(key)),
            job=prepared.name,
            scheduled_at=key.scheduled_at,
            idempotency_key=idempotency_key(prepared.job_id, prepared.name, spec, key),
            **facts,
        )
        self.runs.append(made)
        self.by_id[made.id] = made
        return made

    def new_on_demand(self, job: TestedJob, due: datetime, **chosen: Any) -> TestedRun:
        job.enqueued += 1
        return self.new_run(job, RunKey(job.prepared.number, due, ON_DEMAND + job.enqueued), **chosen)

    def begin(self, job: TestedJob, run: TestedRun) -> ClockSteps[None]:
        """Start an on-demand run that is due, or let it wait for a place of its job."""
        if not run.unfinished:
            return  # it was cancelled before it was due
        self.reached.append(run)
        if job.has_place():
            yield from self.start(job, run)
        else:
            job.backlog.append(run)

    def start(self, job: TestedJob, run: TestedRun) -> ClockSteps[None]:
        """Start a run, let it wait for its predecessor, or skip a tick that finds no place."""
        if not job.has_place():
            run.status, run.reason = RunStatus.SKIPPED, "overlap"
            return
        if job.runs_left is not None:
            job.runs_left -= 1
        if job.live and job.spec.schedule is not None and job.spec.concurrent_policy == "QUEUE":
            job.waiting = run
            return
        if job.live and job.spec.schedule is not None and job.spec.concurrent_policy == "REPLACE":
            # The replaced run waits for its retry, since a function takes no time.
            job.live[0].status, job.live[0].reason = RunStatus.CANCELLED, "replaced"
            job.live.clear()
        job.live.append(run)
        yield from self._try(job, run)

    def cancelled(self, run: TestedRun) -> None:
        """Cancel a run that waits; one whose function runs ends when that returns."""
        if run is self.running:
            run.stopping = True
            return
        run.status, run.reason = RunStatus.CANCELLED, "cancelled"
        job = self.jobs[run.job]
        if run in job.live:
            job.live.remove(run)
        if job.waiting is run:
            job.waiting = None
        job.backlog = [each for each in job.backlog if each is not run]
        self._count_delay(job)
        self.at(self.now, run.priority, lambda: self._start_waiting(job))

    def _start_waiting(self, job: TestedJob) -> ClockSteps[None]:
        """After the end of a run: start the ones that waited for it."""
        if job.waiting is not None and not job.live:
            following, job.waiting = job.waiting, None
            job.live.append(following)
            yield from self._try(job, following)
        while job.backlog and job.has_place():
            yield from self.start(job, job.backlog.pop(0))

    def _ended(self, job: TestedJob, run: TestedRun, status: RunStatus, reason: str | None = None) -> ClockSteps[None]:
        run.status, run.reason = status, reason
        if status is not RunStatus.DEAD:
            self._ledger.forget_steps(run.id)
        job.live.remove(run)
        self._count_delay(job)
        yield from self._start_waiting(job)

    # --- attempts ---

    def _try(self, job: TestedJob, run: TestedRun) -> ClockSteps[None]:
        """One attempt, and what follows from it."""
        if run not in job.live:
            return  # it was replaced or cancelled while it waited
        number = run.attempt + 1
        handle = HandlerRun(self._call(job, run, number), HeldInTest(self._connection, run, self._ledger))
        handle.wait = None if job.binding.is_async else wait_at_once
        run.status, self.running = RunStatus.RUNNING, run
        try:
            ended = yield from self._invoke(job, handle)
        finally:
            self.running = None
        if handle.committed:  # it succeeded with its transaction; a later failure changes nothing
            ended = Ended()
        elif ended.error is None:
            ended = _rendered(ended)
        yield from self._settle(job, run, number, ended)

    def _settle(self, job: TestedJob, run: TestedRun, number: int, ended: Ended) -> ClockSteps[None]:
        if ended.error is None and not run.stopping:
            run.result = ended.result
            run.attempts.append(TestedAttempt(number, self.now, "succeeded"))
            yield from self._ended(job, run, RunStatus.SUCCEEDED)
            return
        end = None if ended.error is None else discarded(ended.error)
        if end is not None or run.stopping:
            run.attempts.append(TestedAttempt(number, self.now, "cancelled", exception=ended.error))
            yield from self._ended(job, run, RunStatus.CANCELLED, "cancelled" if end is None else end.reason)
            return
        assert ended.error is not None
        failed = failure_of(ended.error)
        run.attempts.append(TestedAttempt(number, self.now, "failed", failed.error, ended.error))
        yield from self._after_failure(job, run, failed)

    def _after_failure(self, job: TestedJob, run: TestedRun, failed: Failed) -> ClockSteps[None]:
        spec = job.spec
        retryable = is_retryable(spec, failed)
        if not retryable or job.prepared.once or run.attempt > spec.max_retries:
            reason = "retries exhausted" if retryable else "not retryable"
            yield from self._ended(job, run, RunStatus.DEAD, reason)
            return
        run.status = RunStatus.RETRYING
        asked = wait_asked(spec, failed)
        if asked is None:
            asked = longest_delay(run.attempt, spec.retry_backoff, spec.retry_base_seconds, spec.retry_max_seconds)
        wait = patient_delay(asked, failed.retry_after, spec.retry_max_seconds)
        self.at(self.now + timedelta(seconds=wait), run.priority, lambda: self._try(job, run))

    def _invoke(self, job: TestedJob, run: HandlerRun) -> ClockSteps[Ended]:
        """Call the function, with everything that the app has around it."""
        served, binding = self.served, job.binding
        if served.has_hooks and not self.started:
            self.started = True
            yield Work(served.start(), copy_context())
        opened = yield from within(served.open_for(binding), served.context)
        if opened.error is not None:
            return _checked(opened)
        steps, context = served.steps(binding, run), copy_context()
        if binding.is_async:  # in one task
            ended: Ended = yield Work(perform(steps), context)
        else:
            ended = yield from within(steps, context)
        return _checked(ended)

    def close(self) -> ClockSteps[None]:
        """What the app does when a worker ends. Raises what failed first."""
        if self.started:
            yield Work(awaited(self.served.stop()), copy_context())
        else:
            yield from within(self.served.close_worker_scope(), self.served.context)
        for error in self.served.failures:
            raise error

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


def _rendered(ended: Ended) -> Ended:
    try:
        stored = as_json(ended.result)
    except BaseException as error:
        return _checked(Ended(error=error))
    return Ended(None if stored is None else msgspec.json.decode(stored))


def _checked(ended: Ended) -> Ended:
    """As on a worker, everything that a function raises is a failed attempt, except what concerns the test itself:
    KeyboardInterrupt, and pytest's own exceptions (fail, skip, timeout)."""
    kinds = type(ended.error).__mro__
    if KeyboardInterrupt in kinds or any(str(kind.__module__).startswith("_pytest.") for kind in kinds):
        assert ended.error is not None
        raise ended.error
    return ended
