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
from datetime import datetime, timedelta
from functools import partial
from typing import Generic, TypeVar, assert_never

from detent.domain.job import JobSpec, kind_of
from detent.domain.retry import patient_delay, retry_delay
from detent.domain.run import Accepted, Cancelled, Claim, Committed, Failed, GoneTarget, Outcome, Succeeded
from detent.domain.schedule.stagger import stagger, stagger_start
from detent.domain.states import CODES, END_CODES, Event, RunStatus
from detent.errors import DetentError
from detent.runtime import failpoints
from detent.runtime.bisection import halve_until_alone
from detent.runtime.wakeups import Wakeups
from detent.store import Store
from detent.store.db import Rejected
from detent.store.live_runs import PlannedRetry
from detent.store.pull import Acceptance
from detent.store.settlements import Settlement
from detent.targets.exceptions import describe
from detent.targets.text import storable_text
from detent.telemetry import transitions
from detent.telemetry.log import logger
from detent.telemetry.metrics import OUTCOMES, Kind, Metrics
from detent.worker.callbacks import CallbackWorkers
from detent.worker.execute import is_retryable, wait_asked

log = logger("settle")

BATCH = 1000
ENDS_AT_ONCE = 2  # batches of ends; they have a pool of connections of their own
FINAL_WRITES_SECONDS = 1.0
ENDS = {status: CODES[status] for status in (RunStatus.SUCCEEDED, RunStatus.DEAD, RunStatus.CANCELLED)}
SUCCEEDED, DEAD, CANCELLED = (END_CODES[event] for event in (Event.SUCCEED, Event.EXHAUST, Event.CANCEL))
Writing = TypeVar("Writing", Settlement, PlannedRetry, Acceptance)
# Of a node: it returns the results whose run was not found.
Write = Callable[[int, Sequence[Writing]], Awaitable[list[Writing]]]


def decide(
    claim: Claim, spec: JobSpec | None, outcome: Outcome | None, started: datetime, finished: datetime, chance: float
) -> Settlement | PlannedRetry | Acceptance | None:
    """What to write for an outcome; None if the handler already wrote it. Raises if the value is not an outcome."""
    match outcome:
        case Succeeded(result=result):
            text = None if result is None else storable_text(result)
            target = "unknown" if spec is None else kind_of(spec.target)
            return Settlement(claim, started, finished, SUCCEEDED, None, text, "succeeded", None, target)
        case Cancelled(reason=reason):
            words = {"reason": reason, "outcome": "cancelled", "error": reason}
            return Settlement(claim, started, finished, CANCELLED, **words, target=_target(spec))
        case Failed():
            return _decide_failure(claim, spec, outcome, started, finished, chance)
        case Committed():
            return None
        case Accepted(tenant=tenant, lease_seconds=lease):
            limit = timedelta(seconds=spec.timeout_seconds if spec is not None else lease)
            return Acceptance(claim, started, finished, tenant, limit, timedelta(seconds=lease))
        case None:
            raise TypeError("the target's runner returned nothing")
        case _:
            assert_never(outcome)


def _decide_failure(
    claim: Claim, spec: JobSpec | None, failed: Failed, started: datetime, finished: datetime, chance: float
) -> Settlement | PlannedRetry:
    retries = 0 if spec is None or claim.once else spec.max_retries
    retryable = failed.retryable if spec is None else is_retryable(spec, failed)
    # Attempts that were lost with their node do not count as failures. The first loss does not count as an attempt.
    failures = max(claim.attempt - max(claim.crashes - 1, 0), 1)
    if spec is not None and retryable and failures <= retries:
        base, ceiling = spec.retry_base_seconds, spec.retry_max_seconds
        asked = wait_asked(spec, failed)
        seconds = retry_delay(failures, spec.retry_backoff, base, ceiling, chance) if asked is None else asked
        delay = timedelta(seconds=patient_delay(seconds, failed.retry_after, ceiling))
        error = storable_text(failed.error)
        return PlannedRetry(claim, started, finished, failed.outcome, error, delay, _target(spec), failed.traceback)
    reason = "retries exhausted" if retryable else "not retryable"
    result = None if failed.result is None else storable_text(failed.result)
    words = (reason, result, failed.outcome, storable_text(failed.error))
    return Settlement(claim, started, finished, DEAD, *words, target=_target(spec), traceback=failed.traceback)


