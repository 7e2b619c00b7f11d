"""The definitions of the runs that a worker holds: from memory, read ahead of time, or read once the runs are here."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any

from detent.errors import DetentError
from detent.runtime.bisection import halve_until_alone
from detent.store import Store
from detent.telemetry.log import logger
from detent.worker.definitions import Definitions, Key
from detent.worker.held import HeldRun

log = logger("worker")

AHEAD_AT_ONCE = 1_000
MOST_AHEAD = 500_000


class UnreadableError(Exception):
    """The definition of at least one run of a batch cannot be read."""


class DefinitionLoader:
    def __init__(
        self,
        store: Store,
        loaded: Callable[[Sequence[HeldRun]], None],
        failed: Callable[[Sequence[HeldRun]], Awaitable[None]],
    ) -> None:
        """`loaded`: these have their definition, or none exists. `failed`: it could not be read."""
        self._definitions = Definitions(store)
        self._loaded = loaded
        self._failed = failed
        self._tasks: set[asyncio.Task[None]] = set()
        self._ahead: asyncio.Task[None] | None = None
        self._wanted_soon: deque[Key] = deque(maxlen=MOST_AHEAD)

    def knows(self, held: HeldRun) -> bool:
        held.definition = self._definitions.get(held.claim)
        return held.definition is not None

    def load(self, unknown: Sequence[HeldRun]) -> None:
        if unknown:
            self._begin(self._load(unknown))

    def prefetch(self, jobs: Iterable[Key]) -> None:
        """Runs of these jobs are due within seconds."""
        self._wanted_soon.extend(self._definitions.unknown(jobs))
        if self._wanted_soon and (self._ahead is None or self._ahead.done()):
            self._ahead = self._begin(self._read_ahead())

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _load(self, unknown: Sequence[HeldRun]) -> None:
        """A definition that cannot be read would fail again, without end: halving finds its run, which gets none."""
        await halve_until_alone(unknown, self._read, self._without_definition, (UnreadableError,))

    async def _read(self, unknown: Sequence[HeldRun]) -> None:
        try:
            found = await self._definitions.read((held.claim.job, held.claim.revision) for held in unknown)
        except DetentError as error:
            log.warning("runs could not be started", runs=len(unknown), error=str(error))
            await self._failed(unknown)
            return
        except Exception as error:
            log.exception("definitions cannot be read", runs=len(unknown))
            raise UnreadableError from error
        for held in unknown:
            held.definition = found.get((held.claim.job, held.claim.revision))
        self._loaded(unknown)

    async def _without_definition(self, held: HeldRun, _error: UnreadableError) -> None:
        self._loaded([held])

    async def _read_ahead(self) -> None:
        try:
            while self._wanted_soon:
                some = [self._wanted_soon.popleft() for _ in range(min(len(self._wanted_soon), AHEAD_AT_ONCE))]
                await self._definitions.read(self._definitions.unknown(some))
        except DetentError as error:
            self._wanted_soon.clear()
            log.info("definitions not read ahead", error=str(error))
