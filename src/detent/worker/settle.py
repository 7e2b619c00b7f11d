"""The only writer of outcomes. One `match` turns an outcome into a transition. Outcomes that arrive during a write form
the next batch.

A settle names run, token and owner. A settle that matches no run is checked: if it committed before, only its reply was
lost. Otherwise the claim was lost, and the result is refused and recorded as `stale`. A settle of unknown outcome is
sent again. A row that violates a constraint does not fail the rest of its batch: the batch is halved until that row is
alone, and the row is settled without the text that could not be stored. If that is refused too, history already has a
run with the same key: the run is ended anyway, because otherwise it would hold its lane forever.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import assert_never

from detent.domain.identity import MANUAL
from detent.domain.job import JobSpec
from detent.domain.retry import patient_delay, retry_delay
from detent.domain.run import (
    SUCCESS,
    Acceptance,
    Accepted,
    Cancelled,
    Claim,
    Committed,
    End,
    Failed,
    HeldRun,
    Outcome,
    PlannedRetry,
    Succeeded,
)
from detent.domain.schedule.stagger import stagger, stagger_start
from detent.domain.states import END_CODES, Event
from detent.errors import DetentError
from detent.runtime import failpoints
from detent.runtime.bisection import halve_until_alone
from detent.runtime.wakeups import Wakeups
from detent.store import Store
from detent.store.db import Rejected
from detent.targets.exceptions import describe
from detent.targets.text import storable_text
from detent.telemetry import transitions
from detent.telemetry.log import logger
from detent.telemetry.metrics import Metrics
from detent.worker.callbacks import CallbackWorkers
from detent.worker.execute import is_retryable, wait_asked
from detent.worker.settle_log import count_settled, facts_of, gone_target, log_settled

log = logger("settle")

BATCH = 1000
ENDS_AT_ONCE = 2  # batches of ends; they have a pool of connections of their own
FINAL_WRITES_SECONDS = 1.0
SUCCEEDED, DEAD, CANCELLED = (END_CODES[event] for event in (Event.SUCCEED, Event.EXHAUST, Event.CANCEL))
# Of a node: it returns the runs that were not found.
Write = Callable[[int, Sequence[HeldRun]], Awaitable[list[HeldRun]]]


def decide(
    claim: Claim, spec: JobSpec | None, outcome: Outcome | None, chance: float
) -> End | PlannedRetry | Acceptance | None:
    """What to write for an outcome; None if the handler already wrote it. Raises if the value is not an outcome."""
    match outcome:
        case Succeeded(result=result):
            return SUCCESS if result is None else End(SUCCEEDED, result=storable_text(result))
        case Cancelled(reason=reason):
            return End(CANCELLED, reason, outcome="cancelled", error=reason)
        case Failed():
            return _decide_failure(claim, spec, outcome, chance)
        case Committed():
            return None
        case Accepted(tenant=tenant, lease_seconds=lease):
            limit = timedelta(seconds=spec.timeout_seconds if spec is not None else lease)
            return Acceptance(tenant, limit, timedelta(seconds=lease))
        case None:
            raise TypeError("the target's runner returned nothing")
        case _:
            assert_never(outcome)


def _decide_failure(claim: Claim, spec: JobSpec | None, failed: Failed, chance: float) -> End | PlannedRetry:
    retries = 0 if spec is None or claim.once else spec.max_retries
    retryable = failed.retryable if spec is None else is_retryable(spec, failed)
    # Attempts that were lost with their node do not count as failures. The first loss does not count as an attempt.
    failures = max(claim.attempt - max(claim.crashes - 1, 0), 1)
    error = storable_text(failed.error)
    if spec is not None and retryable and failures <= retries:
        base, ceiling = spec.retry_base_seconds, spec.retry_max_seconds
        asked = wait_asked(spec, failed)
        seconds = retry_delay(failures, spec.retry_backoff, base, ceiling, chance) if asked is None else asked
        delay = timedelta(seconds=patient_delay(seconds, failed.retry_after, ceiling))
        return PlannedRetry(failed.outcome, error, delay, failed.traceback)
    reason = "retries exhausted" if retryable else "not retryable"
    result = None if failed.result is None else storable_text(failed.result)
    return End(DEAD, reason, result, failed.outcome, error, failed.traceback)


class Unwritten:
    """Runs whose ends wait to be written. Ends, retries and acceptances have statements and pauses of their own: behind
    a backlog of ends, retries would wait until its last run, and retries that wait for a connection would hold up all
    ends."""

    def __init__(self, write: Write, at_once: int) -> None:
        self.write = write
        self.runs: list[HeldRun] = []
        self.sending = 0
        self.pause = 0.0
        self.at_once = at_once

    def take(self) -> list[HeldRun]:
        batch, self.runs = self.runs[:BATCH], self.runs[BATCH:]
        return batch


class Settler:
    def __init__(
        self,
        store: Store,
        node: int,
        *,
        settled: Callable[[Sequence[HeldRun], Sequence[float]], None],
        wakeups: Wakeups,
        metrics: Metrics,
    ) -> None:
        """`settled` is called with the runs that are over, and the seconds until each of their retries."""
        self._store = store
        self._node = node
        self._settled = settled
        self._wakeups = wakeups
        self._metrics = metrics
        self._ends = Unwritten(store.live_runs.settle, ENDS_AT_ONCE)
        self._retries = Unwritten(store.live_runs.retry, 1)
        self._acceptances = Unwritten(self._accept, 1)
        self._all = (self._ends, self._retries, self._acceptances)
        self._callback_workers = CallbackWorkers(store)
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, held: HeldRun, outcome: Outcome | None, finished: float) -> None:
        """The attempt has ended: write what follows from its outcome."""
        claim, spec = held.claim, None if held.definition is None else held.definition.spec
        held.finished = finished
        try:
            chance = random.random() if isinstance(outcome, Failed) else 0.0
            end = held.end = decide(claim, spec, outcome, chance)
        except Exception as error:
            # The target was called, so an unusable outcome counts as a failed attempt.
            outcome = Failed(f"The outcome of this attempt could not be recorded: {describe(error)}")
            facts = transitions.facts_of(claim, self._node)
            log.error("outcome cannot be recorded, attempt counted as failed", **facts, error=outcome.error)
            end = held.end = decide(claim, spec, outcome, random.random())
        if isinstance(outcome, Failed):
            held.gone = outcome.gone
        if spec is not None and spec.release == "staggered" and claim.serial < MANUAL:
            held.staggered = stagger(claim.job, stagger_start(spec.priority)).total_seconds()
        match end:
            case End():
                self._queue(self._ends, held)
            case PlannedRetry():
                self._queue(self._retries, held)
            case Acceptance():
                self._queue(self._acceptances, held)
            case None:
                held.end = SUCCESS
                self._settled([held], ())
                count_settled(self._metrics, [held])

    async def drain(self, seconds: float) -> None:
        """Write the pending results. Those not written in time are dropped, and other nodes rescue their runs."""
        try:
            async with asyncio.timeout(seconds):
                while self._tasks or self._unwritten:
                    for unwritten in self._all:
                        self._pump(unwritten)
                    await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            log.warning("results not written in time", runs=self._unwritten)
            for unwritten in self._all:
                unwritten.runs = []
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def abort(self) -> None:
        """The membership is lost. Results are still sent for a short time: every settle names token and owner, so the
        result of a run that this node lost is refused, and recorded as `stale` instead of being lost."""
        await self.drain(FINAL_WRITES_SECONDS)

    @property
    def _unwritten(self) -> int:
        return sum(len(unwritten.runs) for unwritten in self._all)

    def _queue(self, unwritten: Unwritten, held: HeldRun) -> None:
        unwritten.runs.append(held)
        if unwritten.sending < unwritten.at_once:
            self._pump(unwritten)

    def _pump(self, unwritten: Unwritten) -> None:
        while unwritten.runs and unwritten.sending < unwritten.at_once:
            unwritten.sending += 1
            task = asyncio.create_task(self._write(unwritten, unwritten.take()))
            self._tasks.add(task)
            task.add_done_callback(partial(self._done, unwritten))

    async def _accept(self, node: int, batch: Sequence[HeldRun]) -> list[HeldRun]:
        tenants = [held.end.tenant for held in batch if isinstance(held.end, Acceptance)]
        return await self._store.pull.accept(node, await self._callback_workers.of(tenants), batch)

    def _done(self, unwritten: Unwritten, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        unwritten.sending -= 1
        if not task.cancelled():
            self._pump(unwritten)

    async def _write(self, unwritten: Unwritten, batch: list[HeldRun]) -> None:
        """Write a batch; results that could not be written are queued again."""
        written: list[HeldRun] = []

        async def send(some: Sequence[HeldRun]) -> None:
            unmatched = await unwritten.write(self._node, some)
            await failpoints.hit("W6")
            await self._finish(some, unmatched)
            written.extend(some)

        async def alone(held: HeldRun, error: Rejected) -> None:
            facts = transitions.facts_of(held.claim, self._node)
            log.error("result could not be stored, retrying without its text", **facts, error=str(error))
            await self._write_reduced(held, unwritten)
            written.append(held)

        try:
            await halve_until_alone(batch, send, alone, (Rejected,))
            unwritten.pause = 0.0
        except Exception as error:
            # Retry after any error: a dropped result leaves its run open until this node stops.
            expected = isinstance(error, DetentError)
            done = set(written)
            left = [held for held in batch if held not in done]
            log.warning("settle failed, retrying", runs=len(left), error=str(error), exc_info=not expected)
            unwritten.pause = min(2.0, unwritten.pause * 2 or 0.05)
            await asyncio.sleep(unwritten.pause)
            unwritten.runs += left
        finally:
            for held in written:
                if held.waited:  # its deadline may keep it for long, and a result may be large
                    held.end = None

    async def _write_reduced(self, held: HeldRun, unwritten: Unwritten) -> None:
        said, held.end = held.end, _without_text(held.end)
        try:
            unmatched = await unwritten.write(self._node, [held])
        except Rejected as error:
            facts = transitions.facts_of(held.claim, self._node)
            log.error("run ended without its result", **facts, error=str(error))
            words = f"refused: {held.outcome}; the result could not be stored"
            if await self._store.live_runs.quarantine(self._node, held.claim, words):
                self._metrics.refused_settles += 1
                self._settled([held], ())
                return
            unmatched = [held]
        finally:
            held.end = said
        await self._finish([held], unmatched)

    async def _finish(self, batch: Sequence[HeldRun], unmatched: Sequence[HeldRun]) -> None:
        stale = set(await self._refuse_stale(unmatched)) if unmatched else ()
        delays = [held.end.delay.total_seconds() for held in batch if isinstance(held.end, PlannedRetry)]
        self._settled(batch, delays)
        self._wakeups.capacity_freed()
        written = [held for held in batch if held not in stale] if stale else batch
        gone = [gone_target(held) for held in written if held.gone]
        if gone:  # only results that were accepted say that a target is gone
            self._wakeups.targets_gone(gone)
        dead = count_settled(self._metrics, written)
        if dead:
            self._wakeups.runs_died(dead)
        log_settled(written, self._node)

    async def _refuse_stale(self, unmatched: Sequence[HeldRun]) -> list[HeldRun]:
        """Record as stale, and return, those of these results that had not committed before."""
        committed = await self._store.live_runs.committed([held.claim for held in unmatched])
        late = [held for held, known in zip(unmatched, committed, strict=True) if not known]
        if late:
            self._metrics.refused_settles += len(late)
            refused = [facts_of(held, self._node) for held in late]
            transitions.log_some("warning", "result refused: this node no longer holds the run", refused)
            await self._store.live_runs.record_stale(self._node, late)
        return late


def _without_text(end: End | PlannedRetry | Acceptance | None) -> End | PlannedRetry | Acceptance | None:
    match end:
        case End():
            error = "the result could not be stored"
            return end._replace(result=None, reason="quarantined", error=error, traceback=None)
        case PlannedRetry():
            return end._replace(error="the error could not be stored", traceback=None)
        case _:
            return end
