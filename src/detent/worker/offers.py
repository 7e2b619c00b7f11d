"""How a worker takes the runs that a transport offers it.

While the worker keeps up, it takes as many offers as it has capacity, claims exactly those runs in one statement, and
then finishes the offers. While runs may wait that it has not claimed (`Intake.backlog`), it takes none: its claims go
through PostgreSQL by priority, until one leaves capacity. Where tenants share this worker, or the queue of an offer has
a limit, the offer only says that runs wait, and the usual claim follows.

Offers that are not taken, lost or never sent cost time and nothing else: the worker polls PostgreSQL anyway, and more
often while the broker is away.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from detent.cluster.membership import Membership
from detent.domain.offer import QueueOffer, RunOffer
from detent.domain.run import Claim
from detent.runtime.clock import DatabaseClock
from detent.runtime.service import Loop
from detent.runtime.wakeups import Wakeups
from detent.store import Store
from detent.store.db import OutcomeUnknown, Rejected
from detent.telemetry.log import logger
from detent.telemetry.metrics import Metrics
from detent.transports.link import TransportLink
from detent.transports.transport import HOLD_SECONDS, TakenOffer, TransportAwayError
from detent.worker.capacity import WorkerCapacity
from detent.worker.claiming import Claiming
from detent.worker.intake import Intake

log = logger("worker")

# How long one call waits for offers: what is served may change meanwhile.
WAIT_SECONDS = 2.0
# Woken by freed capacity and by the end of a backlog; this is for when no wake-up came.
CHECK_EVERY = 1.0
IDLE_PAUSE = 0.5
POLL_WHILE_AWAY = 1.0
# Between two usual claims that offers ask for.
USUAL_EVERY = 0.02

_Answer = TypeVar("_Answer")


class OfferTaker:
    def __init__(
        self,
        store: Store,
        membership: Membership,
        clock: DatabaseClock,
        link: TransportLink,
        *,
        intake: Intake,
        capacity: WorkerCapacity,
        claiming: Claiming,
        accept: Callable[[Sequence[Claim]], None],
        claim_as_usual: Callable[[bool], None],
        wakeups: Wakeups,
        metrics: Metrics,
    ) -> None:
        """`claim_as_usual`: begin a pass of the worker, which claims from the queues and, if True, reads again where
        on-demand runs wait."""
        self._store = store
        self._membership = membership
        self._clock = clock
        self._link = link
        self._transport = link.transport
        self._intake = intake
        self._capacity = capacity
        self._claiming = claiming
        self._accept = accept
        self._claim_as_usual = claim_as_usual
        self._wakeups = wakeups
        self._metrics = metrics
        self._waiting: asyncio.Future[Any] | None = None
        self._was_up = True
        self.loop = Loop("offers of runs", self.tick)
        wakeups.capacity_freed.subscribe(self.loop.wake)

    def poll_every(self, usual: float) -> float:
        """How often the worker claims without being asked."""
        return usual if self._link.steady else min(usual, POLL_WHILE_AWAY)

    def interrupt(self) -> None:
        """Stop waiting for the broker: the worker drains, or ends. An offer that was just taken returns to others."""
        if self._waiting is not None:
            self._waiting.cancel()

    async def tick(self) -> float:
        if not self._membership.trusted or not self._capacity.starts:
            return IDLE_PAUSE
        if not await self._reached():
            return IDLE_PAUSE
        limit = self._intake.claimable()
        if self._intake.backlog or not self._claiming.serving:
            return CHECK_EVERY
        if not limit:
            self._intake.fell_behind()
            return CHECK_EVERY
        try:
            taken = await self._take(limit)
            if taken and self._capacity.starts:
                return await self._use(taken)
            if taken:
                await self._transport.give_back(taken)
        except TransportAwayError as error:
            self._link.away(error)
        return 0.0

    async def _reached(self) -> bool:
        up = self._link.steady or await self._interruptible(asyncio.ensure_future(self._link.ensure()), otherwise=False)
        if self._was_up and not up:
            self._claim_as_usual(True)  # offers may be lost, and the pause before the next poll was a long one
        self._was_up = up
        return up

    async def _take(self, limit: int) -> list[TakenOffer]:
        served = list(self._claiming.serving)
        taking = asyncio.ensure_future(self._transport.take(served, limit, self._clock.now(), WAIT_SECONDS))
        return await self._interruptible(taking, otherwise=[])

    async def _interruptible(self, waiting: asyncio.Future[_Answer], *, otherwise: _Answer) -> _Answer:
        self._waiting = waiting
        try:
            return await waiting
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return otherwise  # by `interrupt`
        finally:
            self._waiting = None

    async def _use(self, taken: Sequence[TakenOffer]) -> float:
        """Claim what was offered. The seconds to wait before more is taken."""
        self._metrics.offers_taken += len(taken)
        runs, hints, others = self._divide(taken)
        try:
            await self._claim(runs)
        except Exception:
            with contextlib.suppress(TransportAwayError):
                await self._transport.give_back(taken)
            raise
        await self._transport.finish([*runs, *hints])
        if others:
            await self._transport.give_back(others)
        if hints:
            self._claim_as_usual(any(isinstance(one.offer, QueueOffer) for one in hints))
            return USUAL_EVERY
        return 0.0

    def _divide(self, taken: Sequence[TakenOffer]) -> tuple[list[TakenOffer], list[TakenOffer], list[TakenOffer]]:
        """Offers to claim by key, offers that only say that runs wait, and offers for other workers. There are some of
        these if, while this worker waited, its node handed ticks off to it, its handlers became busy, or it stopped
        serving a queue."""
        serving, by_key = self._claiming.serving, self._claiming.by_key
        served = [one for one in taken if one.offer.queue in serving]
        hints = [one for one in served if isinstance(one.offer, QueueOffer) or one.offer.queue not in by_key]
        runs = [one for one in served if isinstance(one.offer, RunOffer) and one.offer.queue in by_key]
        unserved = [one for one in taken if one.offer.queue not in serving]
        room = self._intake.free
        return runs[:room], hints, [*runs[room:], *unserved]

    async def _claim(self, runs: Sequence[TakenOffer]) -> None:
        if not runs:
            return
        self._capacity.reserved += len(runs)
        try:
            claims = await self._while_held(runs)
        except Rejected as error:
            self._drop_rejected(len(runs), error)
            return
        except OutcomeUnknown:
            self._wakeups.reply_lost()
            raise
        finally:
            self._capacity.reserved -= len(runs)
        self._metrics.offers_stale += len(runs) - len(claims)
        self._accept(claims)

    def _drop_rejected(self, count: int, error: Rejected) -> None:
        """One of the offers names values that no run can have. If all were given back, they would return for ever. The
        usual claim finds the runs that wait."""
        log.warning(
            "offers are dropped: the broker holds what this cluster has not sent", offers=count, error=str(error)
        )
        self._metrics.offers_stale += count
        self._claim_as_usual(False)

    async def _while_held(self, runs: Sequence[TakenOffer]) -> list[Claim]:
        """Claim; while a slow database keeps the claim waiting, no other worker gets the offers."""
        offers = [one.offer for one in runs if isinstance(one.offer, RunOffer)]
        claiming = asyncio.ensure_future(
            self._store.offers.claim(self._membership.node, self._membership.incarnation, offers)
        )
        try:
            while not (await asyncio.wait((claiming,), timeout=HOLD_SECONDS / 3))[0]:
                with contextlib.suppress(TransportAwayError):
                    await self._transport.extend(runs)
            return claiming.result()
        finally:
            claiming.cancel()
