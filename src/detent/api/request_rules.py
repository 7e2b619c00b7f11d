"""What differs from the rules of the server for the requests of single tenants: a suspension, a rate of their own.

They are read for all tenants at once, when a request needs them and the last reading is a second old: in the
background, so that a busy server never waits for it. So every process obeys a change within two seconds, as it does
when a key is revoked. While the database does not answer, the last rules apply: a request that needs no statement is
answered, the others fail anyway.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from detent.errors import DetentError
from detent.runtime.service import start_shared
from detent.store.tenants import TenantRule
from detent.telemetry.log import logger

log = logger("api")

FRESH_SECONDS = 1.0
VALID_SECONDS = 2.0
# A request waits this long for a reading at most.
PATIENCE_SECONDS = 0.5


class RuleReader(Protocol):
    """What the store offers."""

    async def rules(self) -> dict[int, TenantRule]: ...


class RequestRules:
    def __init__(self, tenants: RuleReader, now: Callable[[], float] = time.monotonic) -> None:
        self._tenants = tenants
        self._now = now
        self._read_at = float("-inf")
        self._known: Mapping[int, TenantRule] = {}
        self._reading: asyncio.Task[None] | None = None

    async def of(self, tenant: int) -> TenantRule | None:
        """None: those of the server."""
        age = self._now() - self._read_at
        if age >= FRESH_SECONDS:
            reading = self._start_reading()
            if age >= VALID_SECONDS:
                await asyncio.wait([reading], timeout=PATIENCE_SECONDS)
        return self._known.get(tenant)

    def _start_reading(self) -> asyncio.Task[None]:
        """One reading for all requests that need it; a request that is cancelled does not cancel it for the others."""
        if self._reading is None:
            self._reading = start_shared(self._read())
            self._reading.add_done_callback(self._reading_ended)
        return self._reading

    def _reading_ended(self, task: asyncio.Task[None]) -> None:
        self._reading = None

    async def _read(self) -> None:
        began = self._now()
        try:
            self._known = await self._tenants.rules()
        except DetentError as error:
            log.warning("rules of tenants not read: the last ones apply", error=str(error))
        self._read_at = began  # also after an error: the next request does not wait for a database that is away
