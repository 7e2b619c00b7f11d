"""At registration: whether the brokers of topics and Celery tasks accept a connection now, from this process.

Only a hint for the person who creates the job: the worker that sends the messages may be elsewhere. So it takes less
than a second, looks at a few servers, and never refuses anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from yarl import URL

from detent.domain.target_access import TargetRules, topic_fault
from detent.domain.topics import protocol_of, server_of
from detent.targets.guard import AddressRefusedError
from detent.targets.http_failures import reason_of
from detent.targets.lookup import TenantResolver
from detent.targets.topics.dial import GuardedDial

WAIT_SECONDS = 0.8
THREADS = 8
HEADROOM = 0.2


class BrokerCheck:
    def __init__(self) -> None:
        self._resolver: TenantResolver | None = None

    async def away(self, tenant: int, rules: TargetRules, urls: Iterable[str]) -> dict[str, str]:
        """A warning for each of these that cannot be reached."""
        if self._resolver is None:
            self._resolver = TenantResolver(HEADROOM, threads=THREADS)
        chosen = list(urls)
        found = await asyncio.gather(*(self._warning(tenant, rules, url, self._resolver) for url in chosen))
        return {url: warning for url, warning in zip(chosen, found, strict=True) if warning is not None}

    async def _warning(self, tenant: int, rules: TargetRules, url: str, resolver: TenantResolver) -> str | None:
        try:
            host, port = server_of(URL(url))
        except ValueError:  # refused for its spelling, elsewhere
            return None
        if not host or topic_fault(rules, url) is not None:
            return None
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                opened = await GuardedDial(tenant, rules, resolver, protocol_of(url))(host, port)
        except AddressRefusedError:  # the worker says so with the tenant's name, if it still holds then
            return None
        except TimeoutError:
            return _sentence(host, port, f"no answer within {WAIT_SECONDS:g} s")
        except OSError as error:
            return _sentence(host, port, reason_of(error))
        opened.close()
        return None


def _sentence(host: str, port: int, why: str) -> str:
    return (
        f"The broker at {host}:{port} cannot be reached from here now: {why}. The job is stored, and its messages are "
        "not sent until a worker reaches it: check the URL, or start the broker."
    )
