"""What the database says this node holds, compared with what the worker knows.

A run that the worker does not know (a reply was lost) is adopted, but not one whose reply is merely on its way: only
when two reads of the database, further apart than any statement can take, both show it under the same token and the
worker knew it at neither. A run that was cancelled is stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from detent.cluster.membership import Membership
from detent.domain.run import INTERRUPTED, Claim, HeldRun
from detent.runtime.clock import monotonic
from detent.runtime.service import Loop
from detent.runtime.wakeups import Wakeups
from detent.store import Store
from detent.telemetry import transitions
from detent.worker.capacity import WorkerCapacity
from detent.worker.held import HeldRuns

UNTRUSTED_PAUSE = 0.5


class Reconciler:
    def __init__(
        self,
        store: Store,
        membership: Membership,
        *,
        held: HeldRuns,
        capacity: WorkerCapacity,
        adopt: Callable[[Sequence[Claim]], None],
        wakeups: Wakeups,
    ) -> None:
        self._store = store
        self._membership = membership
        self._held = held
        self._capacity = capacity
        self._adopt = adopt
        self._answer_seconds = store.database.answer_seconds
        self._every = self._answer_seconds + 1.0
        self._unknown_since: dict[Claim, float] = {}
        self.loop = Loop("reconcile", self.tick)
        wakeups.runs_cancelled.subscribe(self.loop.wake)
        wakeups.reply_lost.subscribe(self.loop.wake)

    async def tick(self) -> float:
        if not self._membership.trusted or self._capacity.closed:
            return UNTRUSTED_PAUSE  # short: a reply may have been lost just now, and a wake-up is not repeated
        unknown = []
        for claim in await self._store.live_runs.reconcile(self._membership.node):
            held = self._held.find(claim)
            if held is None:
                unknown.append(claim)
            elif claim.cancel and not held.stop:
                self.stop(held)
        adopted = self._seen_long_enough(unknown)
        if adopted:
            node = self._membership.node
            transitions.log_some("warning", "run adopted", [transitions.facts_of(claim, node) for claim in adopted])
            self._adopt(adopted)
        # A lost reply wakes this loop: while nothing is held, there is little to find.
        return self._every if self._held or self._unknown_since else 3 * self._every

    def stop(self, held: HeldRun) -> None:
        """A run that has not begun sees it when it does, one that runs is interrupted, one that is over stays so."""
        held.stop = True
        held.claim = held.claim._replace(cancel=True)
        if held.begun and held.task is not None and not held.over:
            held.task.cancel(INTERRUPTED)

    def _seen_long_enough(self, unknown: Sequence[Claim]) -> list[Claim]:
        now = monotonic()
        self._unknown_since = {claim: self._unknown_since.get(claim, now) for claim in unknown}
        adopted = [claim for claim, since in self._unknown_since.items() if now - since >= self._answer_seconds]
        for claim in adopted:
            del self._unknown_since[claim]
        return adopted
