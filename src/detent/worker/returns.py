"""Runs that this worker gives back to their queues because it did not start them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

from detent.cluster.membership import Membership
from detent.domain.run import Claim
from detent.errors import DetentError
from detent.runtime.service import Batcher, backoff
from detent.runtime.wakeups import Wakeups
from detent.store import Store
from detent.telemetry import transitions
from detent.telemetry.log import logger
from detent.telemetry.metrics import Metrics
from detent.worker.held import HeldRun, HeldRuns
from detent.worker.retries import Retries

log = logger("worker")


class Returns:
    def __init__(
        self,
        store: Store,
        membership: Membership,
        held: HeldRuns,
        retries: Retries,
        wakeups: Wakeups,
        metrics: Metrics,
    ) -> None:
        self._store = store
        self._membership = membership
        self._held = held
        self._retries = retries
        self._wakeups = wakeups
        self._metrics = metrics
        # Give back a run whose handler could not be called here; runs that come together go back together.
        self.give_back_uncalled = Batcher(self._give_back_uncalled)
        # The same, and each of them is claimed again after these seconds at the earliest.
        self.put_off = Batcher(self._put_off)

    async def give_back(self, claims: Sequence[Claim]) -> None:
        await self._until_written(len(claims), lambda: self._store.live_runs.give_back(self._membership.node, claims))

    async def _until_written(self, runs: int, write: Callable[[], Awaitable[object]]) -> None:
        """Retried while this node is trusted. Otherwise the runs wait until reconciling finds them, or until the node
        is evicted."""
        failures = 0
        while self._membership.trusted:
            try:
                await write()
                return
            except DetentError as error:
                failures += 1
                log.info("runs not given back yet", runs=runs, error=str(error))
                await asyncio.sleep(backoff(failures))

    async def give_back_once(self, claims: Sequence[Claim]) -> None:
        if not claims:
            return
        try:
            await self._store.live_runs.give_back(self._membership.node, claims)
        except DetentError as error:
            log.warning("runs not given back: reconciling finds them again, or a rescue", error=str(error))
        if transitions.debug_enabled():
            transitions.log_claims("run given back", claims, self._membership.node)

    async def give_back_unloaded(self, some: Sequence[HeldRun]) -> None:
        """Their definitions could not be read. Runs that could not be given back are found by reconciling."""
        await self.give_back([held.claim for held in some])
        for held in some:
            self._held.remove(held.claim)

    async def _give_back_uncalled(self, claims: Sequence[Claim]) -> Sequence[None]:
        """Other nodes may have capacity for their handlers, or this node later (claiming.py)."""
        self._metrics.not_begun += len(claims)
        await self.give_back(claims)
        self._wakeups.runs_given_back()
        return [None] * len(claims)

    async def _put_off(self, waits: Sequence[tuple[Claim, float]]) -> Sequence[None]:
        """If a reply is lost, the statement is sent again, and finds nothing of what the first one has returned."""
        batch = [(claim, timedelta(seconds=seconds)) for claim, seconds in waits]
        await self._until_written(len(batch), lambda: self._store.live_runs.put_off(self._membership.node, batch))
        self._metrics.put_off += len(batch)
        claims = [claim for claim, _ in waits]
        if transitions.debug_enabled():
            transitions.log_claims("run put off", claims, self._membership.node)
        self._wakeups.runs_put_off(claims)
        self._retries.add([seconds for _, seconds in waits])
        return [None] * len(batch)
