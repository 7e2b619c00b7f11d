"""What a handler's Run asks of the worker that holds the run, from the handler's thread."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

from detent.domain.run import Call
from detent.domain.states import END_CODES, Event
from detent.errors import OwnershipLost
from detent.store.effects import EffectPool
from detent.store.live_runs import Settlement
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

    @asynccontextmanager
    async def transaction(self, run_id: str, token: int) -> AsyncIterator[Any]:
        held = self._worker.holding(run_id, token)
        if held is None:
            raise OwnershipLost("This run was cancelled or taken over: there is nothing to commit.")

        def settlement(now: datetime) -> Settlement:
            return Settlement(held.claim, held.started, now, END_CODES[Event.SUCCEED])

        async with self._effects.transaction(self._node, settlement) as connection:
            yield connection
