"""Reports of pull workers about their runs, and the runs whose workers no longer report.

A report is settled by the same decision as an outcome of a node's own worker: the job's definition says whether to
retry, never the pull worker. Reports and heartbeats that arrive together are written together. A report without a
lease was either recorded before and its answer was lost, or it is too late: then it is refused and recorded as `stale`.

A callback of a target is such a report too (worker/callbacks.py). It may overtake the answer 202: then the node that
calls the target still holds the run, and the report takes the run from it under the same token.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from itertools import chain
from typing import NamedTuple, TypeVar

from detent.domain.identity import RunKey, run_id
from detent.domain.job import TargetCallback
from detent.domain.run import End, Failed, PlannedRetry
from detent.domain.states import END_CODES, Event, RunStatus
from detent.errors import DetentError, NotFound, OwnershipLost, Unavailable
from detent.jobs import JobOperations
from detent.runtime.bisection import halve_until_alone
from detent.runtime.service import Batcher
from detent.store import Store
from detent.store.db import OutcomeUnknown, PoolName, Rejected
from detent.store.pull import Expired, Extended, LeasedRun, PullBeat, Recorded, Report
from detent.store.tasks import Freed
from detent.store.tenant_wall import walled
from detent.store.upkeep import RUNS_CHANNEL
from detent.targets.exceptions import LONGEST_ERROR, describe
from detent.targets.text import storable_text
from detent.telemetry import transitions
from detent.telemetry.log import logger
from detent.telemetry.metrics import ENDS, Metrics
from detent.worker.callbacks import CallbackWorkers
from detent.worker.settle import decide

log = logger("pull")

BATCH = 200

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Settled(NamedTuple):
    """The status of a run after its report; `wait` is the time to its retry."""

    status: RunStatus
    wait: timedelta | None = None


class PulledRuns:
    def __init__(self, store: Store, jobs: JobOperations, metrics: Metrics) -> None:
        self._store = store
        self._jobs = jobs
        self._metrics = metrics
        self._callback_workers = CallbackWorkers(store)
        self._settle: Batcher[tuple[int, Report], RunStatus | Rejected | None] = Batcher(self._settle_all, BATCH)
        self._beat: Batcher[tuple[int, PullBeat], Extended | None] = Batcher(self._beat_all, BATCH)

    # --- reports of a worker ---

    def started(self, count: int) -> None:
        """Pull workers claimed this many runs, and start them."""
        self._metrics.starts += count

    async def heartbeat(self, tenant: int, key: RunKey, token: int, lease: timedelta | None) -> Extended:
        """Without `lease`, by that of the job for an accepted run, and by a minute for others."""
        beat = (tenant, PullBeat(key, token, lease))
        extended = await self._beat(beat) or await self._beat_early(*beat) or await self._beat(beat)
        if extended is None:
            await self._existing(tenant, key, token)
            raise _stale(key, "stop, its result would be refused")
        return extended

    async def _beat_early(self, tenant: int, beat: PullBeat) -> Extended | None:
        """Its node still waits for the rest of the answer 202, which begins the lease of the job: no longer one can be
        promised yet."""
        held = await self._store.pull.held_early(tenant, beat.key, beat.token)
        if held is None:
            return None
        lease = min(lease_of(held, beat.lease), lease_of(held, None))
        return Extended(held.claimed_at + lease, held.claim.cancel)

    async def complete(self, tenant: int, key: RunKey, token: int, result: str | None) -> Settled:
        report = Report(key, token, END_CODES[Event.SUCCEED], "succeeded", result=result)
        return await self._report(tenant, report)

    async def fail(self, tenant: int, key: RunKey, token: int, failed: Failed) -> Settled:
        known = self._store.pull
        held = await known.held(tenant, key, token) or await known.held_early(tenant, key, token)
        held = held or await known.held(tenant, key, token)  # its node processed the answer 202 between the two
        if held is None:
            return await self._unmatched(tenant, Report(key, token, None, failed.outcome))
        return await self._report(tenant, _decided(held, failed))

    async def _report(self, tenant: int, report: Report) -> Settled:
        status = await self._settle((tenant, report))
        if status is None:
            status = await self._settle_early(tenant, report) or await self._settle((tenant, report))
        if isinstance(status, Rejected):
            raise status
        if status is None:
            return await self._unmatched(tenant, report)
        self._count(status, report.outcome)
        _log_settled(status, report)
        if status is RunStatus.DEAD:
            await pause_failing(self._jobs, [report.key.job])
        return Settled(status, report.delay if status is RunStatus.RETRYING else None)

    async def _settle_early(self, tenant: int, report: Report) -> RunStatus | Rejected | None:
        """A callback that overtakes the answer 202. After it, whatever its node reports under this token is refused."""
        if await self._store.pull.held_early(tenant, report.key, report.token) is None:
            return None
        worker = (await self._callback_workers.of([tenant]))[tenant]
        freed = Freed(set(), set())
        try:
            status = await self._store.pull.settle_early(tenant, worker, report, freed)
        except Rejected as error:
            return error
        if status is not None:
            await promote(self._store, [report.key.job], freed, PoolName.PULL)
        return status

    def _count(self, status: RunStatus, outcome: str) -> None:
        self._metrics.attempts["pull", outcome] += 1
        if status is RunStatus.RETRYING:
            self._metrics.retries += 1
        elif status in ENDS:
            self._metrics.ends["pull", status] += 1

    async def _unmatched(self, tenant: int, report: Report) -> Settled:
        """Was it reported before, and the answer lost, or is it too late?"""
        recorded = await self._existing(tenant, report.key, report.token)
        if recorded.outcome == report.outcome:
            return Settled(recorded.status if recorded.token == report.token else RunStatus.RETRYING)
        await self._store.pull.record_stale(report.key, report.token, f"refused: {report.outcome}")
        self._metrics.refused_settles += 1
        log.warning(
            "a report came too late", run_id=str(run_id(report.key)), token=report.token, outcome=report.outcome
        )
        raise _stale(report.key, f"the report that it {report.outcome} is refused")

    async def _existing(self, tenant: int, key: RunKey, token: int) -> Recorded:
        recorded = await self._store.pull.recorded(tenant, key, token)
        if recorded is None:
            raise NotFound(f"There is no run {run_id(key)}: list the runs to see their ids.")
        return recorded

    # --- reports that arrive together are written together ---

    async def _settle_all(self, items: Sequence[tuple[int, Report]]) -> Sequence[RunStatus | Rejected | None]:
        freed = Freed(set(), set())
        settled = await _by_tenant(items, partial(self._settle_tenant, freed))
        await promote(self._store, sorted({report.key.job for _, report in items}), freed, PoolName.PULL)
        return settled

    async def _settle_tenant(
        self, freed: Freed, tenant: int, reports: Sequence[Report]
    ) -> Sequence[RunStatus | Rejected | None]:
        """A report that breaks a constraint does not fail the others."""

        async def alone(report: Report, error: Rejected) -> Sequence[RunStatus | Rejected | None]:
            log.error("a report could not be stored", run_id=str(run_id(report.key)), error=str(error))
            return [error]

        settle = partial(self._store.pull.settle, tenant, freed=freed)
        results = await halve_until_alone(reports, settle, alone, (Rejected,))
        return list(chain.from_iterable(results))

    async def _beat_all(self, items: Sequence[tuple[int, PullBeat]]) -> Sequence[Extended | None]:
        return await _by_tenant(items, self._store.pull.heartbeat)


def _log_settled(status: RunStatus, report: Report) -> None:
    facts = {"run_id": str(run_id(report.key)), "job_number": report.key.job, "token": report.token}
    write = transitions.log.debug if status is RunStatus.SUCCEEDED else transitions.log.info
    write(f"pulled run {status.value}", **facts, outcome=report.outcome, error=report.error)


async def promote(store: Store, jobs: list[int], freed: Freed, pool: PoolName = PoolName.WORK) -> None:
    """Runs that waited for runs of these jobs move up; after a failure the sweeps of the workers do it."""
    try:
        if await store.live_runs.promote(jobs, pool=pool):
            await store.upkeep.wake(RUNS_CHANNEL, "ready", pool=pool)
        for job in sorted(await store.tasks.reuse(freed, pool=pool)):
            await store.upkeep.wake(RUNS_CHANNEL, f"task:{job}", pool=pool)
    except DetentError as error:
        log.warning("waiting runs are not promoted yet", error=str(error))


async def sweep(store: Store, jobs: JobOperations, metrics: Metrics) -> int:
    """End runs over their time limit, free those whose lease ran out, and let runs move up that waited for them.
    Returns how many were ended or freed."""
    count = await _end_overdue(store, jobs) + await _end_silent(store, jobs, metrics)
    while batch := await store.pull.rescue():
        count += len(batch)
        metrics.rescued += len(batch)
        await pause_failing(jobs, [rescued.job for rescued in batch if rescued.dead])
        facts = [{**transitions.facts_of(run.claim, None), "dead": run.dead} for run in batch]
        transitions.log_some("warning", "run rescued: its lease ran out", facts)
    if await store.live_runs.promote() or count:
        await store.upkeep.wake(RUNS_CHANNEL, "ready")
    return count


async def _end_silent(store: Store, jobs: JobOperations, metrics: Metrics) -> int:
    """End the attempts of accepted runs whose targets sent no heartbeat within their lease. Returns how many."""
    count = 0
    freed = Freed(set(), set())
    while ended := await _expire(store, freed):
        count += len(ended)
        metrics.attempts["pull", "lost"] += len(ended)
        await promote(store, sorted({each.run.claim.job for each in ended}), freed)
        await pause_failing(jobs, [each.run.claim.job for each in ended if each.status is RunStatus.DEAD])
        facts = [{**transitions.facts_of(each.run.claim, None), "status": each.status} for each in ended]
        transitions.log_some("warning", "attempt lost: its target sent no heartbeat", facts)
    return count


async def _expire(store: Store, freed: Freed) -> list[Expired]:
    """One batch. A run that cannot be ended must not keep the others open, nor runs whose worker was lost."""
    try:
        return await store.pull.expire(_silent, freed)
    except Rejected:
        ended: list[Expired] = []
    passed_over = 0
    while True:
        try:
            one = await store.pull.expire(_silent, freed, limit=1, passed_over=passed_over)
        except Rejected as error:
            log.error("the attempt of a silent target is not ended", error=str(error))
            passed_over += 1
            continue
        if not one:
            return ended
        ended += one


def _silent(held: LeasedRun) -> Report:
    """The target may still work, so the attempt is lost, not failed: a late report makes it `stale`. It counts as a
    failure all the same: no worker is to blame for it."""
    lease = lease_of(held, None).total_seconds()
    words = f"The target accepted the run and sent neither a heartbeat nor the end of the run within {lease:g} s."
    return _decided(held, Failed(words, outcome="lost"))


def lease_of(held: LeasedRun, asked: timedelta | None) -> timedelta:
    """The lease of an accepted run: as asked for, or that of its job."""
    target = held.definition.spec.target if held.definition is not None else None
    callback = getattr(target, "callback", None)
    own = callback.lease_seconds if isinstance(callback, TargetCallback) else TargetCallback().lease_seconds
    return timedelta(seconds=own) if asked is None else asked


async def pause_failing(jobs: JobOperations, failing: Sequence[int]) -> None:
    """Pause those of these jobs that have too many dead runs. After an error, a job's next dead run tries again."""
    try:
        if failing:
            await jobs.automatic.pause_failing(failing)
    except DetentError as error:
        log.warning("jobs with dead runs are not paused yet", error=str(error))


