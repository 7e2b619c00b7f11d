"""How a worker comes to know the definitions of the runs it holds: from memory, ahead, or when they have come."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any

from detent.errors import DetentError
from detent.store import Store
from detent.telemetry.log import logger
from detent.worker.definitions import Definitions, Key
from detent.worker.held import Held

log = logger("worker")

AHEAD_AT_ONCE = 1_000
MOST_AHEAD = 500_000


class Learner:
    def __init__(
        self,
        store: Store,
        learned: Callable[[Sequence[Held]], None],
        failed: Callable[[Sequence[Held]], Awaitable[None]],
    ) -> None:
        """`learned`: what there is to know of these is known. `failed`: it could not be read."""
        self._definitions = Definitions(store)
        self._learned = learned
        self._failed = failed
        self._tasks: set[asyncio.Task[None]] = set()
        self._ahead: asyncio.Task[None] | None = None
        self._foreseen: deque[Key] = deque(maxlen=MOST_AHEAD)

    def knows(self, held: Held) -> bool:
        held.definition = self._definitions.get(held.claim)
        return held.definition is not None

    def learn(self, unknown: Sequence[Held]) -> None:
        if unknown:
            self._begin(self._learn(unknown))

    def foresee(self, jobs: Iterable[Key]) -> None:
        """Runs of these jobs may come within seconds."""
        self._foreseen.extend(self._definitions.unknown(jobs))
        if self._foreseen and (self._ahead is None or self._ahead.done()):
            self._ahead = self._begin(self._learn_ahead())

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _learn(self, unknown: Sequence[Held]) -> None:
        try:
            found = await self._definitions.read((held.claim.job, held.claim.revision) for held in unknown)
        except DetentError as error:
            log.warning("runs could not be started", runs=len(unknown), error=str(error))
            await self._failed(unknown)
            return
        except Exception:
            # It would fail again, without end. In halves, the one that it lies with is found, and has no definition.
            log.exception("definitions cannot be read", runs=len(unknown))
            if len(unknown) > 1:
                half = len(unknown) // 2
                await self._learn(unknown[:half])
                await self._learn(unknown[half:])
                return
            found = {}
        for held in unknown:
            held.definition = found.get((held.claim.job, held.claim.revision))
        self._learned(unknown)

    async def _learn_ahead(self) -> None:
        try:
            while self._foreseen:
                some = [self._foreseen.popleft() for _ in range(min(len(self._foreseen), AHEAD_AT_ONCE))]
                await self._definitions.read(self._definitions.unknown(some))
        except DetentError as error:
            self._foreseen.clear()
            log.info("definitions not read ahead", error=str(error))
