"""Where held runs wait for their turn and are executed: up to `concurrency` at once.

Where several tenants have jobs, each takes only its share of the slots (domain/shares.py). A run that has to wait for
that is considered again whenever any run begins or ends here, and at every pass of the worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from operator import attrgetter

from detent.domain.run import Claim, HeldRun
from detent.domain.shares import TenantShares
from detent.runtime.wakeups import Wakeups
from detent.targets.exceptions import describe
from detent.telemetry import transitions
from detent.telemetry.log import logger
from detent.worker.attempt import Attempts
from detent.worker.capacity import WorkerCapacity
from detent.worker.held import HeldRuns, absorb_cancellation
from detent.worker.queues.rounds import FairLine, WeightOf

log = logger("worker")

# How many slots begin in one pass of the event loop. From its time to its call, a tick needs about ten passes (timer,
# fire, reply, slot, request): they have to be short, however many calls of other runs are answered at once.
STARTED_AT_ONCE = 8
# After this many runs that ended without waiting, a slot lets other tasks have a turn.
TURNS = 100
_tenant_of: Callable[[HeldRun], int] = attrgetter("tenant")


class Slots:
    """A slot is a task. It executes one run after another as long as they end at once: a task for each of those costs
    more than everything else that is done for it. After a run that waited for something, the slot ends, and `fill`
    begins another one in its turn: slots that went on would all start a run in the pass in which they got an answer."""

    def __init__(
        self,
        node: int,
        *,
        held: HeldRuns,
        capacity: WorkerCapacity,
        attempts: Attempts,
        weight_of: WeightOf,
        headroom: float,
        wakeups: Wakeups,
    ) -> None:
        self._node = node
        self._held = held
        self._capacity = capacity
        self._attempts = attempts
        self._wakeups = wakeups
        self._waiting: FairLine[HeldRun] = FairLine(weight_of)
        self._weights: Mapping[int, int] = {}
        self.shares = TenantShares(capacity.concurrency, headroom)
        self._executing: set[HeldRun] = set()
        self._slots = 0
        self._starting = 0
        self._filling = False
        self._passes = 0  # of the event loop, with slots that began a run
        self._began: list[list[HeldRun]] = []  # the last run of each slot that began one in this pass

    @property
    def running(self) -> int:
        return len(self._executing)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def waits(self, tenant: int) -> bool:
        """Whether a run of this tenant waits here."""
        return self._waiting.waits(tenant)

    @property
    def quiet(self) -> bool:
        """Whether nothing runs here, not even an interrupted call that has not ended."""
        return self.running == 0 and not self._attempts.left_behind

    @property
    def settled_down(self) -> bool:
        """Whether waiting for `quiet` can stop: nothing runs here, or an interrupted call may never end."""
        return self.running == 0 or self._attempts.left_behind

    @property
    def held_back(self) -> int:
        """How many tenants wait although a slot is free: they hold their share."""
        return len(self.shares.held_back(self._waiting.tenants))

    def share_among(self, weights: Mapping[int, int]) -> None:
        """These tenants have jobs here. Runs that waited for their share may start now; also where nothing has changed,
        in case a wake-up was lost."""
        if weights is not self._weights:
            self._weights = weights
            self.shares.among(weights, *self._tenants_here())
        self.fill()

    def _tenants_here(self) -> tuple[list[int], list[int]]:
        """The tenants of the runs that run, and of those that wait."""
        return [held.tenant for held in self._executing], [held.tenant for held in self._waiting]

    def add(self, some: Iterable[HeldRun]) -> None:
        """`fill` starts them."""
        for tenant, of_tenant in groupby(some, _tenant_of):
            runs = list(of_tenant)
            self._waiting.extend(tenant, runs)
            if not self.shares.alone:
                self.shares.came(tenant, len(runs))

    def take_waiting(self, keep: Callable[[Claim], bool] = lambda _claim: False) -> list[Claim]:
        """Take out all runs that have not begun, also those whose definition is still being read, except those to
        `keep`."""
        taken = [held.claim for held in self._held if not held.begun and not keep(held.claim)]
        self._waiting.clear()
        for claim in taken:
            self._held.remove(claim)
        if not self.shares.alone:
            self.shares.recount(*self._tenants_here())
        return taken

    def fill(self) -> None:
        """Begin a few more slots if runs wait; each of them begins more."""
        capacity = self._capacity
        while (
            self._starting < STARTED_AT_ONCE
            and self._slots < capacity.concurrency
            and self._waiting
            and capacity.starts
            and (self.shares.alone or self._may_start())
        ):
            self._starting += 1
            self._slots += 1
            asyncio.create_task(self._slot()).add_done_callback(self._slot_ended)

    def _fill_soon(self) -> None:
        """Start further slots only when this one yields to the event loop: if its runs end at once, it needs none
        before."""
        self._filling = True
        asyncio.get_running_loop().call_soon(self._next_pass)

    def _next_pass(self) -> None:
        self._filling = False
        self._passes += 1
        began, self._began = self._began, []
        for (held,) in began:
            self._attempts.waits(held)
        self.fill()

    async def _slot(self) -> None:
        self._starting -= 1
        task = asyncio.current_task()
        assert task is not None
        attempts, breakers, capacity = self._attempts, self._attempts.breakers, self._capacity
        waiting, shares = self._waiting, self.shares
        latest: list[HeldRun] = []
        passes, turns = -1, 0
        while waiting and capacity.starts:
            held = waiting.popleft() if shares.alone else self._next_by_share()
            if held is None:
                break
            if breakers.may_put_off and attempts.put_off(held):  # its host stopped answering while it waited here
                self._left_without_slot(held)
                turns += 1
                if turns % TURNS == 0:
                    await self._let_others_on()
                continue
            held.task = task
            self._executing.add(held)
            latest[:] = (held,)
            if passes != self._passes:
                passes = self._passes
                self._began.append(latest)
                if not self._filling:
                    self._fill_soon()
            try:
                await attempts.run(held)
            except Exception as error:
                self._log_failure(held, error)
            finally:
                self._leave(held)
            if task.cancelling():
                await absorb_cancellation(task)
            if self._passes != passes:
                break
            turns += 1
            if turns % TURNS == 0:
                await self._let_others_on()

    async def _let_others_on(self) -> None:
        self._wakeups.capacity_freed()
        await asyncio.sleep(0)

    def _left_without_slot(self, held: HeldRun) -> None:
        if not self.shares.alone:
            self.shares.ended(held.tenant)

    def _slot_ended(self, task: asyncio.Task[None]) -> None:
        self._slots -= 1
        self._wakeups.capacity_freed()
        if not task.cancelled():
            task.exception()
        self.fill()

    def _may_start(self) -> bool:
        """Whether any run that waits may take a slot."""
        shares = self.shares
        return shares.beyond_headroom or any(map(shares.below_fair, self._waiting.tenants))

    def _next_by_share(self) -> HeldRun | None:
        """Tenants below their fair share come first. None: all that wait here hold their share."""
        shares = self.shares
        held = self._waiting.pop_where(shares.below_fair)
        if held is None and shares.beyond_headroom:
            held = self._waiting.popleft()
        if held is not None:
            shares.began(held.tenant)
        return held

    def _leave(self, held: HeldRun) -> None:
        self._executing.discard(held)
        if not self.shares.alone:
            self.shares.ended(held.tenant)
        held.task = None
        if not held.over:
            self._attempts.ended(held)

    def begin_alone(self, held: HeldRun) -> None:
        """Start a run in a separate task, because slots start nothing while a suspect is tried (suspects.py)."""
        self._executing.add(held)
        held.waited = True  # from the beginning: its time limit is watched as soon as it is called
        held.task = asyncio.create_task(self._run_alone(held))
        if not self.shares.alone:
            self.shares.came(held.tenant)
            self.shares.began(held.tenant)

    async def _run_alone(self, held: HeldRun) -> None:
        try:
            await self._attempts.run(held)
        except Exception as error:
            self._log_failure(held, error)
        finally:
            self._leave(held)

    def _log_failure(self, held: HeldRun, error: Exception) -> None:
        facts = transitions.facts_of(held.claim, self._node)
        log.error("a run was not executed", **facts, error=describe(error))
