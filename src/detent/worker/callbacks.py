"""Runs that end with a callback of their target: what the target gets to report with, and who holds them meanwhile."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from detent.domain.callbacks import (
    KEY_BYTES,
    WORKER_PREFIX,
    CallbackTicket,
    ProvenCallback,
    credential_of,
    proven_by,
)
from detent.domain.masking import Mask
from detent.domain.run import Call, Failed
from detent.runtime.clock import monotonic
from detent.store import Store
from detent.store.db import PoolName

# A key that is deleted signs nothing any more, and proves nothing, after this at the latest.
KEPT_SECONDS = 10.0
# A credential under a key that is not known here makes the keys be read again, but not more often than this.
RENEWED_SECONDS = 2.0
# How long the number of a worker is used before it is marked as seen again; it is kept for days.
WORKER_SECONDS = 600.0
RUN_PATH = "/api/v1/runs/"

NO_ADDRESS = (
    "The target was not called: it reports the end of this run by a callback, and this worker knows no address of the "
    "API. Set DETENT_PUBLIC_URL to the address under which targets reach the API."
)


class CallbackKeys:
    """The keys of the cluster for callbacks, as they were a moment ago."""

    def __init__(self, store: Store, pool: PoolName, now: Callable[[], float] = monotonic) -> None:
        self._store = store.callback_keys
        self._pool = pool
        self._now = now
        self._reading = asyncio.Lock()
        self._keys: tuple[bytes, ...] = ()
        self._read_at = -KEPT_SECONDS

    async def newest(self) -> bytes:
        """The key that signs; the first one is created here."""
        keys = await self._known(KEPT_SECONDS)
        while not keys:
            await self._store.create(secrets.token_bytes(KEY_BYTES))
            keys = await self._known(0.0)
        return keys[0]

    async def proven(self, run_id: str, credential: str) -> ProvenCallback | None:
        """None: the credential is not for this run."""
        found = proven_by(await self._known(KEPT_SECONDS), run_id, credential)
        return found or proven_by(await self._known(RENEWED_SECONDS), run_id, credential)

    async def _known(self, age: float) -> tuple[bytes, ...]:
        """The keys, read no longer ago than this."""
        async with self._reading:
            began = self._now()
            if began - self._read_at >= age:
                self._keys, self._read_at = await self._store.keys(self._pool), began
        return self._keys


class CallbackTickets:
    """Gives calls what their targets report with."""

    def __init__(self, store: Store, address: str | None) -> None:
        """`address`: under which targets reach the API; None: this process does not know it."""
        self._keys = CallbackKeys(store, PoolName.WORK)
        self._address = None if address is None else address.rstrip("/")

    async def fill(self, call: Call) -> Call | Failed:
        """The call with its ticket, whose credential is masked in what comes back."""
        if self._address is None:
            return Failed(NO_ADDRESS)
        credential = credential_of(await self._keys.newest(), call.run_id, call.tenant, call.token)
        ticket = CallbackTicket(f"{self._address}{RUN_PATH}{call.run_id}", credential)
        return replace(call, callback=ticket, mask=Mask((credential,)).joined(call.mask))


class CallbackWorkers:
    """The workers that stand for the targets of a tenant while these work: accepted runs are held by them."""

    def __init__(self, store: Store, now: Callable[[], float] = monotonic) -> None:
        self._store = store
        self._now = now
        self._name = f"{WORKER_PREFIX}{socket.gethostname()}"[:200]
        self._known: dict[int, tuple[float, int]] = {}

    async def of(self, tenants: Iterable[int]) -> dict[int, int]:
        """The number of the worker for each of these tenants."""
        return {tenant: await self._number(tenant) for tenant in sorted(set(tenants))}

    async def _number(self, tenant: int) -> int:
        until, number = self._known.get(tenant, (0.0, 0))
        if self._now() >= until:
            number = await self._store.pull.worker(tenant, self._name)
            self._known[tenant] = (self._now() + WORKER_SECONDS, number)
        return number
