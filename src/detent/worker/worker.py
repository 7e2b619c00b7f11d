"""One node's worker: it holds runs, calls their targets, and passes outcomes on.

Runs come in three ways: handed off by the fire of the same node, claimed from the queues, or adopted, when the database
says that this node holds a run it does not know (a reply was lost). Up to `concurrency` run at once and others
wait in memory (room.py); a crash costs those that had not started nothing.

Adoption must not take up a run whose reply is merely on its way. A run is adopted only when two looks at the database,
further apart than any statement can take, both show it under the same token and it is held at neither.

This file is long because a run in hand passes through all of it; whatever can do without the others' state is a module
of its own: room, held, learning, claiming, deadlines, retries, suspects, settle.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from uuid import UUID

from detent.cluster.membership import Membership
from detent.domain.identity import MANUAL, decode_run_id
from detent.domain.job import JobSpec, TargetKind, kind_of
from detent.domain.run import Cancelled, Claim, Failed, NotBegun, Outcome
from detent.errors import DetentError, Unavailable
from detent.runtime import failpoints
from detent.runtime.clock import DatabaseClock, monotonic
from detent.runtime.service import Batcher, Loop, backoff
from detent.store import Store
from detent.store.db import OutcomeUnknown
from detent.targets.calls import Capacity
from detent.targets.exceptions import describe, failure_of
from detent.telemetry import tracing, transitions
from detent.telemetry.log import logger
from detent.telemetry.metrics import Metrics
from detent.worker.claiming import Claiming
from detent.worker.deadlines import Deadlines
from detent.worker.definitions import with_own_payload
from detent.worker.execute import Runner, call_of, execute
from detent.worker.held import Held, InHand, come_to_rest, expire, is_running
from detent.worker.learning import Learner
from detent.worker.promoting import Promoter
from detent.worker.queues.book import QueueBook
from detent.worker.queues.rounds import FairLine
from detent.worker.retries import Retries
from detent.worker.room import Room
from detent.worker.settle import Settler
from detent.worker.suspects import SUSPECT_FROM, Trials, is_suspect

log = logger("worker")

# Whoever makes runs ready says so; this is for when nobody could.
POLL_EVERY = 10.0
UNTRUSTED_PAUSE = 0.5
LARGEST_CLAIM = 1000
STARTED_AT_ONCE = 8
# So many runs that are over at once a slot takes before others have a turn.
TURNS = 50


class Worker:
    def __init__(
        self,
        store: Store,
        membership: Membership,
        clock: DatabaseClock,
        runners: Mapping[TargetKind, Runner],
        *,
        book: QueueBook,
        queues: Sequence[str],
        has: Sequence[str],
        concurrency: int,
        metrics: Metrics,
        given_back: Callable[[], None],
        made_room: Callable[[], None],
        died: Callable[[Collection[int]], None] | None = None,
        capacity: Capacity | None = None,
    ) -> None:
        """`given_back`: runs are ready for others. `made_room`: runs are over, and there is room again. `capacity`:
        of handlers, beyond the slots."""
        self._store = store
        self._membership = membership
        self._clock = clock
        self._runners = runners
        self._book = book
        self._claiming = Claiming(store, membership, book, queues, ["", *has], capacity or Capacity())
        self.place = Room(concurrency)
        self._answer_seconds = store.database.answer_seconds
        self._reconcile_every = self._answer_seconds + 1.0
        self._metrics = metrics
        self._given_back = given_back
        self._made_room = made_room
        self._held = InHand()
        self._waiting: FairLine[Held] = FairLine(book.weight_of)
        self._running = 0
        self._slots = 0
        self._starting = 0
        self._filling = False
        self._deadlines: Deadlines[Held] = Deadlines(is_running, expire)
        self.settled = 0
        self._backlog = True
        self._draining = False
        self._resting = False
        self._suspects: dict[Claim, float] = {}
        self.learner = Learner(store, self._wait, self._return)
        self._promoter = Promoter(store)
        self._retries = Retries()
        self._note_start = Batcher(self._start_all)
        self._return_uncalled = Batcher(self._give_back_uncalled)
        # The other runners count the time of their calls themselves.
        self._timed = {kind for kind, runner in runners.items() if not getattr(runner, "keeps_time", False)}
        self._trials = Trials(
            store, membership, running=lambda: self._running, begin=self._begin_apart, resume=self._resume,
            give_back=self._give_back_held_up,
        )  # fmt: skip
        self.settler = Settler(
            store, membership.node, settled=self._settled, written=made_room, retrying=self._retry_in,
            metrics=metrics, died=died,
        )  # fmt: skip
        self.loop = Loop("worker", self.tick)
        self.reconciling = Loop("reconcile", self.reconcile)

    # --- room, and how runs come in ---

    @property
    def room(self) -> int:
        if self._draining or self._resting or self._trials.holding:
            return 0
        return self.place.free(len(self._held))

    @property
    def busy(self) -> bool:
        """Whether anything is in hand or on its way here, whose end makes room."""
        return bool(self._held) or self.place.reserved > 0

    def looks_first(self) -> bool:
        """Whether runs may wait in the queues that we know nothing of since we were full: then we look now."""
        if self._backlog:
            self.loop.wake()
        return self._backlog

    @property
    def breath(self) -> int:
        return self.place.breath

    def foresee(self, jobs: Iterable[tuple[int, int]]) -> None:
        self.learner.foresee(jobs)

    @property
    def open_room(self) -> int:
        """For ticks that are handed off. None while our last claim found that others wait, whom they would bypass."""
        return 0 if self._backlog else self.room

    def takes(self, queue: int) -> bool:
        return queue in self._claiming.unlimited

    def load(self) -> dict[str, int]:
        return {
            "running": self._running,
            "waiting": len(self._waiting) + len(self._trials),
            "slots": self.place.concurrency,
        }

    def reserve(self, queues: Sequence[int]) -> list[bool]:
        """For each tick about to fire: may it be handed to this worker? Only where nothing is bypassed: we serve its
        queue, which has no limit, there is room, and our last claim found nothing waiting."""
        room = self.open_room
        unlimited = self._claiming.unlimited
        taken = []
        for queue in queues:
            ours = room > 0 and queue in unlimited
            room -= ours
            taken.append(ours)
        self.place.reserved += sum(taken)
        return taken

    def release(self, count: int) -> None:
        self.place.reserved -= count

    def accept_handed_off(self, claims: Sequence[Claim]) -> None:
        self.place.reserved -= len(claims)
        self._accept(claims)

    def _accept(self, claims: Iterable[Claim]) -> None:
        """Those whose definition is known wait for a slot; what is not known of the others is read first."""
        now = self._clock.now()
        unknown: list[Held] = []
        telling = transitions.debug_enabled()
        for claim in claims:
            if telling:
                transitions.log_claim("run claimed", claim, self._membership.node)
            held = Held(claim, now)
            self._held.add(held)
            if self.learner.knows(held):
                if claim.crashes < SUSPECT_FROM:
                    self._waiting.append(self._book.tenant_of(claim.queue), held)
                else:
                    self._trials.add(held)
            else:
                unknown.append(held)
        self.learner.learn(unknown)
        self._fill()
        if self._resting:
            self.loop.wake()  # what was on its way when the rest began goes back

    def _wait(self, some: Iterable[Held]) -> None:
        for held in some:
            if self._held.find(held.claim) is not held:
                continue
            if is_suspect(held.claim):
                self._trials.add(held)
            else:
                self._waiting.append(self._book.tenant_of(held.claim.queue), held)
        self._fill()

    async def _return(self, some: Sequence[Held]) -> None:
        await self._give_back([held.claim for held in some])
        for held in some:
            self._let_go(held)  # what could not be given back, reconciling finds again

    # --- slots ---

    def _fill(self) -> None:
        """Begin a few more slots where runs wait; each of them begins more. A slot takes one run after another, since a
        task for each costs more than all else that is done for a run that is over at once."""
        self._filling = False
        while (
            self._starting < STARTED_AT_ONCE and self._slots < self.place.concurrency and self._waiting and self._takes
        ):
            self._starting += 1
            self._slots += 1
            asyncio.create_task(self._slot()).add_done_callback(self._slot_over)

    def _fill_soon(self) -> None:
        """When this slot lets others have a turn: if its runs are over at once, it needs no help until then."""
        self._filling = True
        asyncio.get_running_loop().call_soon(self._fill)

    @property
    def _takes(self) -> bool:
        return not self._draining and not self._resting and not self._trials.holding

    async def _slot(self) -> None:
        self._starting -= 1
        task = asyncio.current_task()
        assert task is not None
        turns = 0
        while self._waiting and self._takes:
            held = self._waiting.popleft()
            held.task = task
            self._running += 1
            if not self._filling:
                self._fill_soon()
            try:
                await self._run(held)
            except Exception as error:
                facts = transitions.facts_of(held.claim, self._membership.node)
                log.error("a run was not carried out", **facts, error=describe(error))
            finally:
                self._ended(held)
            if task.cancelling():
                await come_to_rest(task)
            turns += 1
            if turns % TURNS == 0:
                self._made_room()
                await asyncio.sleep(0)

    def _slot_over(self, task: asyncio.Task[None]) -> None:
        self._slots -= 1
        self._made_room()
        if not task.cancelled():
            task.exception()
        self._fill()

    # --- runs that are tried alone (suspects.py) ---

    def _begin_apart(self, held: Held) -> None:
        """In a task of its own, since slots take nothing while it is tried."""
        self._running += 1
        held.task = asyncio.create_task(self._run_apart(held))

    async def _run_apart(self, held: Held) -> None:
        try:
            await self._run(held)
        except Exception as error:
            facts = transitions.facts_of(held.claim, self._membership.node)
            log.error("a run was not carried out", **facts, error=describe(error))
        finally:
            self._ended(held)

    def _resume(self) -> None:
        self._fill()
        self._made_room()
        self.loop.wake()

    async def _give_back_held_up(self) -> None:
        """What waits here behind a run that is tried: other nodes may have it."""
        await self._give_back_waiting(keep=is_suspect)
        self._given_back()

    # --- the loop: claim what is ready ---

    async def tick(self) -> float:
        if self._draining or not self._membership.trusted:
            return 0.5
        if self._resting:
            if self._waiting or len(self._trials):
                await self._give_back_waiting()
                self._given_back()
            return POLL_EVERY
        await failpoints.hit("W1")
        await self._claiming.learn()
        if await self._promoter.promote():
            self._given_back()
        limit = self._claimable()
        if not limit or not self._claiming.serving:
            self._backlog = True
            return self._retries.pause(POLL_EVERY)
        free = self.place.concurrency - self._running - len(self._waiting)
        self.place.reserved += limit
        begun = monotonic()
        try:
            claimed = await self._claiming.claim(limit, free, self._waiting.waits)
        except OutcomeUnknown:
            self.reconciling.wake()
            raise
        finally:
            self.place.reserved -= limit
            self._made_room()
        if claimed.unknown:
            self.reconciling.wake()
        self._retries.looked(begun)
        self._backlog = claimed.more
        self._accept(claimed.claims)
        if self._backlog and self.room:
            return 0.0
        return self._retries.pause(POLL_EVERY if claimed.wait is None else min(claimed.wait, POLL_EVERY))

    def _claimable(self) -> int:
        """How many runs a claim may bring. Where our last claim left nothing behind, it keeps half the room free: ticks
        that are fired while it waits for its answer would otherwise have to wait as well."""
        room = min(self.room, LARGEST_CLAIM)
        return room if self._backlog else (room + 1) // 2

    # --- one run ---

    async def _run(self, held: Held) -> None:
        """From a claim to an outcome, which goes to the settler. A run goes back only where its target was not called
        because the database did not answer; anything else that goes wrong would go wrong again, without end."""
        held.begun = True
        outcome: Outcome | NotBegun | None
        try:
            if held.claim.serial >= MANUAL:
                held.definition = await with_own_payload(self._store, held.claim, held.definition)
            outcome = await self._try(held)
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
                await self._give_back([held.claim])
                return
            outcome = _failure_of_ours(held, error)
        if isinstance(outcome, NotBegun):
            await self._hand_back(held)
        elif outcome is not None or held.called:
            self._pass_on(held, outcome)

    async def _hand_back(self, held: Held) -> None:
        """Its target was surely not called. If it is cancelled while it goes back, its next worker sees that."""
        held.called = False
        if held.stop:
            self._pass_on(held, Cancelled("cancelled before it started"))
            return
        held.begun = False
        await self._return_uncalled(held.claim)
        held.stop = False

    def _pass_on(self, held: Held, outcome: Outcome | None) -> None:
        held.passed_on = True
        if held.stop or held.expired or (isinstance(outcome, Failed) and outcome.outcome == "timeout"):
            self._trials.left_behind = True
        self.place.over()
        spec = held.definition.spec if held.definition is not None else None
        held.followed = Promoter.concerns(spec)
        self.settler.add(held.claim, spec, outcome, held.started, self._clock.now())

    def _ended(self, held: Held) -> None:
        """Whatever way a run ends, its slot is free again and it is in somebody's hands."""
        self._running -= 1
        held.task = None
        if not held.passed_on and not self._draining:
            if held.called:
                self._pass_on(held, Failed("The worker was interrupted while it called the target."))
            elif held.stop:
                self._pass_on(held, Cancelled("cancelled before it started"))
            else:
                self._let_go(held)  # reconciling finds it again

    async def _try(self, held: Held) -> Outcome | NotBegun | None:
        """None: the run is not ours to call any more."""
        claim, definition = held.claim, held.definition
        if definition is None:
            return Failed("The job's definition is gone, or this version cannot read it.", retryable=False)
        noted = claim.cancel or self._is_noted(claim, definition.spec)
        verdict = "go" if not noted else "cancel" if claim.cancel else await self._note_start(claim)
        if verdict == "cancel":
            return Cancelled("cancelled before it started")
        if verdict == "begun":
            return Failed(
                "Its node lost sight of it after it had begun, and it may be called only once.", retryable=False
            )
        if verdict == "lost" or not self._membership.trusted:
            return None
        try:
            call = call_of(claim, definition)
        except Exception as error:
            return Failed(f"This run cannot be made into a call: {describe(error)}", retryable=False)
        accepted, held.started = held.started, self._clock.now()
        self._metrics.starts += 1
        if kind_of(definition.spec.target) in self._timed:
            self._deadlines.add(held, definition.spec.timeout_seconds)
        if transitions.debug_enabled():
            transitions.log_claim("run started", claim, self._membership.node, job=definition.name)
        held.called = True
        if tracing.active is None:
            return await execute(call, self._runners)
        return await tracing.active.attempt(
            call, accepted, held.started, lambda traced: execute(traced, self._runners), self._clock.now
        )

    @staticmethod
    def _is_noted(claim: Claim, spec: JobSpec) -> bool:
        """A crash from here on is a lost attempt, where that must be known: the run survived one already, or it may be
        called only once. A start is also noted where somebody waits for it."""
        return claim.once or claim.crashes > 0 or spec.expect_start_within is not None

    async def _start_all(self, claims: Sequence[Claim]) -> Sequence[str]:
        alone = [self._trials.is_alone(claim) for claim in claims]
        verdicts = await self._store.live_runs.start(self._membership.node, claims, alone)
        return [verdicts.get((claim.job, claim.lane), "lost") for claim in claims]

    async def _give_back_uncalled(self, claims: Sequence[Claim]) -> Sequence[None]:
        """Their handlers could not be called here: others may have capacity, or this node later (claiming.py)."""
        self._metrics.not_begun += len(claims)
        await self._give_back(claims)
        self._given_back()
        return [None] * len(claims)

    def _let_go(self, held: Held) -> None:
        self._held.remove(held.claim)

    async def _give_back(self, claims: Sequence[Claim]) -> None:
        """Tried for as long as this node is trusted: otherwise they wait until reconciling has seen them long enough,
        or until the node is gone."""
        failures = 0
        while self._membership.trusted:
            try:
                await self._store.live_runs.give_back(self._membership.node, claims)
                return
            except DetentError as error:
                failures += 1
                log.info("runs not given back yet", runs=len(claims), error=str(error))
                await asyncio.sleep(backoff(failures))

    def _settled(self, claim: Claim) -> None:
        held = self._held.remove(claim)
        self.settled += 1
        if held is not None and held.passed_on:
            self.place.written()
        if held is not None and held.followed:
            self._promoter.freed(claim.job)
            self.loop.wake()
        enough = self._backlog and self.room >= self.place.concurrency // 2 + 1
        if enough or claim.queue in self._claiming.limited:
            self.loop.wake()

    def _retry_in(self, seconds: float) -> None:
        self._retries.add(monotonic() + seconds)
        asyncio.get_running_loop().call_later(seconds, self.loop.wake)  # a hint: the pauses of the loop know, too

    def holding(self, run_id: str, token: int) -> Held | None:
        """The run a handler speaks of, unless it was cancelled or is no longer ours. Called from handlers' threads."""
        key = decode_run_id(UUID(run_id))
        if key is None or not self._membership.trusted:
            return None
        asked = (*key, token)
        return next(
            (held for held in self._held.of_job(key.job) if held.claim.identity == asked and not held.stop), None
        )

    # --- what the database says we hold ---

    async def reconcile(self) -> float:
        """Adopt what we hold without knowing, stop what was cancelled."""
        if not self._membership.trusted or self._draining:
            return UNTRUSTED_PAUSE  # soon: somebody may have lost a reply just now, and woken us for it
        looked = await self._store.live_runs.reconcile(self._membership.node)
        unknown = []
        for claim in looked:
            held = self._held.find(claim)
            if held is None:
                unknown.append(claim)
            elif claim.cancel and not held.stop:
                self._stop(held)
        adopted = self._seen_long_enough(unknown)
        if adopted:
            node = self._membership.node
            transitions.log_some("warning", "run adopted", [transitions.facts_of(claim, node) for claim in adopted])
            self._accept(adopted)
        # Whoever loses a reply wakes us: while nothing is in hand, there is little to find.
        return self._reconcile_every if self._held or self._suspects else 3 * self._reconcile_every

    def _seen_long_enough(self, unknown: Sequence[Claim]) -> list[Claim]:
        now = monotonic()
        self._suspects = {claim: self._suspects.get(claim, now) for claim in unknown}
        adopted = [claim for claim, since in self._suspects.items() if now - since >= self._answer_seconds]
        for claim in adopted:
            del self._suspects[claim]
        return adopted

    def _stop(self, held: Held) -> None:
        """Asked to stop: one that has not begun will see it, one that runs is interrupted, one that is done is done."""
        held.stop = True
        held.claim = held.claim._replace(cancel=True)
        if held.begun and held.task is not None and not held.passed_on:
            held.task.cancel()

    # --- a rest, and the end ---

    def rest(self, resting: bool) -> None:
        """Take nothing new and give back what has not started, while what runs goes on; or take part again."""
        if resting != self._resting:
            self._resting = resting
            self.loop.wake()

    async def drain(self, seconds: float) -> None:
        """Stop claiming, give back what has not started, let the rest finish, then stop what has not."""
        self._draining = True
        await self.loop.stop()
        await self.reconciling.stop()
        await self._trials.stop(self._answer_seconds)
        returning = asyncio.create_task(self._give_back_for_good(self._take_waiting(), seconds))
        try:
            await self._finish(seconds)
            await returning
        finally:
            returning.cancel()
        self._deadlines.close()
        await self.learner.stop()
        await self.settler.drain(2 * self._answer_seconds)

    async def _give_back_for_good(self, claims: Sequence[Claim], seconds: float) -> None:
        """Beside the runs that finish: while this node is alive, nobody else can have what it holds."""
        if claims:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(seconds, self._answer_seconds)):
                    await self._give_back(claims)
            self._given_back()

    async def _finish(self, seconds: float) -> None:
        tasks = [held.task for held in self._held if held.task is not None]
        if tasks:
            log.info("waiting for runs to finish", runs=len(tasks), seconds=seconds)
            _, unfinished = await asyncio.wait(tasks, timeout=seconds)
            for task in unfinished:
                task.cancel()
            await asyncio.gather(*unfinished, return_exceptions=True)

    async def _give_back_waiting(self, keep: Callable[[Claim], bool] | None = None) -> None:
        claims = self._take_waiting(keep)
        if not claims:
            return
        try:
            await self._store.live_runs.give_back(self._membership.node, claims)
        except DetentError as error:
            log.warning("runs not given back; they are found again, or rescued by others", error=str(error))
        if transitions.debug_enabled():
            transitions.log_claims("run given back", claims, self._membership.node)

    def _take_waiting(self, keep: Callable[[Claim], bool] | None = None) -> list[Claim]:
        waiting = [held for held in self._held if not held.begun and not (keep is not None and keep(held.claim))]
        self._waiting.clear()
        if keep is None:
            self._trials.clear()
        for held in waiting:
            self._let_go(held)
        return [held.claim for held in waiting]

    async def abort(self) -> None:
        """Membership is lost: nothing held is ours any more, and nothing new is begun."""
        self._draining = True
        await self.loop.abort()
        await self.reconciling.abort()
        await self._trials.stop(0)
        tasks = [held.task for held in self._held if held.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._deadlines.close()
        await self.learner.stop()
        await self.settler.abort()


def _failure_of_ours(held: Held, error: Exception) -> Failed:
    """For what was raised around the call of a target, not by it."""
    if held.called:
        return failure_of(error)
    return Failed(f"This attempt failed before its target was called: {describe(error)}")
