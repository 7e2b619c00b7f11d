"""Looking up the hosts of HTTP targets and messages, in threads of its own that tenants share.

A look-up cannot be interrupted, and one that no name server answers takes half a minute. In the few threads that an
event loop has for look-ups, a handful of such names would stop the calls of every tenant.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from aiohttp.abc import AbstractResolver, ResolveResult

from detent.targets.gate import TenantGate, calling_tenant
from detent.targets.threads import DaemonThreads

THREADS = 64
NUMERIC = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV

LookUp = Callable[[str, int, socket.AddressFamily], list[ResolveResult]]


def look_up(host: str, port: int, family: socket.AddressFamily) -> list[ResolveResult]:
    """Resolve the name with the system's resolver; blocks."""
    found = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return [
        ResolveResult(
            hostname=host,
            host=socket.getnameinfo(address, socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)[0],
            port=port,
            family=kind,
            proto=protocol,
            flags=NUMERIC,
        )
        for kind, _, protocol, _, address in found
    ]


class TenantResolver(AbstractResolver):
    def __init__(self, headroom: float, *, threads: int = THREADS, look_up: LookUp = look_up) -> None:
        """`headroom`: as in the worker, of the threads."""
        self.gate = TenantGate(threads, headroom)
        self._pool = DaemonThreads(threads, "detent-lookup")
        self._look_up = look_up

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        tenant, loop = calling_tenant.get(), asyncio.get_running_loop()
        await self.gate.enter(tenant, None)

        def leave(_future: object) -> None:
            with suppress(RuntimeError):  # the node's loop is closed
                loop.call_soon_threadsafe(self.gate.leave, tenant)

        try:
            future = self._pool.submit(partial(self._look_up, host, port, family))
        except BaseException:
            self.gate.leave(tenant)
            raise
        future.add_done_callback(leave)
        return await asyncio.wrap_future(future)

    async def close(self) -> None:
        self._pool.end()
