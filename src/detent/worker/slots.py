"""Where held runs wait for their turn and are executed: up to `concurrency` at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from detent.domain.run import Claim
from detent.runtime.wakeups import Wakeups
from detent.targets.exceptions import describe
from detent.telemetry import transitions
from detent.telemetry.log import logger
from detent.worker.attempt import Attempts
from detent.worker.capacity import WorkerCapacity
from detent.worker.held import HeldRun, HeldRuns, absorb_cancellation
from detent.worker.queues.book import QueueBook
from detent.worker.queues.rounds import FairLine

log = logger("worker")

STARTED_AT_ONCE = 8
# After this many runs that ended without waiting, a slot lets other tasks have a turn.
TURNS = 50


class Slots:
    """A slot is a task that executes one run after another: a task for each run costs more than everything else that is
    done for a run that ends at once."""

    def __init__(
        self,
        node: int,
        *,
        held: HeldRuns,
        capacity: WorkerCapacity,
        attempts: Attempts,
        book: QueueBook,
        wakeups: Wakeups,
    ) -> None:
        self._node = node
        self._held = held
        self._capacity = capacity
        self._attempts = attempts
        self._book = book
        self._wakeups = wakeups
        self._waiting: FairLine[HeldRun] = FairLine(book.weight_of)
        self.running = 0
        self._slots = 0
        self._starting = 0
        self._filling = False

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def waits(self, tenant: int) -> bool:
        """Whether a run of this tenant waits here."""
        return self._waiting.waits(tenant)

    @property
    def quiet(self) -> bool:
        """Nothing runs here, and nothing that was interrupted may still run."""
        return self.running == 0 and not self._attempts.left_behind

    @property
    def settled_down(self) -> bool:
        """Nothing runs here; or something that was interrupted always may, and waiting is of no use."""
        return self.running == 0 or self._attempts.left_behind

    def add(self, held: HeldRun) -> None:
        """`fill` starts it."""
        self._waiting.append(self._book.tenant_of(held.claim.queue), held)

    def take_waiting(self, keep: Callable[[Claim], bool] = lambda _claim: False) -> list[Claim]:
        """Take out all runs that have not begun, also those whose definition is still being read, except those to
        `keep`."""
        taken = [held.claim for held in self._held if not held.begun and not keep(held.claim)]
        self._waiting.clear()
        for claim in taken:
            self._held.remove(claim)
        return taken

    def fill(self) -> None:
        """Begin a few more slots if runs wait; each of them begins more."""
        self._filling = False
        capacity = self._capacity
        while (
            self._starting < STARTED_AT_ONCE
            and self._slots < capacity.concurrency
            and self._waiting
            and capacity.starts
        ):
            self._starting += 1
            self._slots += 1
            asyncio.create_task(self._slot()).add_done_callback(self._slot_ended)

    def _fill_soon(self) -> None:
        """When this slot lets others have a turn: if its runs end at once, it needs no help until then."""
        self._filling = True
        asyncio.get_running_loop().call_soon(self.fill)

    async def _slot(self) -> None:
        self._starting -= 1
        task = asyncio.current_task()
        assert task is not None
        turns = 0
        while self._waiting and self._capacity.starts:
            held = self._waiting.popleft()
            held.task = task
            self.running += 1
            if not self._filling:
                self._fill_soon()
            try:
                await self._attempts.run(held)
            except Exception as error:
                self._log_failure(held, error)
            finally:
                self.running -= 1
                self._attempts.ended(held)
            if task.cancelling():
                await absorb_cancellation(task)
            turns += 1
            if turns % TURNS == 0:
                self._wakeups.capacity_freed()
                await asyncio.sleep(0)

    def _slot_ended(self, task: asyncio.Task[None]) -> None:
        self._slots -= 1
        self._wakeups.capacity_freed()
        if not task.cancelled():
            task.exception()
        self.fill()

    def begin_alone(self, held: HeldRun) -> None:
        """In a task of its own, since slots start nothing while a suspect is tried (suspects.py)."""
        self.running += 1
        held.task = asyncio.create_task(self._run_alone(held))

    async def _run_alone(self, held: HeldRun) -> None:
        try:
            await self._attempts.run(held)
        except Exception as error:
            self._log_failure(held, error)
        finally:
            self.running -= 1
            self._attempts.ended(held)

    def _log_failure(self, held: HeldRun, error: Exception) -> None:
        facts = transitions.facts_of(held.claim, self._node)
        log.error("a run was not executed", **facts, error=describe(error))
