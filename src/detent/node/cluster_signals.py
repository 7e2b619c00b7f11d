"""The metrics of the whole cluster.

/metrics needs no key, so the database is queried at most every few seconds. If it does not answer in time, /metrics
omits these figures.
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
REFRESH_SECONDS = 5.0


class CachedSignals:
    def __init__(self, store: Callable[[], Store | None]) -> None:
        self._store = store
        self._refresh_at = 0.0
        self._refreshing = asyncio.Lock()
        self._known: ClusterSignals | None = None

    async def __call__(self) -> ClusterSignals | None:
        async with self._refreshing:
            if monotonic() >= self._refresh_at:
                self._known = await self._read()
                self._refresh_at = monotonic() + REFRESH_SECONDS
            return self._known

    async def _read(self) -> ClusterSignals | None:
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
