"""Rate limits: a token bucket for each caller, in this process.

They keep one caller from using the whole server. Quotas of tenants are counted elsewhere.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address

from detent.api.problems import Refusal

MOST_CALLERS = 10_000
BURST_SECONDS = 2


class Limiter:
    def __init__(self, per_second: float, now: Callable[[], float] = time.monotonic) -> None:
        """`per_second` 0 is no limit."""
        self._rate = per_second
        self._size = max(1.0, per_second * BURST_SECONDS)
        self._now = now
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, who: str) -> None:
        """Count one request of this caller; raises a refusal with the time to wait."""
        if not self._rate:
            return
        now = self._now()
        left, since = self._buckets.get(who, (self._size, now))
        left = min(self._size, left + (now - since) * self._rate)
        self._buckets[who] = (left - 1 if left >= 1 else left, now)
        self._buckets.move_to_end(who)
        if len(self._buckets) > MOST_CALLERS:
            self._buckets.popitem(last=False)
        if left < 1:
            raise self._refusal((1 - left) / self._rate)

    def _refusal(self, seconds: float) -> Refusal:
        wait = math.ceil(seconds)
        window = math.ceil(self._size / self._rate)
        headers = {
            "Retry-After": str(wait),
            "RateLimit-Policy": f'"requests";q={int(self._size)};w={window}',
            "RateLimit": f'"requests";r=0;t={wait}',
        }
        detail = f"The limit is {self._rate:g} requests per second: wait {wait} s, then send fewer."
        return Refusal(429, "too-many-requests", detail, headers)


def network_of(address: str) -> str:
    """The address; for IPv6 its /64 network, because one machine can use all addresses of it."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if isinstance(found, IPv6Address) and found.ipv4_mapped is None:
        return f"{IPv6Address(int(found) >> 64 << 64)}/64"
    return address