async def _end_overdue(store: Store, jobs: JobOperations) -> int:
    overdue = await store.pull.overdue()
    for held in overdue:
        try:
            await _end_one(store, jobs, held)
        except (Unavailable, OutcomeUnknown):
            raise
        except Exception as error:  # one that cannot be ended must not keep the others open
            facts = transitions.facts_of(held.claim, None)
            log.error("a pulled run over its time limit is not ended", **facts, error=describe(error))
    if overdue:
        log.warning("pulled runs over their time limit", runs=len(overdue))
    return len(overdue)


async def _end_one(store: Store, jobs: JobOperations, held: LeasedRun) -> None:
    limit = held.definition.spec.timeout_seconds if held.definition is not None else 0
    report = _decided(held, Failed(f"No answer within {limit:g} s.", outcome="timeout"))
    freed = Freed(set(), set())
    await store.pull.settle(held.tenant, [report], freed)  # no match: its worker has reported in the meantime
    await promote(store, [held.claim.job], freed)
    if report.status == END_CODES[Event.EXHAUST]:
        await pause_failing(jobs, [held.claim.job])


def _decided(held: LeasedRun, failed: Failed) -> Report:
    """The decision that a node's own worker would make, as a report."""
    claim = held.claim
    spec = held.definition.spec if held.definition is not None else None
    error = storable_text(failed.error[:LONGEST_ERROR])
    trace = failed.traceback
    failed = Failed(error, failed.retryable, failed.outcome, failed.retry_after, kinds=failed.kinds)
    match decide(claim, spec, failed, random.random()):
        case PlannedRetry(delay=delay):
            words = {"error": failed.error, "traceback": trace}
            return Report(claim.key, claim.token, None, failed.outcome, delay=delay, **words)
        case End(status=status, reason=reason):
            return Report(claim.key, claim.token, status, failed.outcome, reason, error=failed.error, traceback=trace)
        case _:
            raise AssertionError("a failure is always written")


async def _by_tenant(
    items: Sequence[tuple[int, Item]], write: Callable[[int, Sequence[Item]], Awaitable[Sequence[Answer]]]
) -> Sequence[Answer]:
    """Write with one statement for each tenant, restricted to the rows of that tenant: a batch belongs to no single
    request. Answers in the order of the items."""
    answers: dict[int, Answer] = {}
    for tenant in dict.fromkeys(owner for owner, _ in items):
        positions = [position for position, (owner, _) in enumerate(items) if owner == tenant]
        with walled(tenant):
            written = await write(tenant, [items[position][1] for position in positions])
        answers.update(zip(positions, written, strict=True))
    return [answers[position] for position in range(len(items))]


def _stale(key: RunKey, consequence: str) -> OwnershipLost:
    return OwnershipLost(f"The run {run_id(key)} is no longer held under this token: {consequence}.")
