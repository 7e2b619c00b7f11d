"""What /metrics reports about the whole cluster.

/metrics needs no key, so the database is queried at most every few seconds. If it does not answer in time, /metrics
leaves these figures out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from detent.errors import DetentError
from detent.runtime.clock import monotonic
from detent.store import Store
from detent.telemetry.log import logger
from detent.telemetry.metrics import ClusterSignals

log = logger("signals")

ANSWER_SECONDS = 2.0
ASKED_AGAIN_AFTER = 5.0


class CachedSignals:
    def __init__(self, store: Callable[[], Store | None]) -> None:
        self._store = store
        self._asked_next = 0.0
        self._asking = asyncio.Lock()
        self._known: ClusterSignals | None = None

    async def __call__(self) -> ClusterSignals | None:
        async with self._asking:
            if monotonic() >= self._asked_next:
                self._known = await self._ask()
                self._asked_next = monotonic() + ASKED_AGAIN_AFTER
            return self._known

    async def _ask(self) -> ClusterSignals | None:
        store = self._store()
        if store is None:
            return None
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await store.signals.read()
        except TimeoutError:
            log.warning("no cluster figures: the database did not answer in time", seconds=ANSWER_SECONDS)
        except DetentError as error:
            log.warning("no cluster figures: the database does not answer", error=str(error))
        return None
