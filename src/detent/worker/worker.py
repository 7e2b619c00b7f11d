"""One node's worker: it takes runs in, executes them, and passes their outcomes on.

Runs come in three ways: handed off by the fire of the same node, claimed from the queues, or adopted, when the database
says that this node holds a run it does not know (reconcile.py). Up to `concurrency` run at once and others wait in
memory (capacity.py, slots.py); a crash costs those that had not started nothing. Definitions are read before a run
waits for its slot (definitions.py); runs that may have ended their node are tried alone (suspects.py).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from detent.cluster.membership import Membership
from detent.domain.identity import decode_run_id
from detent.domain.job import TargetKind
from detent.domain.run import Claim
from detent.domain.shares import reserve_fairly
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
from detent.worker.attempt import Attempts
from detent.worker.callbacks import CallbackTickets
from detent.worker.capacity import WorkerCapacity
from detent.worker.claiming import Claiming
from detent.worker.definitions import DefinitionLoader
from detent.worker.execute import Runner
from detent.worker.held import HeldRun, HeldRuns
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
LARGEST_CLAIM = 1000


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
    ) -> None:
        """`capabilities`: what this node can call beyond HTTP. `tenant_headroom`: the part of the slots that no tenant
        takes beyond its fair share. `handlers`: their capacity, beyond the slots. `secrets`: fills them into calls.
        `draining`: take nothing in for now. `callback_url`: where targets reach the API, if this node knows it."""
        self._membership = membership
        self._book = book
        self._clock = clock
        self._wakeups = wakeups
        self._answer_seconds = store.database.answer_seconds
        self._held = HeldRuns()
        self.capacity = WorkerCapacity(concurrency)
        self.capacity.draining = draining
        self._claiming = Claiming(store, membership, book, queues, ["", *capabilities], handlers)
        self.settled = 0
        self._backlog = True
        self._queue_reads = QueueReads()
        self._behind: frozenset[int] = frozenset()  # the tenants of the backlog; none of them while it is unknown
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
        self._trials = Trials(
            store, membership, slots=self.slots, capacity=self.capacity, returns=self._returns, wakeups=wakeups
        )
        self._definitions = DefinitionLoader(store, self._loaded, self._returns.give_back_unloaded)
        self.reconciler = Reconciler(
            store, membership, held=self._held, capacity=self.capacity, adopt=self._accept, wakeups=wakeups
        )
        self.loop = Loop("worker", self.tick)
        self.on_demand = OnDemandRuns(
            self._claiming, capacity=self.capacity, claimable=lambda: 0 if self._backlog else self._claimable(),
            accept=self._accept, wake=self.loop.wake, wakeups=wakeups,
        )  # fmt: skip
        handlers.notify = self.loop.wake
        for event in (wakeups.runs_ready, wakeups.runs_queued):
            event.subscribe(self._queue_reads.hint)
            event.subscribe(self.loop.wake)
        wakeups.draining.subscribe(self.drain_for_now)
        wakeups.others_work.subscribe(self._set_others_work)

    @property
    def loops(self) -> list[Loop]:
        return [self.loop, self.on_demand.loop, self.reconciler.loop]

    # --- what the fire of this node asks (scheduler/handoff.py) ---

    @property
    def free_capacity(self) -> int:
        return self.capacity.free(len(self._held))

    def open_capacity(self, queue: int) -> int:
        """Capacity for ticks of this queue that are handed off. 0 while the last claim left runs behind, which they
        would overtake."""
        if self.slots.shares.alone:
            return 0 if self._backlog else self.free_capacity
        tenant = self._book.tenant_of(queue)
        return 0 if self._left_behind(tenant) else max(self.free_capacity, self._open_to(tenant))

    def with_free_slot(self, tenants: Iterable[int]) -> set[int]:
        """Those of these tenants that have a free slot and no runs waiting for it in their queues."""
        if not self.slots.shares.any_free:
            return set()
        return {tenant for tenant in tenants if not self._left_behind(tenant) and self._open_to(tenant) > 0}

    def _left_behind(self, tenant: int) -> bool:
        return self._backlog and (tenant in self._behind or not self._behind)

    def _open_to(self, tenant: int) -> int:
        return self.slots.shares.open_to(tenant) if self.capacity.accepts else 0

    @property
    def max_waiting(self) -> int:
        return self.capacity.max_waiting

    @property
    def busy(self) -> bool:
        """Whether runs are held or on their way here, whose end frees capacity."""
        return bool(self._held) or self.capacity.reserved > 0

    def checks_backlog(self) -> bool:
        """Whether runs may wait in the queues, unknown since the worker was full: then it claims now."""
        if self._backlog:
            self.loop.wake()
        return self._backlog

    def serves(self, queue: int) -> bool:
        return queue in self._claiming.unlimited

    def prefetch(self, jobs: Iterable[tuple[int, int]]) -> None:
        self._definitions.prefetch(jobs)

    def reserve(self, queues: Sequence[int]) -> list[bool]:
        """For each tick about to fire: may it be handed to this worker? Only where it overtakes no run: the worker
        serves its queue, which has no limit, has capacity, and its last claim left nothing behind."""
        taken = self._reserve_first(queues) if self.slots.shares.alone else self._reserve_shares(queues)
        self.capacity.reserved += sum(taken)
        return taken

    def _reserve_first(self, queues: Sequence[int]) -> list[bool]:
        capacity = 0 if self._backlog else self.free_capacity
        unlimited = self._claiming.unlimited
        taken = []
        for queue in queues:
            ours = capacity > 0 and queue in unlimited
            capacity -= ours
            taken.append(ours)
        return taken

    def _reserve_shares(self, queues: Sequence[int]) -> list[bool]:
        unlimited, tenant_of = self._claiming.unlimited, self._book.tenant_of
        tenants = [tenant_of(queue) if queue in unlimited else None for queue in queues]
        closed = {tenant for tenant in set(tenants) if tenant is not None and self._left_behind(tenant)}
        open_tenants = [None if tenant in closed else tenant for tenant in tenants]
        return reserve_fairly(open_tenants, self.free_capacity, self._open_to)

    def release(self, count: int) -> None:
        self.capacity.reserved -= count

    def accept_handed_off(self, claims: Sequence[Claim]) -> None:
        self.capacity.reserved -= len(claims)
        self._accept(claims)

    # --- how runs come in ---

    def _accept(self, claims: Iterable[Claim]) -> None:
        """Runs whose definition is known wait for a slot; the definitions of the others are read first."""
        now = self._clock.now()
        unknown: list[HeldRun] = []
        debug = transitions.debug_enabled()
        tenant_of = self._book.tenant_of
        for claim in claims:
            if debug:
                transitions.log_claim("run claimed", claim, self._membership.node)
            held = HeldRun(claim, now, tenant_of(claim.queue))
            self._held.add(held)
            if self._definitions.knows(held):
                self._line_up(held)
            else:
                unknown.append(held)
        self._definitions.load(unknown)
        self.slots.fill()
        if self.capacity.draining:
            self.loop.wake()  # runs that were on their way when the draining began are given back

    def _loaded(self, some: Iterable[HeldRun]) -> None:
        for held in some:
            if self._held.find(held.claim) is held:
                self._line_up(held)
        self.slots.fill()

    def _line_up(self, held: HeldRun) -> None:
        if not self._attempts.put_off(held):
            (self.slots if held.claim.crashes < SUSPECT_FROM else self._trials).add(held)

    # --- the loop: claim what is ready ---

    async def tick(self) -> float:
        capacity = self.capacity
        if capacity.closed or not self._membership.trusted:
            return IDLE_PAUSE
        if capacity.draining:
            await self._give_back_waiting()
            return POLL_EVERY
        await failpoints.hit("W1")
        await self._claiming.learn()
        self.slots.share_among(self._claiming.tenants)
        if await self._promoter.promote():
            self._wakeups.runs_given_back()
        await self.on_demand.prepare()
        limit = self._claimable()
        shares = self.slots.shares
        if not self._claiming.serving or (not limit and not (capacity.accepts and shares.any_free)):
            self._backlog, self._behind = True, frozenset()
            return self._retries.pause(POLL_EVERY)
        free = capacity.concurrency - self.slots.running - self.slots.waiting
        capacity.reserved += limit
        began = monotonic()
        queues = self._queue_reads.begins(needed=self._backlog or not self._claiming.direct)
        try:
            claimed = await self._claiming.claim(
                limit, free, self.slots.waits, None if shares.alone else self._open_to, queues=queues
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
        self._behind = claimed.behind
        self._backlog = bool(self._behind)
        self._accept(claimed.claims)
        if self._backlog and (self.free_capacity or self._slot_waits()):
            return 0.0
        longest = self._queue_reads.wait(self.on_demand.backlog.wait(POLL_EVERY), read=queues)
        return self._retries.pause(longest if claimed.wait is None else min(claimed.wait, longest))

    def _slot_waits(self) -> bool:
        """Whether a slot is free for a tenant whose runs the last claim left behind, or may have."""
        return self.capacity.accepts and self.slots.shares.any_open(self._behind or self._claiming.tenants)

    def _claimable(self) -> int:
        """How many runs a claim may bring. Where the last claim left nothing behind, it keeps half the capacity free:
        ticks that are fired while it waits for its answer would otherwise have to wait as well."""
        capacity = min(self.free_capacity, LARGEST_CLAIM)
        return capacity if self._backlog else (capacity + 1) // 2

    async def _give_back_waiting(self) -> None:
        if self.slots.waiting or len(self._trials):
            self._trials.clear()
            await self._returns.give_back_once(self.slots.take_waiting())
            self._wakeups.runs_given_back()

    # --- how runs leave ---

    def _settled(self, claims: Sequence[Claim], retry_seconds: Sequence[float]) -> None:
        """Their outcomes are written; some of the runs are retried after these seconds."""
        limited = self._claiming.limited
        for claim in claims:
            held = self._held.remove(claim)
            if held is not None and held.over:
                self.capacity.written()
            if held is not None and held.followed:
                self._promoter.freed(claim.job)
                self.loop.wake()
            if claim.queue in limited:
                self.loop.wake()
        self.on_demand.settled(claims, retried=bool(retry_seconds))
        self.settled += len(claims)
        if self._backlog and (self.free_capacity >= self.capacity.concurrency // 2 + 1 or self._slot_waits()):
            self.loop.wake()
        self._retries.add(retry_seconds)

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

    async def drain(self, seconds: float) -> None:
        """Stop claiming, give back what has not started, let the rest finish, then stop what has not."""
        self.capacity.closed = True
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
