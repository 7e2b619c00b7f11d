"""Runs that this worker gives back to their queues because it did not start them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial

from detent.cluster.membership import Membership
from detent.domain.run import Claim, HeldRun
from detent.errors import DetentError
from detent.runtime.bisection import halve_until_alone
from detent.runtime.service import Batcher, backoff, start_shared
from detent.runtime.wakeups import Wakeups
from detent.store import Store
from detent.store.db import Rejected
from detent.telemetry import transitions
from detent.telemetry.log import logger
from detent.telemetry.metrics import Metrics
from detent.worker.capacity import WorkerCapacity
from detent.worker.held import HeldRuns
from detent.worker.retries import Retries

log = logger("worker")

PUT_OFF_BATCH = 1000


class Returns:
    def __init__(
        self,
        store: Store,
        membership: Membership,
        held: HeldRuns,
        capacity: WorkerCapacity,
        retries: Retries,
        wakeups: Wakeups,
        metrics: Metrics,
    ) -> None:
        self._store = store
        self._membership = membership
        self._held = held
        self._capacity = capacity
        self._retries = retries
        self._wakeups = wakeups
        self._metrics = metrics
        # Give back a run whose handler could not be called here; runs that come together go back together.
        self.give_back_uncalled = Batcher(self._give_back_uncalled)
        self._waits: list[tuple[HeldRun, float]] = []
        self._putting_off: asyncio.Task[None] | None = None

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

    # --- runs that are to wait ---

    def put_off(self, held: HeldRun, seconds: float) -> None:
        """Give back a run that is claimed again after these seconds at the earliest. It leaves its slot at once, as one
        that has ended does: thousands of runs may wait for one host, and others for a slot. It is held until the
        database has it."""
        self._waits.append((held, seconds))
        if self._putting_off is None:
            self._putting_off = start_shared(self._put_off_all())

    async def finish(self, seconds: float) -> None:
        """Write what is to be put off. What is not written in time is rescued with the other runs of the node."""
        if self._putting_off is not None:
            await asyncio.wait([self._putting_off], timeout=seconds)
            self.abort()

    def abort(self) -> None:
        self._waits.clear()
        if self._putting_off is not None:
            self._putting_off.cancel()

    async def _put_off_all(self) -> None:
        try:
            while self._waits:
                batch, self._waits = self._waits[:PUT_OFF_BATCH], self._waits[PUT_OFF_BATCH:]
                await self._put_off(batch)
        finally:
            self._putting_off = None

    async def _put_off(self, batch: Sequence[tuple[HeldRun, float]]) -> None:
        """If a reply is lost, the statement is sent again, and finds nothing of what the first one has returned. A row
        that the database refuses must not keep the others waiting: reconciling finds it again."""
        runs = [held for held, _ in batch]
        waits = [(held.claim, timedelta(seconds=seconds)) for held, seconds in batch]
        put_off = partial(self._store.live_runs.put_off, self._membership.node)
        try:
            await self._until_written(len(batch), lambda: halve_until_alone(waits, put_off, self._refused, (Rejected,)))
        except Exception as error:
            log.exception("runs not put off: reconciling finds them again", runs=len(batch), error=str(error))
        finally:
            self._capacity.written(sum([held.over for held in self._held.remove_all(runs)]))
        self._metrics.put_off += len(batch)
        if transitions.debug_enabled():
            transitions.log_claims("run put off", [claim for claim, _ in waits], self._membership.node)
        self._wakeups.runs_put_off(runs)
        self._retries.add([seconds for _, seconds in batch])
        self._wakeups.capacity_freed()

    async def _refused(self, wait: tuple[Claim, timedelta], error: Rejected) -> set[tuple[int, int]]:
        log.error("run not put off", **transitions.facts_of(wait[0], self._membership.node), error=str(error))
        return set()
