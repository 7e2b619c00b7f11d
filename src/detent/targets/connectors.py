"""Connections for HTTP calls that leave the process: a connector for each tenant and set of rules.

A connection is kept open for the next call to the same host and port. So that no tenant uses a connection that only
another tenant may have, connections and resolved names are shared only by calls of one tenant under the same rules; a
changed allow list is another set of rules. Calls of one connector also share a look-up that is under way. If tenants
shared it, a tenant whose look-ups have to wait for a thread would make the others wait for the same host.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.client_proto import ResponseHandler

from detent.domain.target_access import RulesKey, TargetRules
from detent.runtime.clock import monotonic
from detent.targets.answer_protocol import AnswerProtocol
from detent.targets.exchange import CONNECT_SECONDS
from detent.targets.gate import calling_tenant
from detent.targets.guard import AddressGuard, AddressRefusedError, called_host

# Shorter than common servers keep an idle connection (some close after 2 s), so that a request is
# rarely sent into a connection that is being closed.
KEEP_ALIVE_SECONDS = 1.5
# Connectors without a call for so long are closed when another one is made; all idle ones if there are so many.
IDLE_SECONDS = 60.0
MANY_CONNECTORS = 500


@dataclass
class _RuledConnector:
    connector: aiohttp.TCPConnector
    calls: int = 0
    used_at: float = 0.0


class _CallContext:
    """While a call is under way, its connector is not closed, and sockets and look-ups know its host and tenant. A
    class, because a generator would cost each call 4 µs."""

    __slots__ = ("_host", "_ruled", "_tenant", "_tokens")

    def __init__(self, ruled: _RuledConnector, tenant: int, host: str) -> None:
        self._ruled = ruled
        self._tenant = tenant
        self._host = host

    def __enter__(self) -> aiohttp.TCPConnector:
        self._ruled.calls += 1
        self._tokens = calling_tenant.set(self._tenant), called_host.set(self._host)
        return self._ruled.connector

    def __exit__(self, *_: object) -> None:
        tenant, host = self._tokens
        calling_tenant.reset(tenant)
        called_host.reset(host)
        self._ruled.calls -= 1
        self._ruled.used_at = monotonic()


class GuardedConnectors:
    """`trust` says which certificates are accepted; without it, those that the system trusts."""

    def __init__(
        self,
        *,
        connections: int,
        resolver: AbstractResolver | None = None,
        dns_cache_seconds: int = 10,
        trust: ssl.SSLContext | None = None,
    ) -> None:
        self._connections = connections
        self._given_resolver = resolver
        self._resolver: AbstractResolver | None = resolver
        self._dns_cache_seconds = dns_cache_seconds
        self._trust = trust
        self._connectors: dict[tuple[int, RulesKey], _RuledConnector] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def connector(self, tenant: int, rules: TargetRules, host: str) -> _CallContext:
        """A context with the connector for a call of this tenant to this host, under these rules."""
        return _CallContext(self._connectors.get((tenant, rules.key)) or self._open(tenant, rules), tenant, host)

    def _open(self, tenant: int, rules: TargetRules) -> _RuledConnector:
        self._close_idle()
        if self._resolver is None:
            self._resolver = aiohttp.DefaultResolver()
        guard = AddressGuard(rules)
        connector = aiohttp.TCPConnector(
            resolver=GuardedResolver(self._resolver, guard),
            socket_factory=guard.open_socket,
            ssl=self._trust if self._trust is not None else True,
            limit=self._connections,
            keepalive_timeout=KEEP_ALIVE_SECONDS,
            use_dns_cache=self._dns_cache_seconds > 0,
            ttl_dns_cache=self._dns_cache_seconds,
        )
        # aiohttp has no public way to choose the protocol of its connections; exchange() refuses any other.
        make: Callable[..., ResponseHandler] = AnswerProtocol
        connector._factory = partial(make, loop=asyncio.get_running_loop())
        ruled = self._connectors[tenant, rules.key] = _RuledConnector(connector)
        return ruled

    def _close_idle(self) -> None:
        before = monotonic() - (IDLE_SECONDS if len(self._connectors) < MANY_CONNECTORS else 0.0)
        idle = [key for key, ruled in self._connectors.items() if not ruled.calls and ruled.used_at <= before]
        for key in idle:
            task = asyncio.create_task(self._connectors.pop(key).connector.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        for ruled in self._connectors.values():
            await ruled.connector.close()
        self._connectors.clear()
        await asyncio.gather(*self._closing)
        if self._given_resolver is None and self._resolver is not None:
            await self._resolver.close()
            self._resolver = None


class GuardedResolver(AbstractResolver):
    """Leaves out refused addresses, so that a name with good and bad ones is called at the good ones only.

    The socket factory would refuse the bad ones anyway. But it could not distinguish a name with only bad addresses,
    for which a retry cannot help, from one whose good address is down.
    """

    def __init__(self, inner: AbstractResolver, guard: AddressGuard) -> None:
        self._inner = inner
        self._guard = guard

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        async with asyncio.timeout(CONNECT_SECONDS):
            found = await self._inner.resolve(host, port, family)
        if not found:
            raise OSError(None, "the name has no address")
        faults = [self._guard.rules.fault(entry["host"], port, host) for entry in found]
        allowed = [entry for entry, fault in zip(found, faults, strict=True) if fault is None]
        if not allowed:
            raise AddressRefusedError(next(fault for fault in faults if fault is not None))
        return allowed

    async def close(self) -> None:
        await self._inner.close()