def _target(spec: JobSpec | None) -> Kind:
    return "unknown" if spec is None else kind_of(spec.target)


class Unwritten(Generic[Writing]):
    """Results of one kind that wait to be written. Each kind has statements and pauses of its own: behind a backlog of
    ends, retries would wait until its last run, and retries that wait for a connection would hold up all ends."""

    def __init__(self, write: Write[Writing], at_once: int) -> None:
        self.write: Write[Writing] = write
        self.results: list[Writing] = []
        self.sending = 0
        self.pause = 0.0
        self._at_once = at_once

    @property
    def may_send(self) -> bool:
        return self.sending < self._at_once

    def take(self) -> list[Writing]:
        batch, self.results = self.results[:BATCH], self.results[BATCH:]
        return batch


class Settler:
    def __init__(
        self,
        store: Store,
        node: int,
        *,
        settled: Callable[[Sequence[Claim], Sequence[float]], None],
        wakeups: Wakeups,
        metrics: Metrics,
    ) -> None:
        """`settled` is called with the claims that are over, and the seconds until each of their retries."""
        self._store = store
        self._node = node
        self._settled = settled
        self._wakeups = wakeups
        self._metrics = metrics
        self._ends = Unwritten[Settlement](store.live_runs.settle, ENDS_AT_ONCE)
        self._retries = Unwritten[PlannedRetry](store.live_runs.retry, 1)
        self._acceptances = Unwritten[Acceptance](self._accept, 1)
        self._callback_workers = CallbackWorkers(store)
        self._tasks: set[asyncio.Task[None]] = set()
        self._gone: set[Claim] = set()
        # Of runs whose release was staggered: how many seconds after their tick they were to start.
        self._released: dict[Claim, float] = {}

    def add(
        self,
        claim: Claim,
        spec: JobSpec | None,
        outcome: Outcome | None,
        started: datetime,
        finished: datetime,
        name: str | None = None,
    ) -> None:
        """`name`: of the job, for the log."""
        chance = 0.0
        if isinstance(outcome, Failed):
            chance = random.random()
            if outcome.gone:
                self._gone.add(claim)
        if spec is not None and spec.release == "staggered" and not claim.key.manual:
            self._released[claim] = stagger(claim.job, stagger_start(spec.priority)).total_seconds()
        try:
            writing = decide(claim, spec, outcome, started, finished, chance)
        except Exception as error:
            # The target was called, so an unusable outcome counts as a failed attempt.
            failed = Failed(f"The outcome of this attempt could not be recorded: {describe(error)}")
            facts = transitions.facts_of(claim, self._node)
            log.error("outcome cannot be recorded, attempt counted as failed", **facts, error=failed.error)
            writing = decide(claim, spec, failed, started, finished, random.random())
        match writing:
            case None:
                self._settled([claim], ())
                self._count([Settlement(claim, started, finished, SUCCEEDED, target=_target(spec))])
                self._released.pop(claim, None)
            case Settlement():
                self._queue(self._ends, writing if writing.status == SUCCEEDED else writing._replace(name=name))
            case PlannedRetry():
                self._queue(self._retries, writing._replace(name=name))
            case Acceptance():
                self._queue(self._acceptances, writing._replace(name=name))

    async def drain(self, seconds: float) -> None:
        """Write the pending results. Those not written in time are dropped, and other nodes rescue their runs."""
        try:
            async with asyncio.timeout(seconds):
                while self._tasks or self._unwritten:
                    self._pump_all()
                    await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            log.warning("results not written in time", runs=self._unwritten)
            self._drop_all()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def abort(self) -> None:
        """The membership is lost. Results are still sent for a short time: every settle names token and owner, so the
        result of a run that this node lost is refused, and recorded as `stale` instead of being lost."""
        await self.drain(FINAL_WRITES_SECONDS)

    @property
    def _unwritten(self) -> int:
        return len(self._ends.results) + len(self._retries.results) + len(self._acceptances.results)

    def _drop_all(self) -> None:
        self._ends.results, self._retries.results, self._acceptances.results = [], [], []

    def _queue(self, unwritten: Unwritten[Writing], result: Writing) -> None:
        unwritten.results.append(result)
        if unwritten.may_send:
            self._pump(unwritten)

    def _pump_all(self) -> None:
        self._pump(self._ends)
        self._pump(self._retries)
        self._pump(self._acceptances)

    def _pump(self, unwritten: Unwritten[Writing]) -> None:
        while unwritten.results and unwritten.may_send:
            unwritten.sending += 1
            task = asyncio.create_task(self._write(unwritten, unwritten.take()))
            self._tasks.add(task)
            task.add_done_callback(partial(self._done, unwritten))

    async def _accept(self, node: int, batch: Sequence[Acceptance]) -> list[Acceptance]:
        workers = await self._callback_workers.of(item.tenant for item in batch)
        return await self._store.pull.accept(node, workers, batch)

    def _done(self, unwritten: Unwritten[Writing], task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        unwritten.sending -= 1
        if not task.cancelled():
            self._pump(unwritten)

    async def _write(self, unwritten: Unwritten[Writing], batch: list[Writing]) -> None:
        """Write a batch; results that could not be written are queued again."""
        written: list[Writing] = []

        async def send(some: Sequence[Writing]) -> None:
            unmatched = await unwritten.write(self._node, some)
            await failpoints.hit("W6")
            await self._finish(some, unmatched)
            written.extend(some)

        async def alone(item: Writing, error: Rejected) -> None:
            facts = transitions.facts_of(item.claim, self._node)
            log.error("result could not be stored, retrying without its text", **facts, error=str(error))
            await self._write_reduced(item, unwritten)
            written.append(item)

        try:
            await halve_until_alone(batch, send, alone, (Rejected,))
            unwritten.pause = 0.0
        except Exception as error:
            # Retry after any error: a dropped result leaves its run open until this node stops.
            expected = isinstance(error, DetentError)
            done = set(map(id, written))
            left = [item for item in batch if id(item) not in done]
            log.warning("settle failed, retrying", runs=len(left), error=str(error), exc_info=not expected)
            unwritten.pause = min(2.0, unwritten.pause * 2 or 0.05)
            await asyncio.sleep(unwritten.pause)
            unwritten.results += left

    async def _write_reduced(self, item: Writing, unwritten: Unwritten[Writing]) -> None:
        try:
            await self._finish([item], await unwritten.write(self._node, [_without_text(item)]))
            return
        except Rejected as error:
            facts = transitions.facts_of(item.claim, self._node)
            log.error("run ended without its result", **facts, error=str(error))
        words = f"refused: {item.outcome}; the result could not be stored"
        if await self._store.live_runs.quarantine(self._node, item.claim, words):
            self._metrics.refused_settles += 1
            self._settled([item.claim], ())
        else:
            await self._finish([item], [item])

    async def _finish(self, batch: Sequence[Writing], unmatched: Sequence[Writing]) -> None:
        stale = await self._refuse_stale(unmatched) if unmatched else []
        retries: Sequence[Settlement | PlannedRetry | Acceptance] = batch
        delays = [item.delay.total_seconds() for item in retries if isinstance(item, PlannedRetry)]
        self._settled([item.claim for item in batch], delays)
        self._wakeups.capacity_freed()
        refused = {item.claim for item in stale}
        written = [item for item in batch if item.claim not in refused] if refused else batch
        if self._gone:
            self._report_gone(batch, written)
        unsuccessful = self._count(written)
        if unsuccessful or transitions.debug_enabled():
            self._log(written)
        for item in batch if self._released else ():
            self._released.pop(item.claim, None)

    def _report_gone(self, batch: Sequence[Settlement | PlannedRetry | Acceptance], written: Sequence[Writing]) -> None:
        """Only results that were accepted say that a target is gone."""
        claims = [(item.claim, item.started) for item in written if item.claim in self._gone]
        self._gone.difference_update(item.claim for item in batch)
        if claims:
            self._wakeups.targets_gone([GoneTarget(claim.job, claim.revision, started) for claim, started in claims])

    def _log(self, written: Sequence[Settlement | PlannedRetry | Acceptance]) -> None:
        """Successes at debug level, everything else at info and above."""
        retries = [self._facts(item) for item in written if isinstance(item, PlannedRetry)]
        transitions.log_some("info", "attempt failed, retry follows", retries)
        accepted = [self._facts(item) for item in written if isinstance(item, Acceptance)]
        transitions.log_some("info", "run accepted, its target reports the end", accepted)
        ends = [item for item in written if isinstance(item, Settlement)]
        dead = [self._facts(item) for item in ends if item.status == DEAD]
        transitions.log_some("warning", "run dead", dead)
        cancelled = [self._facts(item) for item in ends if item.status == CANCELLED]
        transitions.log_some("info", "run cancelled", cancelled)
        for item in ends if transitions.debug_enabled() else ():
            if item.status == SUCCEEDED:
                seconds = (item.finished - item.started).total_seconds()
                transitions.log_claim("run succeeded", item.claim, self._node, seconds=round(seconds, 6))

    def _facts(self, item: Settlement | PlannedRetry | Acceptance) -> dict[str, object]:
        facts: dict[str, object] = {} if item.name is None else {"job": item.name}
        facts |= {**transitions.facts_of(item.claim, self._node), "outcome": item.outcome, "error": item.error}
        if item.traceback is not None:
            facts["exception"] = item.traceback
        if isinstance(item, PlannedRetry):
            facts["again_in"] = round(item.delay.total_seconds(), 3)
        return facts

    def _count(self, written: Sequence[Writing]) -> int:
        """Count a batch, which has only ends or only retries; returns how many did not succeed."""
        if not written:
            return 0
        metrics = self._metrics
        if isinstance(written[0], Acceptance):
            metrics.lateness.add(self._lateness(written))
            return len(written)
        by_target = _by_target(written)
        unsuccessful = len(written)
        for target, items in by_target.items():
            metrics.duration[target].add([(item.finished - item.started).total_seconds() for item in items])
            outcomes = [item.outcome for item in items]
            for outcome in OUTCOMES:
                metrics.attempts[target, outcome] += outcomes.count(outcome)
            unsuccessful -= outcomes.count("succeeded")
        metrics.lateness.add(self._lateness(written))
        if isinstance(written[0], PlannedRetry):
            metrics.retries += len(written)
            return unsuccessful
        dead = 0
        for target, items in by_target.items():
            codes = [item.status for item in items if isinstance(item, Settlement)]
            for status, code in ENDS.items():
                metrics.ends[target, status] += codes.count(code)
            dead += codes.count(DEAD)
        if dead:
            self._wakeups.runs_died(
                {item.claim.job for item in written if isinstance(item, Settlement) and item.status == DEAD}
            )
        return unsuccessful

    def _lateness(self, written: Sequence[Writing]) -> list[float]:
        late = [(item.started - item.claim.scheduled_at).total_seconds() for item in written if item.claim.attempt == 1]
        if self._released:
            firsts = (item.claim for item in written if item.claim.attempt == 1)
            late = [each - self._released.get(claim, 0.0) for each, claim in zip(late, firsts, strict=True)]
        return late

    async def _refuse_stale(self, unmatched: Sequence[Writing]) -> list[Writing]:
        """Record as stale, and return, those of these results that had not committed before."""
        committed = await self._store.live_runs.committed([item.claim for item in unmatched])
        late = [item for item, known in zip(unmatched, committed, strict=True) if not known]
        if late:
            self._metrics.refused_settles += len(late)
            refused = [self._facts(item) for item in late]
            transitions.log_some("warning", "result refused: this node no longer holds the run", refused)
            await self._store.live_runs.record_stale(self._node, late)
        return late


def _by_target(written: Sequence[Writing]) -> dict[Kind, Sequence[Writing]]:
    """Group by target. A batch with one target, the usual case, is not copied."""
    targets = {item.target for item in written}
    if len(targets) == 1:
        return {targets.pop(): written}
    return {target: [item for item in written if item.target == target] for target in targets}


def _without_text(item: Writing) -> Writing:
    if isinstance(item, Settlement):
        return item._replace(result=None, reason="quarantined", error="the result could not be stored", traceback=None)
    if isinstance(item, Acceptance):
        return item
    return item._replace(error="the error could not be stored", traceback=None)
