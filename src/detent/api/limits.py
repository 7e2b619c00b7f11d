"""Rate limits.

The requests of a tenant are limited once for the whole cluster. A row of the database holds the tenant's tokens, and a
node takes those of a tenth of a second at a time, so that most requests cost no statement. In any period a tenant gets
at most what its rate gives, the size of its bucket, and what each node had taken before and not used.

A node that gets fewer tokens than it wants asks again after a tenth of a second at the earliest, and refuses without
asking meanwhile: a tenant that sends too much costs ten statements per second and node. While the database does not
answer, each node limits by itself.

A tenant may have a rate of its own, and the requests of a suspended one are refused (`request_rules.py`).
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address

from detent.api.problems import Refusal
from detent.api.request_rules import RequestRules
from detent.errors import DetentError, TenantSuspended
from detent.store.request_budgets import RequestBudgetStore
from detent.telemetry.log import logger

log = logger("api")

MAX_CALLERS = 10_000
BURST_SECONDS = 2
LEASE_SHARE = 0.1  # of a second: what a node takes at a time, and how long it waits before it asks again
LEASE_SECONDS = 10.0  # tokens that a node has not used by then are lost
ALONE_SECONDS = 5.0  # how long a node limits by itself after the database has not answered


def bucket_size(per_second: float) -> float:
    return max(1.0, per_second * BURST_SECONDS)


class Limiter:
    """A token bucket for each caller, in this process."""

    def __init__(self, per_second: float, now: Callable[[], float] = time.monotonic) -> None:
        """`per_second` 0 is no limit."""
        self._rate = per_second
        self._size = bucket_size(per_second)
        self._now = now
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, who: str) -> float:
        """Count one request of this caller: 0, or the seconds until the next one is allowed."""
        if not self._rate:
            return 0.0
        now = self._now()
        left, since = self._buckets.get(who, (self._size, now))
        left = min(self._size, left + (now - since) * self._rate)
        self._buckets[who] = (left - 1 if left >= 1 else left, now)
        self._buckets.move_to_end(who)
        if len(self._buckets) > MAX_CALLERS:
            self._buckets.popitem(last=False)
        return 0.0 if left >= 1 else (1 - left) / self._rate

    def give_back(self, who: str) -> None:
        """The last request of this caller does not count after all."""
        if who in self._buckets:
            left, since = self._buckets[who]
            self._buckets[who] = (min(self._size, left + 1), since)

    def take(self, who: str) -> None:
        """Count one request of this caller; raises a refusal with the time to wait."""
        if wait := self.wait(who):
            raise too_many(self._rate, wait)


class TokenLease:
    """The tokens of a tenant that this node has taken. `ask_at`: it asks for more from then on."""

    def __init__(self) -> None:
        self.tokens = 0
        self.until = 0.0
        self.ask_at = 0.0
        self.rate = 0.0
        self.asking = asyncio.Lock()

    def use(self, now: float) -> bool:
        if self.tokens < 1 or now >= self.until:
            return False
        self.tokens -= 1
        return True


class TenantLimiter:
    def __init__(
        self,
        budgets: RequestBudgetStore,
        per_second: float,
        now: Callable[[], float] = time.monotonic,
        *,
        rules: RequestRules | None = None,
    ) -> None:
        """`per_second` 0 is no limit; it is for tenants to which `rules` gives no rate of their own."""
        self._budgets = budgets
        self._rate = per_second
        self._rules = rules
        self._now = now
        self._leases: OrderedDict[int, TokenLease] = OrderedDict()
        self._alone: dict[float, Limiter] = {}
        self._alone_until = -math.inf

    async def take(self, tenant: int) -> None:
        """Count one request of this tenant; raises a refusal with the time to wait, or because it is suspended."""
        rate = await self._rate_of(tenant)
        if not rate:
            return
        lease = self._lease(tenant)
        if lease.use(self._now()):
            return
        async with lease.asking:  # one statement for all requests that come meanwhile
            if lease.use(self._now()) or await self._ask(tenant, lease, rate):
                return
        self._alone.setdefault(rate, Limiter(rate, self._now)).take(str(tenant))

    async def _rate_of(self, tenant: int) -> float:
        rule = None if self._rules is None else await self._rules.of(tenant)
        if rule is None:
            return self._rate
        if rule.suspended:
            raise TenantSuspended(rule.name)
        return self._rate if rule.requests_per_second is None else rule.requests_per_second

    async def _ask(self, tenant: int, lease: TokenLease, rate: float) -> bool:
        """Take tokens and use one for the request that asks, or refuse it. False: the database does not answer."""
        now = self._now()
        batch = max(1, int(rate * LEASE_SHARE))
        if now < self._alone_until:
            return False
        if now >= lease.ask_at or rate != lease.rate:  # the pause was for the former rate
            try:
                taken = await self._budgets.take(tenant, batch, rate, bucket_size(rate))
            except DetentError as error:
                self._alone_until = self._now() + ALONE_SECONDS
                log.warning("request limits count for each node while the database does not answer", error=str(error))
                return False
            lease.tokens, lease.until = taken.granted, now + LEASE_SECONDS
            lease.ask_at, lease.rate = 0.0, rate
            if taken.granted < batch:
                lease.ask_at = now + max(LEASE_SHARE, (1 - taken.left) / rate)
        if not lease.use(self._now()):
            raise too_many(rate, lease.ask_at - now)
        return True

    def _lease(self, tenant: int) -> TokenLease:
        lease = self._leases.get(tenant)
        if lease is None:
            lease = self._leases[tenant] = TokenLease()
            if len(self._leases) > MAX_CALLERS:
                self._leases.popitem(last=False)
        else:
            self._leases.move_to_end(tenant)
        return lease


def too_many(per_second: float, seconds: float, why: str = "", advice: str = "send fewer") -> Refusal:
    """The refusal of a request that may come again after `seconds`."""
    wait = max(1, math.ceil(seconds))
    size = bucket_size(per_second)
    headers = {
        "Retry-After": str(wait),
        "RateLimit-Policy": f'"requests";q={int(size)};w={math.ceil(size / per_second)}',
        "RateLimit": f'"requests";r=0;t={wait}',
    }
    why = why or f"The limit is {per_second:g} requests per second"
    return Refusal(429, "too-many-requests", f"{why}: wait {wait} s, then {advice}.", headers)


def network_of(address: str) -> str:
    """The address; for IPv6 its /64 network, because one machine can use all addresses of it."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if isinstance(found, IPv6Address) and found.ipv4_mapped is None:
        return f"{IPv6Address(int(found) >> 64 << 64)}/64"
    return address
