"""What a handler's Run asks of the worker that holds the run, from the handler's thread."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

from detent.domain.states import END_CODES, Event
from detent.errors import OwnershipLost
from detent.store.effects import EffectPool
from detent.store.live_runs import Settlement
from detent.worker.worker import Worker


class HandlerBackend:
    def __init__(self, worker: Worker, node: int, effects: EffectPool) -> None:
        self._worker = worker
        self._node = node
        self._effects = effects

    def held(self, run_id: str, token: int) -> bool:
        return self._worker.holding(run_id, token) is not None

    @asynccontextmanager
    async def transaction(self, run_id: str, token: int) -> AsyncIterator[Any]:
        held = self._worker.holding(run_id, token)
        if held is None:
            raise OwnershipLost("This run was cancelled or taken over: there is nothing to commit.")

        def settlement(now: datetime) -> Settlement:
            return Settlement(held.claim, held.started, now, END_CODES[Event.SUCCEED])

        async with self._effects.transaction(self._node, settlement) as connection:
            yield connection
