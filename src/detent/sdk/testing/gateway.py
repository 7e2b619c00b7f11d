"""The way into the cluster that a test does not have: enqueued runs wait for the clock of the test.

Its methods are called on the loop of `portal.py`, in another thread, while the test waits for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID

import msgspec
from msgspec import UNSET

from detent.contract.run import Attempt, AttemptOutcome
from detent.contract.run import Run as RunShape
from detent.contract.task import EnqueuedRun
from detent.domain.concurrency import check_key, concurrency_key_of
from detent.domain.documents import MAX_PAYLOAD_BYTES, encode_json, utc_instants
from detent.domain.identity import first_token, from_milliseconds, milliseconds
from detent.domain.on_demand import NewRun, written_run
from detent.domain.registration import cursor_at
from detent.errors import Conflict, RunNotFound
from detent.sdk.gateway import not_registered
from detent.sdk.testing.records import TestedAttempt, TestedJob, TestedRun
from detent.store.job_rows import new_job

if TYPE_CHECKING:
    from detent.contract.job import Job
    from detent.sdk.testing.runs import AppUnderTest


class TestGateway:
    """Enqueues into an app under test."""

    __test__ = False
    in_memory: ClassVar[bool] = True

    def __init__(self, tested: AppUnderTest) -> None:
        self._tested = tested
        self._keys: dict[tuple[str, str], tuple[TestedRun, datetime]] = {}

    async def enqueue(self, task: str, runs: Sequence[NewRun]) -> list[EnqueuedRun]:
        tested = self._tested
        if task not in tested.jobs:
            raise not_registered(task)
        with tested.lock:
            runs = [utc_instants(run) for run in runs]
            for run in runs:  # all of them, before the first is enqueued
                written_run(run, tested.now, MAX_PAYLOAD_BYTES)
                self._concurrency_key(tested.jobs[task], run)
            return [self._enqueue(tested.jobs[task], run) for run in runs]

    def _enqueue(self, job: TestedJob, asked: NewRun) -> EnqueuedRun:
        holder = self._holder(job, asked)
        if holder is not None:
            return EnqueuedRun(UUID(holder.id), False, holder.status, holder.scheduled_at)
        tested = self._tested
        due = asked.at or tested.now + timedelta(seconds=asked.delay_seconds or 0)
        run = tested.new_on_demand(
            job,
            from_milliseconds(milliseconds(due)),
            payload=job.spec.payload if asked.payload is UNSET else asked.payload,
            priority=job.spec.priority if asked.priority is None else asked.priority,
            queue=asked.queue or job.spec.queue,
            unique_key=asked.unique_key,
            concurrency_key=self._concurrency_key(job, asked),
        )
        if asked.unique_key is not None:
            taken = timedelta(seconds=asked.unique_for_seconds or 0)
            self._keys[run.job, asked.unique_key] = run, tested.now + taken
        tested.at(due, run.priority, lambda: tested.begin(job, run))
        return EnqueuedRun(UUID(run.id), True, run.status, run.scheduled_at)

    def _holder(self, job: TestedJob, asked: NewRun) -> TestedRun | None:
        """The run that has the unique key: while it is unfinished, and as long as it was enqueued for."""
        if asked.unique_key is None:
            return None
        run, until = self._keys.get((job.prepared.name, asked.unique_key), (None, self._tested.now))
        return run if run is not None and (run.unfinished or self._tested.now < until) else None

    def _concurrency_key(self, job: TestedJob, asked: NewRun) -> str | None:
        if asked.concurrency_key is not None:
            return check_key(asked.concurrency_key)
        payload = job.spec.payload if asked.payload is UNSET else asked.payload
        return concurrency_key_of(job.spec, job.prepared.name, payload)

    async def run(self, run_id: UUID) -> RunShape:
        run = self._found(run_id)
        return shape_of(run, self._tested.jobs[run.job])

    async def cancel(self, run_id: UUID) -> None:
        with self._tested.lock:
            run = self._found(run_id)
            if not run.unfinished:
                raise Conflict(f"The run {run_id} is already {run.status}: it can no longer be cancelled.")
            self._tested.cancelled(run)

    async def upsert(self, document: dict[str, Any]) -> Job:
        tested = self._tested
        with tested.lock:
            prepared = tested.add(document)
            job = tested.jobs.get(prepared.name)
            return new_job(prepared, cursor_at(prepared, None if job is None else job.next_tick), tested.now)

    async def close(self) -> None:
        """Nothing is open."""

    def _found(self, run_id: UUID) -> TestedRun:
        run = self._tested.by_id.get(str(run_id))
        if run is None:
            raise RunNotFound(run_id)
        return run


def shape_of(run: TestedRun, job: TestedJob) -> RunShape:
    """The run as the API would show it. A function takes no time."""
    attempts = [_attempt(each) for each in run.attempts]
    first = run.attempts[0].at if run.attempts else None
    finished = None if run.unfinished or not run.attempts else run.attempts[-1].at
    return RunShape(
        id=UUID(run.id),
        job_id=job.prepared.job_id,
        job=run.job,
        scheduled_at=run.scheduled_at,
        status=run.status,
        reason=run.reason,
        attempt=run.attempt or None,
        token=attempts[-1].token if attempts else None,
        started_at=run.attempts[-1].at if run.attempts else None,
        finished_at=finished,
        duration_ms=None if finished is None else 0,
        lateness_ms=None if first is None else milliseconds(first) - milliseconds(run.scheduled_at),
        node=None,
        result=msgspec.Raw(b"null" if run.result is None else encode_json(run.result).encode()),
        error=run.error,
        idempotency_key=run.idempotency_key,
        ticks=None,
        until=None,
        attempts=attempts,
        payload=run.payload,
        concurrency_key=UNSET if run.concurrency_key is None else run.concurrency_key,
    )


def _attempt(attempt: TestedAttempt) -> Attempt:
    outcome: AttemptOutcome = attempt.outcome
    return Attempt(
        attempt=attempt.attempt,
        token=first_token(1) - 1 + attempt.attempt,
        node=None,
        started_at=attempt.at,
        finished_at=attempt.at,
        outcome=outcome,
        error=attempt.error,
    )
