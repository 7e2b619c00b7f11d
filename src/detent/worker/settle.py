"""The only writer of outcomes. One `match` turns an outcome into a transition; batches form while others are written.

A settle names run, token and owner. What matched nothing is looked up: had this very settle committed before, its
reply was lost and all is well; otherwise the claim was lost, the result is refused and kept as `stale`. A settle of
unknown outcome is simply sent again. A row that breaks a constraint never fails its neighbours: the batch is halved
until the culprit stands alone, and that one is settled without the words that could not be stored. If even that is
refused, history has a run of its key already: the run is ended all the same, since it would hold its lane for ever.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar, assert_never

from detent.domain.job import JobSpec, kind_of
from detent.domain.retry import patient_delay, retry_delay
from detent.domain.run import Cancelled, Claim, Committed, Failed, Outcome, Succeeded
from detent.domain.states import CODES, RunStatus
from detent.errors import DetentError
from detent.runtime import failpoints
from detent.store import Store
from detent.store.db import Rejected
from detent.store.live_runs import Retry, Settlement
from detent.targets.exceptions import describe
from detent.targets.text import storable_text
from detent.telemetry import transitions
from detent.telemetry.log import logger
from detent.telemetry.metrics import OUTCOMES, Kind, Metrics
from detent.worker.execute import is_retryable

log = logger("settle")

BATCH = 1000
STATEMENTS = 2
LAST_WORDS_SECONDS = 1.0
ENDS = {status: CODES[status] for status in (RunStatus.SUCCEEDED, RunStatus.DEAD, RunStatus.CANCELLED)}
DEAD = CODES[RunStatus.DEAD]
SUCCEEDED = CODES[RunStatus.SUCCEEDED]
CANCELLED = CODES[RunStatus.CANCELLED]
Writing = TypeVar("Writing", Settlement, Retry)


def decide(
    claim: Claim, spec: JobSpec | None, outcome: Outcome | None, started: datetime, finished: datetime, chance: float
) -> Settlement | Retry | None:
    """What to write for an outcome; None when the handler wrote it already. Raises for what is no outcome."""
    match outcome:
        case Succeeded(result=result):
            text = _storable(result)
            return Settlement(claim, started, finished, SUCCEEDED, None, text, "succeeded", None, _target(spec))
        case Cancelled(reason=reason):
            words = {"reason": reason, "outcome": "cancelled", "error": reason}
            return Settlement(claim, started, finished, CANCELLED, **words, target=_target(spec))
        case Failed():
            return _decide_failure(claim, spec, outcome, started, finished, chance)
        case Committed():
            return None
        case None:
            raise TypeError("the target's runner returned nothing")
        case _:
            assert_never(outcome)


def _decide_failure(
    claim: Claim, spec: JobSpec | None, failed: Failed, started: datetime, finished: datetime, chance: float
) -> Settlement | Retry:
    retries = 0 if spec is None or claim.once else spec.max_retries
    retryable = failed.retryable if spec is None else is_retryable(spec, failed)
    # Attempts that were lost with their node are no failures. The first loss of a run is not counted as an attempt.
    failures = max(claim.attempt - max(claim.crashes - 1, 0), 1)
    if spec is not None and retryable and failures <= retries:
        base, ceiling = spec.retry_base_seconds, spec.retry_max_seconds
        seconds = retry_delay(failures, spec.retry_backoff, base, ceiling, chance)
        delay = timedelta(seconds=patient_delay(seconds, failed.retry_after, ceiling))
        return Retry(claim, started, finished, failed.outcome, storable_text(failed.error), delay, _target(spec))
    reason = "retries exhausted" if retryable else "not retryable"
    words = (reason, _storable(failed.result), failed.outcome, storable_text(failed.error))
    return Settlement(claim, started, finished, DEAD, *words, target=_target(spec))


def _storable(result: str | None) -> str | None:
    return None if result is None else storable_text(result)


def _target(spec: JobSpec | None) -> Kind:
    return "unknown" if spec is None else kind_of(spec.target)


class Settler:
    def __init__(
        self,
        store: Store,
        node: int,
        *,
        settled: Callable[[Claim], None],
        written: Callable[[], None] = lambda: None,
        retrying: Callable[[float], None],
        metrics: Metrics,
        died: Callable[[Collection[int]], None] | None = None,
    ) -> None:
        self._store = store
        self._node = node
        self._settled = settled
        self._written = written
        self._retrying = retrying
        self._metrics = metrics
        self._died = died
        self._ends: list[Settlement] = []
        self._retries: list[Retry] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._pause = 0.0

    def add(
        self, claim: Claim, spec: JobSpec | None, outcome: Outcome | None, started: datetime, finished: datetime
    ) -> None:
        chance = random.random()
        try:
            writing = decide(claim, spec, outcome, started, finished, chance)
        except Exception as error:
            # The target was called: an outcome that makes no sense is a failed attempt, and never no attempt at all.
            failed = Failed(f"The outcome of this attempt could not be recorded: {describe(error)}")
            facts = transitions.facts_of(claim, self._node)
            log.error("an outcome cannot be recorded as it is", **facts, error=failed.error)
            writing = decide(claim, spec, failed, started, finished, chance)
        match writing:
            case None:
                self._settled(claim)
                self._count([Settlement(claim, started, finished, SUCCEEDED, target=_target(spec))])
            case Settlement():
                self._ends.append(writing)
            case Retry():
                self._retries.append(writing)
        self._pump()

    async def drain(self, seconds: float) -> None:
        """Write what is in hand; what cannot be written by then is dropped, and its runs are rescued by others."""
        try:
            async with asyncio.timeout(seconds):
                while self._tasks or self._ends or self._retries:
                    self._pump()
                    await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            log.warning("results not written in time", runs=len(self._ends) + len(self._retries))
            self._ends, self._retries = [], []
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def abort(self) -> None:
        """The membership is lost. Results in hand are still offered for a moment: every settle names token and owner,
        so what is no longer ours is refused, and is on record as `stale` instead of vanishing."""
        await self.drain(LAST_WORDS_SECONDS)

    def _pump(self) -> None:
        while (self._ends or self._retries) and len(self._tasks) < STATEMENTS:
            if self._ends:
                ends, self._ends = self._ends[:BATCH], self._ends[BATCH:]
                self._spawn(self._write(ends, self._store.live_runs.settle))
            else:
                retries, self._retries = self._retries[:BATCH], self._retries[BATCH:]
                self._spawn(self._write(retries, self._store.live_runs.retry))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            self._pump()

    async def _write(
        self, batch: list[Writing], write: Callable[[int, Sequence[Writing]], Awaitable[list[Writing]]]
    ) -> None:
        """Write a batch; what could not be written waits again."""
        written: list[Writing] = []
        try:
            await self._write_apart(batch, write, written)
            self._pause = 0.0
        except Exception as error:
            # Whatever it was: a result that is given up leaves its run open for as long as this node lives.
            expected = isinstance(error, DetentError)
            done = set(map(id, written))
            left = [item for item in batch if id(item) not in done]
            log.warning("settle failed, trying again", runs=len(left), error=str(error), exc_info=not expected)
            self._pause = min(2.0, self._pause * 2 or 0.05)
            await asyncio.sleep(self._pause)
            self._wait_again(left)

    def _wait_again(self, batch: Sequence[Settlement | Retry]) -> None:
        self._ends += [item for item in batch if isinstance(item, Settlement)]
        self._retries += [item for item in batch if isinstance(item, Retry)]

    async def _write_apart(
        self,
        batch: list[Writing],
        write: Callable[[int, Sequence[Writing]], Awaitable[list[Writing]]],
        written: list[Writing],
    ) -> None:
        try:
            unmatched = await write(self._node, batch)
        except Rejected as error:
            if len(batch) > 1:
                half = len(batch) // 2
                try:
                    await self._write_apart(batch[:half], write, written)
                finally:
                    await self._write_apart(batch[half:], write, written)
                return
            facts = transitions.facts_of(batch[0].claim, self._node)
            log.error("a result could not be stored as it is", **facts, error=str(error))
            await self._write_somehow(batch[0], write)
        else:
            await failpoints.hit("W6")
            await self._finish(batch, unmatched)
        written += batch

    async def _write_somehow(
        self, item: Writing, write: Callable[[int, Sequence[Writing]], Awaitable[list[Writing]]]
    ) -> None:
        try:
            await self._finish([item], await write(self._node, [_without_words(item)]))
            return
        except Rejected as error:
            facts = transitions.facts_of(item.claim, self._node)
            log.error("a run is ended without its result", **facts, error=str(error))
        said = f"refused: {item.outcome}; the result could not be stored"
        if await self._store.live_runs.quarantine(self._node, item.claim, said):
            self._metrics.refused_settles += 1
            self._settled(item.claim)
        else:
            await self._finish([item], [item])

    async def _finish(self, batch: Sequence[Writing], unmatched: Sequence[Writing]) -> None:
        stale = await self._tell_stale_from_repeated(unmatched) if unmatched else []
        for item in batch:
            self._settled(item.claim)
            if isinstance(item, Retry):
                self._retrying(item.delay.total_seconds())
        self._written()
        refused = {item.claim for item in stale}
        written = [item for item in batch if item.claim not in refused] if refused else batch
        unsuccessful = self._count(written)
        if unsuccessful or transitions.debug_enabled():
            self._tell(written)

    def _tell(self, written: Sequence[Settlement | Retry]) -> None:
        """A success is everybody's daily affair; what did not succeed is not."""
        retries = [self._facts(item) for item in written if isinstance(item, Retry)]
        transitions.log_some("info", "attempt failed, another follows", retries)
        ends = [item for item in written if isinstance(item, Settlement)]
        dead = [self._facts(item) for item in ends if item.status == DEAD]
        transitions.log_some("warning", "run dead", dead)
        cancelled = [self._facts(item) for item in ends if item.status == CANCELLED]
        transitions.log_some("info", "run cancelled", cancelled)
        for item in ends if transitions.debug_enabled() else ():
            if item.status == SUCCEEDED:
                seconds = (item.finished - item.started).total_seconds()
                transitions.log_claim("run succeeded", item.claim, self._node, seconds=round(seconds, 6))

    def _facts(self, item: Settlement | Retry) -> dict[str, object]:
        facts = {**transitions.facts_of(item.claim, self._node), "outcome": item.outcome, "error": item.error}
        if isinstance(item, Retry):
            facts["again_in"] = round(item.delay.total_seconds(), 3)
        return facts

    def _count(self, written: Sequence[Writing]) -> int:
        """Once for a batch, which is all ends or all retries; how many did not succeed."""
        if not written:
            return 0
        metrics = self._metrics
        by_target = _by_target(written)
        unsuccessful = len(written)
        for target, items in by_target.items():
            metrics.duration[target].add([item.finished - item.started for item in items])
            outcomes = [item.outcome for item in items]
            for outcome in OUTCOMES:
                metrics.attempts[target, outcome] += outcomes.count(outcome)
            unsuccessful -= outcomes.count("succeeded")
        metrics.lateness.add([item.started - item.claim.scheduled_at for item in written if item.claim.attempt == 1])
        if isinstance(written[0], Retry):
            metrics.retries += len(written)
            return unsuccessful
        dead = 0
        for target, items in by_target.items():
            codes = [item.status for item in items if isinstance(item, Settlement)]
            for status, code in ENDS.items():
                metrics.ends[target, status] += codes.count(code)
            dead += codes.count(DEAD)
        if self._died is not None and dead:
            self._died({item.claim.job for item in written if isinstance(item, Settlement) and item.status == DEAD})
        return unsuccessful

    async def _tell_stale_from_repeated(self, unmatched: Sequence[Writing]) -> list[Writing]:
        committed = await self._store.live_runs.committed([item.claim for item in unmatched])
        late = [item for item, known in zip(unmatched, committed, strict=True) if not known]
        if late:
            self._metrics.refused_settles += len(late)
            refused = [self._facts(item) for item in late]
            transitions.log_some("warning", "result refused: the run is no longer this node's", refused)
            await self._store.live_runs.record_stale(self._node, late)
        return late


def _by_target(written: Sequence[Writing]) -> dict[Kind, Sequence[Writing]]:
    """Mostly one: a batch of one kind is not copied."""
    targets = {item.target for item in written}
    if len(targets) == 1:
        return {targets.pop(): written}
    return {target: [item for item in written if item.target == target] for target in targets}


def _without_words(item: Writing) -> Writing:
    if isinstance(item, Settlement):
        return item._replace(result=None, reason="quarantined", error="the result could not be stored")
    return item._replace(error="the error could not be stored")
