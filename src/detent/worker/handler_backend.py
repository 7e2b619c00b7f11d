"""What a handler's Run asks of the worker that holds the run, from the handler's thread."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from detent.domain.effects import NewStep, OnceKey
from detent.domain.run import Call, HeldRun
from detent.errors import OwnershipLost
from detent.store.effects import EffectPool
from detent.targets.output import AttemptOutput
from detent.worker.output import OutputWriter
from detent.worker.worker import Worker


class HandlerBackend:
    def __init__(self, worker: Worker, node: int, effects: EffectPool, output: OutputWriter | None = None) -> None:
        """`output`: writes the lines of runs; None: they are not kept."""
        self._worker = worker
        self._node = node
        self._effects = effects
        self._output = output

    def held(self, run_id: str, token: int) -> bool:
        return self._worker.holding(run_id, token) is not None

    def output(self, call: Call) -> AttemptOutput | None:
        return None if self._output is None else self._output.begin(call)

    def progress(self, run_id: str, token: int, fraction: float, message: str) -> None:
        if self._output is not None:
            self._output.progress(run_id, token, fraction, message)

    def _holding(self, run_id: str, token: int, lost: str) -> HeldRun:
        held = self._worker.holding(run_id, token)
        if held is None:
            raise OwnershipLost(f"This run was cancelled or taken over: {lost}.")
        return held

    @asynccontextmanager
    async def once(self, run_id: str, token: int, once: OnceKey) -> AsyncIterator[Any]:
        claim = self._holding(run_id, token, "the effect has not happened").claim
        async with self._effects.once(self._node, claim, once) as connection:
            if connection is not None:  # it may have waited for long
                self._holding(run_id, token, "the effect has not happened")
            yield connection

    async def steps(self, run_id: str, token: int) -> dict[str, str | None]:
        return await self._effects.steps(self._holding(run_id, token, "stop").claim)

    async def add_step(self, run_id: str, token: int, step: NewStep) -> None:
        claim = self._holding(run_id, token, f"its step {step.name!r} was not stored").claim
        await self._effects.add_step(self._node, claim, step)

    @asynccontextmanager
    async def transaction(self, run_id: str, token: int) -> AsyncIterator[Any]:
        held = self._holding(run_id, token, "there is nothing to commit")
        async with self._effects.transaction(self._node, held.claim, held.started) as connection:
            yield connection
