"""One attempt of a held run: from its claim to an outcome, which goes to the settler."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence

from msgspec import UNSET

from detent.cluster.membership import Membership
from detent.domain.identity import MANUAL, from_seconds
from detent.domain.job import Definition, HttpTarget, JobSpec, TargetKind, kind_of
from detent.domain.run import Call, Cancelled, Claim, Failed, HeldRun, NotBegun, Outcome
from detent.errors import Unavailable
from detent.runtime.clock import DatabaseClock
from detent.runtime.service import Batcher
from detent.store import Store
from detent.store.db import OutcomeUnknown
from detent.targets.breaker import HostBreakers
from detent.targets.called_hosts import host_of
from detent.targets.exceptions import describe, failure_of
from detent.telemetry import tracing, transitions
from detent.telemetry.log import logger
from detent.telemetry.metrics import Metrics
from detent.worker.callbacks import CallbackTickets
from detent.worker.capacity import WorkerCapacity
from detent.worker.deadlines import Deadlines
from detent.worker.definitions import payload_fault, with_own_payload
from detent.worker.execute import Runner, call_of, execute
from detent.worker.held import HeldRuns, expire, is_running
from detent.worker.promotion import WAITING_POLICIES
from detent.worker.returns import Returns
from detent.worker.secret_providers import SecretFault
from detent.worker.secrets import SecretValues
from detent.worker.settle import Settler

log = logger("worker")


class Attempts:
    def __init__(
        self,
        store: Store,
        membership: Membership,
        clock: DatabaseClock,
        runners: Mapping[TargetKind, Runner],
        *,
        held: HeldRuns,
        capacity: WorkerCapacity,
        settler: Settler,
        returns: Returns,
        secrets: SecretValues,
        callbacks: CallbackTickets,
        breakers: HostBreakers,
        metrics: Metrics,
    ) -> None:
        self._store = store
        self._membership = membership
        self._clock = clock
        self._runners = runners
        self._held = held
        self._capacity = capacity
        self._settler = settler
        self._returns = returns
        self._secrets = secrets
        self._callbacks = callbacks
        self.breakers = breakers
        self._metrics = metrics
        self._deadlines: Deadlines[HeldRun] = Deadlines(is_running, expire)
        self._note_start = Batcher(self._start_all)
        # The other runners enforce the time limits of their calls themselves.
        self._timed = {kind for kind, runner in runners.items() if not getattr(runner, "keeps_time", False)}
        # A handler was interrupted here. A plain function cannot be: it may still run, and may end the process.
        self.left_behind = False
        self.put_off_early = 0
        """Runs that were put off before they had a slot."""

    async def run(self, held: HeldRun) -> None:
        """A run is given back only if its target was not called because the database did not answer; any other error
        would occur again each time."""
        held.begun = True
        outcome: Outcome | NotBegun | None
        try:
            call = self._call_at_once(held) or await self._prepare(held)
            outcome = await self._begin(held, call) if isinstance(call, Call) else call
        except asyncio.CancelledError:
            if held.stop:
                outcome = Cancelled("cancelled while it ran")
            elif held.expired and held.definition is not None:
                outcome = Failed(f"No answer within {held.definition.spec.timeout_seconds:g} s.", outcome="timeout")
            else:
                raise
        except Exception as error:
            if isinstance(error, Unavailable | OutcomeUnknown) and not held.called:
                facts = transitions.facts_of(held.claim, self._membership.node)
                log.warning("run could not be started", **facts, error=str(error))
                await self._returns.give_back([held.claim])
                return
            outcome = _failure_around_call(held, error)
        if isinstance(outcome, NotBegun):
            await self._not_begun(held, outcome)
        elif outcome is not None or held.called:
            self._settle(held, outcome)

    def ended(self, held: HeldRun) -> None:
        """The attempt ended without an outcome: so the run is settled here, or left to reconciling."""
        if not self._capacity.closed:
            if held.called:
                self._settle(held, Failed("The worker was interrupted while it called the target."))
            elif held.stop:
                self._settle(held, Cancelled("cancelled before it started"))
            else:
                self._held.remove(held.claim)  # reconciling finds it again

    def close(self) -> None:
        self._deadlines.close()

    def _call_at_once(self, held: HeldRun) -> Call | None:
        """The call of a run for which nothing has to be read, asked or recorded before, which is usual. Written out
        here, because it is done for every run."""
        claim, definition = held.claim, held.definition
        if definition is None or claim.serial >= MANUAL or claim.cancel or claim.once or claim.crashes:
            return None
        spec = definition.spec
        target = spec.target
        if (
            spec.expect_start_within is not None
            or self._secrets.concern(definition)
            or (type(target) is HttpTarget and target.callback is not UNSET)
            or not self._membership.trusted
        ):
            return None
        try:
            return call_of(claim, definition)
        except Exception:
            return None  # the other way says what is wrong with it

    async def _prepare(self, held: HeldRun) -> Call | Outcome | None:
        """The call of any run, or its outcome without one. None: this node no longer holds the run."""
        fault: str | None = None
        if held.claim.serial >= MANUAL:
            held.definition = await with_own_payload(self._store, held.claim, held.definition)
            fault = await payload_fault(held.claim, held.definition)
        if fault is not None:
            return Failed(fault, retryable=False)
        claim, definition = held.claim, held.definition
        if definition is None:
            return Failed("The job's definition is gone, or this version cannot read it.", retryable=False)
        noted = claim.cancel or self._is_noted(claim, definition.spec)
        verdict = "go" if not noted else "cancel" if claim.cancel else await self._note_start(held)
        if verdict == "cancel":
            return Cancelled("cancelled before it started")
        if verdict == "begun":
            return Failed(
                "Its node lost track of it after it had begun, and it may be called only once.", retryable=False
            )
        if verdict == "lost" or not self._membership.trusted:
            return None
        try:
            call = call_of(claim, definition)
        except Exception as error:
            return Failed(f"The call of this run could not be prepared: {describe(error)}", retryable=False)
        return await self._complete(call, definition)

    async def _complete(self, call: Call, definition: Definition) -> Call | Failed | None:
        """The call with what is asked for just before it: secrets, and what its target reports with."""
        if self._secrets.concern(definition):
            try:
                call = await self._secrets.fill(call, definition, self._clock.now())
            except SecretFault as fault:  # a retry may help: another worker has the key, or the secret is set by then
                return Failed(str(fault))
            if self._is_lost():  # it has waited, and another node may have the run by now
                return None
        target = definition.spec.target
        if type(target) is HttpTarget and target.callback is not UNSET:
            filled = await self._callbacks.fill(call)
            return None if isinstance(filled, Call) and self._is_lost() else filled
        return call

    def _begin(self, held: HeldRun, call: Call) -> Awaitable[Outcome | NotBegun]:
        """Call the target: awaited at once, and by the task that is to be interrupted with the run."""
        accepted, held.started = held.started, self._clock.seconds()
        held.called = True
        self._metrics.starts += 1
        if held.waited:
            self._watch(held)
        if transitions.debug_enabled():
            transitions.log_claim("run started", held.claim, self._membership.node, job=call.job)
        if tracing.active is None:
            return execute(call, self._runners)
        times = (from_seconds(accepted), from_seconds(held.started))
        return tracing.active.attempt(call, *times, lambda traced: execute(traced, self._runners), self._clock.now)

    def waits(self, held: HeldRun) -> None:
        """Watch the time limit of a run that did not end in the pass of the event loop in which its slot began it. A
        run that never waits needs no watch, because nothing can interrupt it."""
        held.waited = True
        if held.called and is_running(held):
            self._watch(held)

    def _watch(self, held: HeldRun) -> None:
        definition = held.definition
        if definition is not None and kind_of(definition.spec.target) in self._timed:
            self._deadlines.add(held, definition.spec.timeout_seconds)

    def _is_lost(self) -> bool:
        return not self._membership.trusted

    @staticmethod
    def _is_noted(claim: Claim, spec: JobSpec) -> bool:
        """Whether to record the start: a crash from here on must count as a lost attempt, because the run may be called
        only once or has survived a crash already; or its start has a deadline."""
        return claim.once or claim.crashes > 0 or spec.expect_start_within is not None

    async def _start_all(self, some: Sequence[HeldRun]) -> Sequence[str]:
        claims = [held.claim for held in some]
        verdicts = await self._store.live_runs.start(self._membership.node, claims, [held.alone for held in some])
        return [verdicts.get((claim.job, claim.lane), "lost") for claim in claims]

    async def _not_begun(self, held: HeldRun, refused: NotBegun) -> None:
        """Return a run whose target was certainly not called. If it is cancelled meanwhile, its next worker sees
        that."""
        held.called = False
        if held.stop:
            self._settle(held, Cancelled("cancelled before it started"))
            return
        if refused.retry_after > 0:
            self._put_off(held, refused.retry_after)
            return
        held.begun = False
        await self._returns.give_back_uncalled(held.claim)
        held.stop = False

    def put_off(self, held: HeldRun) -> bool:
        """Return a run whose host is not to be called now, before it has a slot: thousands may be due for a host that
        does not answer. A run that is to be cancelled does not wait for its host."""
        if held.definition is None or held.claim.cancel or held.stop:
            return False
        host = host_of(held.definition.spec.target, held.definition.tenant)
        seconds = 0.0 if host is None else self.breakers.waiting_time(host)
        if not seconds:
            return False
        held.begun = True
        self.put_off_early += 1
        self._put_off(held, seconds)
        return True

    def _put_off(self, held: HeldRun, seconds: float) -> None:
        held.over = True
        self._capacity.over()
        self._returns.put_off(held, seconds)

    def _settle(self, held: HeldRun, outcome: Outcome | None) -> None:
        held.over = True
        if held.stop or held.expired or (isinstance(outcome, Failed) and outcome.outcome == "timeout"):
            self.left_behind = True
        self._capacity.over()
        definition = held.definition
        held.followed = definition is not None and definition.spec.concurrent_policy in WAITING_POLICIES
        self._settler.add(held, outcome, self._clock.seconds())


def _failure_around_call(held: HeldRun, error: Exception) -> Failed:
    """For an error that was raised around the call of a target, not by it."""
    if held.called:
        return failure_of(error)
    return Failed(f"This attempt failed before its target was called: {describe(error)}")
