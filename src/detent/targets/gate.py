"""Threads and processes, shared between tenants as the slots of a worker are (domain/shares.py).

There may be fewer of them than slots, so a tenant whose handlers hang could take all of them within its share of the
slots. A call beyond its tenant's share waits here, for as long as any call waits for its handler to begin. If its turn
does not come in time the tenant is short: the worker claims no more of its runs for these handlers until one of its
calls ends.

A thread counts until its handler returns, also after the call has timed out: a function that never returns takes
threads of its own tenant only.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from contextvars import ContextVar

from detent.domain.shares import TenantShares

# The tenant of the run whose target is called.
calling_tenant: ContextVar[int] = ContextVar("calling_tenant", default=1)


class TenantGate:
    """Used on the node's loop only."""

    def __init__(self, size: int, headroom: float) -> None:
        self._shares = TenantShares(size, headroom)
        self._inside: Counter[int] = Counter()
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._short: set[int] = set()
        self.changed: Callable[[], None] = lambda: None

    def share_among(self, weights: Mapping[int, int]) -> None:
        """These tenants have jobs here."""
        self._shares.among(weights, self._inside.elements(), (tenant for tenant, _ in self._waiting))
        self._let_in()

    def is_short(self, tenant: int) -> bool:
        return tenant in self._short

    async def enter(self, tenant: int, within: float | None) -> bool:
        """Wait for the call's turn; False if it did not come `within` this many seconds. A call that enters must
        `leave`."""
        if self._shares.alone:
            self._inside[tenant] += 1
            return True
        self._shares.came(tenant)
        if self._shares.startable(tenant):
            self._begin(tenant)
            return True
        return await self._wait(tenant, within)

    def leave(self, tenant: int) -> None:
        self._inside[tenant] -= 1
        if not self._shares.alone:
            self._shares.ended(tenant)
        self._let_in()

    def _begin(self, tenant: int) -> None:
        self._inside[tenant] += 1
        if not self._shares.alone:
            self._shares.began(tenant)

    async def _wait(self, tenant: int, within: float | None) -> bool:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        place = (tenant, turn)
        self._waiting.append(place)
        try:
            async with asyncio.timeout(within):
                await turn
        except TimeoutError:
            return self._stop_waiting(place, short=True)
        except asyncio.CancelledError:
            if not self._stop_waiting(place, short=False):
                raise
            self.leave(tenant)
            raise
        return True

    def _stop_waiting(self, place: tuple[int, asyncio.Future[None]], *, short: bool) -> bool:
        """True: its turn came before it could stop."""
        if place not in self._waiting:
            return True
        self._waiting.remove(place)
        if not self._shares.alone:
            self._shares.gone(place[0])
        if short:
            self._short.add(place[0])
            self.changed()
        self._end_shortages()  # the calls whose end would do it may have ended already
        return False

    def _let_in(self) -> None:
        """Admit the calls whose turn it is, in the order in which they came."""
        shares = self._shares
        for place in list(self._waiting):
            if not place[1].done() and (shares.alone or shares.startable(place[0])):
                self._waiting.remove(place)
                self._begin(place[0])
                place[1].set_result(None)
        self._end_shortages()

    def _end_shortages(self) -> None:
        """Claim runs again for the tenants that could have more calls."""
        shares = self._shares
        free = {tenant for tenant in self._short if shares.alone or shares.open_to(tenant)}
        if free:
            self._short -= free
            self.changed()
