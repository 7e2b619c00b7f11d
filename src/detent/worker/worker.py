"""One node's worker: it takes runs in, executes them, and passes their outcomes on.

Runs come in three ways: handed off by the fire of the same node, claimed from the queues, or adopted, when the database
says that this node holds a run it does not know (reconcile.py). Up to `concurrency` run at once, others wait in memory
(capacity.py, slots.py). Definitions are read before a run waits for its slot (definitions.py); runs that may have ended
their node are tried alone (suspects.py).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from detent.cluster.membership import Membership
from detent.domain.identity import decode_run_id
from detent.domain.job import TargetKind
from detent.domain.run import Claim, HeldRun
from detent.runtime import failpoints
from detent.runtime.clock import DatabaseClock, monotonic
from detent.runtime.service import Loop
from detent.runtime.wakeups import Wakeups
from detent.store import Store
from detent.store.db import OutcomeUnknown
from detent.targets.breaker import HostBreakers
from detent.targets.calls import Capacity
from detent.telemetry import transitions
from detent.telemetry.log import logger
from detent.telemetry.metrics import Metrics
from detent.transports.link import TransportLink
from detent.worker.attempt import Attempts
from detent.worker.callbacks import CallbackTickets
from detent.worker.capacity import WorkerCapacity
from detent.worker.claiming import Claiming
from detent.worker.definitions import DefinitionLoader
from detent.worker.execute import Runner
from detent.worker.held import HeldRuns
from detent.worker.intake import Intake
from detent.worker.offers import OfferTaker
from detent.worker.on_demand import OnDemandRuns
from detent.worker.promotion import Promoter
from detent.worker.queue_reads import QueueReads
from detent.worker.queues.book import QueueBook
from detent.worker.reconcile import Reconciler
from detent.worker.retries import Retries
from detent.worker.returns import Returns
from detent.worker.secrets import SecretValues
from detent.worker.settle import Settler
from detent.worker.slots import Slots
from detent.worker.suspects import SUSPECT_FROM, Trials

log = logger("worker")

# Runs that become ready are announced; this is for when an announcement was lost.
POLL_EVERY = 10.0
IDLE_PAUSE = 0.5


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
        capabilities: Sequence[str],
        concurrency: int,
        tenant_headroom: float,
        wakeups: Wakeups,
        metrics: Metrics,
        handlers: Capacity,
        secrets: SecretValues,
        breakers: HostBreakers,
        draining: bool = False,
        callback_url: str | None = None,
        link: TransportLink | None = None,
    ) -> None:
        """`capabilities`: what this node can call beyond HTTP. `tenant_headroom`: the part of the slots that no tenant
        takes beyond its fair share. `handlers`: their capacity. `secrets`: fills them into calls. `draining`: take
        nothing in for now. `callback_url`: where targets reach the API. `link`: the transport."""
        self._membership = membership
        self._book = book
        self._clock = clock
        self._wakeups = wakeups
        self._answer_seconds = store.database.answer_seconds
        self._held = HeldRuns()
        self.capacity = WorkerCapacity(concurrency, draining=draining)
        self._claiming = Claiming(store, membership, book, queues, ["", *capabilities], handlers)
        self.settled = 0
        self._queue_reads = QueueReads()
        self._promoter = Promoter(store)
        self._retries = Retries(lambda: self.loop.wake())
        self._settler = Settler(store, membership.node, settled=self._settled, wakeups=wakeups, metrics=metrics)
        self._returns = Returns(store, membership, self._held, self.capacity, self._retries, wakeups, metrics)
        self._attempts = Attempts(
            store, membership, clock, runners, held=self._held, capacity=self.capacity, settler=self._settler,
            returns=self._returns, secrets=secrets, callbacks=CallbackTickets(store, callback_url), breakers=breakers,
            metrics=metrics,
        )  # fmt: skip
        self.slots = Slots(
            membership.node, held=self._held, capacity=self.capacity, attempts=self._attempts,
            weight_of=book.weight_of, headroom=tenant_headroom, wakeups=wakeups,
        )  # fmt: skip
        self._intake = Intake(
            held=self._held, capacity=self.capacity, slots=self.slots, claiming=self._claiming, book=book
        )
        self._trials = Trials(store, membership, self.slots, self.capacity, self._returns, wakeups)
        self._definitions = DefinitionLoader(store, self._loaded, self._returns.give_back_unloaded)
        self.reconciler = self._reconciler_of(store)
        self.loop = Loop("worker", self.tick)
        self.on_demand = self._on_demand_runs()
        self.offers = None if link is None else self._offer_taker(store, link, metrics)
        handlers.notify = self.loop.wake
        self._subscribe(wakeups)

    def _reconciler_of(self, store: Store) -> Reconciler:
        return Reconciler(
            store, self._membership, held=self._held, capacity=self.capacity, adopt=self._accept, wakeups=self._wakeups
        )

    def _on_demand_runs(self) -> OnDemandRuns:
        return OnDemandRuns(
            self._claiming, capacity=self.capacity,
            claimable=lambda: 0 if self._intake.backlog else self._intake.claimable(),
            accept=self._accept, wake=self.loop.wake, wakeups=self._wakeups,
        )  # fmt: skip

    def _offer_taker(self, store: Store, link: TransportLink, metrics: Metrics) -> OfferTaker:
        return OfferTaker(
            store, self._membership, self._clock, link, intake=self._intake, capacity=self.capacity,
            claiming=self._claiming, accept=self._accept, claim_as_usual=self._claim_as_usual,
            wakeups=self._wakeups, metrics=metrics,
        )  # fmt: skip

    def _subscribe(self, wakeups: Wakeups) -> None:
        for event in (wakeups.runs_ready, wakeups.runs_queued):
            event.subscribe(self._queue_reads.hint)
            event.subscribe(self.loop.wake)
        wakeups.runs_put_off.subscribe(lambda _runs: self._claim_what_was_left())
        wakeups.draining.subscribe(self.drain_for_now)
        wakeups.others_work.subscribe(self._set_others_work)

    @property
    def loops(self) -> list[Loop]:
        own = [self.loop, self.on_demand.loop, self.reconciler.loop]
        return own if self.offers is None else [*own, self.offers.loop]

    # --- what the fire of this node asks (scheduler/handoff.py) ---

    @property
    def free_capacity(self) -> int:
        return self._intake.free

    def open_capacity(self, queue: int) -> int:
        return self._intake.open_capacity(queue)

    def with_free_slot(self, tenants: Iterable[int]) -> set[int]:
        return self._intake.with_free_slot(tenants)

    @property
    def max_waiting(self) -> int:
        return self.capacity.max_waiting

    @property
    def busy(self) -> bool:
        """Whether runs are held or on their way here, whose end frees capacity."""
        return bool(self._held) or self.capacity.reserved > 0

    def checks_backlog(self) -> bool:
        """Whether runs may wait in the queues, unknown since the worker was full: then it claims now."""
        if self._intake.backlog:
            self.loop.wake()
        return self._intake.backlog

    def serves(self, queue: int) -> bool:
        return queue in self._claiming.unlimited

    def prefetch(self, jobs: Iterable[tuple[int, int]]) -> None:
        self._definitions.prefetch(jobs)

    def reserve(self, queues: Sequence[int]) -> list[bool]:
        return self._intake.reserve(queues)

    def release(self, count: int) -> None:
        self.capacity.reserved -= count

    def accept_handed_off(self, claims: Sequence[Claim]) -> None:
        self.capacity.reserved -= len(claims)
        self._accept(claims)

    # --- how runs come in ---

    def _accept(self, claims: Sequence[Claim]) -> None:
        """Runs whose definition is known wait for a slot; the definitions of the others are read first."""
        now = self._clock.seconds()
        if transitions.debug_enabled():
            transitions.log_claims("run claimed", claims, self._membership.node)
        tenants = {queue: self._book.tenant_of(queue) for queue in {claim.queue for claim in claims}}
        some = [HeldRun(claim, now, tenants[claim.queue]) for claim in claims]
        self._held.add_all(some)
        unknown = self._definitions.fill(some)
        self._line_up([held for held in some if held.definition is not None] if unknown else some)
        self._definitions.load(unknown)
        self.slots.fill()
        self._give_back_if_draining()

    def _loaded(self, some: Iterable[HeldRun]) -> None:
        self._line_up([held for held in some if self._held.find(held.claim) is held])
        self.slots.fill()
        self._give_back_if_draining()

    def _give_back_if_draining(self) -> None:
        """Runs that were on their way when the draining began go back at the next pass."""
        if self.capacity.draining:
            self.loop.wake()

    def _line_up(self, some: Sequence[HeldRun]) -> None:
        if self._attempts.breakers.may_put_off:
            some = [held for held in some if not self._attempts.put_off(held)]
        for held in some:
            if held.claim.crashes >= SUSPECT_FROM:
                self._trials.add(held)
        self.slots.add([held for held in some if held.claim.crashes < SUSPECT_FROM])

    # --- the loop: claim what is ready ---

    async def tick(self) -> float:
        capacity = self.capacity
        if capacity.closed or not self._membership.trusted:
            return IDLE_PAUSE
        if capacity.draining:
            await self._give_back_waiting()
            return self._poll_every
        await failpoints.hit("W1")
        await self._claiming.learn()
        self.slots.share_among(self._claiming.tenants)
        if await self._promoter.promote():
            self._wakeups.runs_given_back()
        await self.on_demand.prepare()
        limit = self._intake.claimable()
        shares = self.slots.shares
        if not self._claiming.serving or (not limit and not (capacity.accepts and shares.any_free)):
            self._intake.fell_behind()
            return self._retries.pause(self._poll_every)
        free = capacity.concurrency - self.slots.running - self.slots.waiting
        capacity.reserved += limit
        began = monotonic()
        queues = self._queue_reads.begins(needed=self._intake.backlog or not self._claiming.direct)
        try:
            claimed = await self._claiming.claim(
                limit, free, self.slots.waits, None if shares.alone else self._intake.open_to, queues=queues
            )
        except OutcomeUnknown:
            self._wakeups.reply_lost()
            raise
        finally:
            capacity.reserved -= limit
            self._wakeups.capacity_freed()
        if claimed.unknown:
            self._wakeups.reply_lost()
        if queues:
            self._retries.claimed(began)
        self._intake.left_behind(claimed.behind)
        put_off = self._attempts.put_off_early
        self._accept(claimed.claims)
        self._intake.took_in(len(claimed.claims), self._attempts.put_off_early - put_off)
        if self._intake.backlog and (self.free_capacity or self._intake.slot_waits()):
            return 0.0
        if self.offers is not None:
            self.offers.loop.wake()
        longest = self._queue_reads.wait(self.on_demand.backlog.wait(self._poll_every), read=queues)
        return self._retries.pause(longest if claimed.wait is None else min(claimed.wait, longest))

    @property
    def _poll_every(self) -> float:
        return POLL_EVERY if self.offers is None else self.offers.poll_every(POLL_EVERY)

    def _claim_as_usual(self, enqueued: bool) -> None:
        """A transport says that runs wait, perhaps (`enqueued`) on-demand runs."""
        self._queue_reads.hint()
        if enqueued:
            self.on_demand.backlog.hint(None)
        self.loop.wake()

    async def _give_back_waiting(self) -> None:
        if self.slots.waiting or len(self._trials):
            self._trials.clear()
            await self._returns.give_back_once(self.slots.take_waiting())
            self._wakeups.runs_given_back()

    # --- how runs leave ---

    def _settled(self, some: Sequence[HeldRun], retry_seconds: Sequence[float]) -> None:
        """Their outcomes are written; some of the runs are retried after these seconds."""
        limited = self._claiming.limited
        gone = self._held.remove_all(some)
        self.capacity.written(sum([held.over for held in gone]))
        followed = [held.claim.job for held in gone if held.followed]
        self._promoter.freed(followed)
        if followed or (limited and any(held.claim.queue in limited for held in some)):
            self.loop.wake()
        self.on_demand.settled(some, retried=bool(retry_seconds))
        self.settled += len(some)
        self._claim_what_was_left()
        self._retries.add(retry_seconds)

    def _claim_what_was_left(self) -> None:
        """Runs left this worker, written or put off: claim again once half of its capacity is free."""
        intake = self._intake
        if intake.backlog and (intake.free >= self.capacity.concurrency // 2 + 1 or intake.slot_waits()):
            self.loop.wake()

    # --- what others ask ---

    def load(self) -> dict[str, int]:
        waiting = self.slots.waiting + len(self._trials)
        return {
            "running": self.slots.running,
            "waiting": waiting,
            "slots": self.capacity.concurrency,
            "tenants_held_back": self.slots.held_back,
        }

    def holding(self, run_id: str, token: int) -> HeldRun | None:
        """The run that a handler means, unless it was cancelled or this node lost it. Called from handlers' threads."""
        key = decode_run_id(UUID(run_id))
        if key is None or not self._membership.trusted:
            return None
        asked = (*key, token)
        return next((held for held in self._held.of_run(key) if held.claim.identity == asked and not held.stop), None)

    def _set_others_work(self, others: bool) -> None:
        self.capacity.others_work = others

    # --- draining, and the end ---

    def drain_for_now(self, draining: bool) -> None:
        """Take no new runs and give back those that have not started, while running ones continue; or end the drain."""
        if draining != self.capacity.draining:
            self.capacity.draining = draining
            self.loop.wake()
            self._wait_for_no_offer()

    def _wait_for_no_offer(self) -> None:
        if self.offers is not None:
            self.offers.interrupt()

    async def drain(self, seconds: float) -> None:
        """Stop claiming, give back what has not started, let the rest finish, then stop what has not."""
        self.capacity.closed = True
        self._wait_for_no_offer()
        for loop in self.loops:
            await loop.stop()
        await self._trials.stop(self._answer_seconds)
        returning = asyncio.create_task(self._give_back_for_good(self.slots.take_waiting(), seconds))
        try:
            await self._finish(seconds)
            await returning
        finally:
            returning.cancel()
        self._attempts.close()
        await self._definitions.stop()
        await self._returns.finish(2 * self._answer_seconds)
        await self._settler.drain(2 * self._answer_seconds)

    async def _give_back_for_good(self, claims: Sequence[Claim], seconds: float) -> None:
        """While other runs finish: as long as this node is alive, no other can claim what it holds."""
        if claims:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(seconds, self._answer_seconds)):
                    await self._returns.give_back(claims)
            self._wakeups.runs_given_back()

    async def _finish(self, seconds: float) -> None:
        tasks = [held.task for held in self._held if held.task is not None]
        if tasks:
            log.info("waiting for runs to finish", runs=len(tasks), seconds=seconds)
            _, unfinished = await asyncio.wait(tasks, timeout=seconds)
            for task in unfinished:
                task.cancel()
            await asyncio.gather(*unfinished, return_exceptions=True)

    async def abort(self) -> None:
        """Membership is lost: this node no longer holds any run, and starts none."""
        self.capacity.closed = True
        for loop in self.loops:
            await loop.abort()
        await self._trials.abort()
        tasks = [held.task for held in self._held if held.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._attempts.close()
        await self._definitions.stop()
        self._returns.abort()
        await self._settler.abort()
