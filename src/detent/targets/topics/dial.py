"""Connections to brokers, at addresses that the tenant may reach: its rules are applied to the address of a socket."""

from __future__ import annotations

import asyncio
import socket

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from detent.domain.addresses import read_address
from detent.domain.target_access import TargetFault, TargetRules
from detent.targets.connectors import GuardedResolver
from detent.targets.exchange import CONNECT_SECONDS
from detent.targets.gate import calling_tenant
from detent.targets.guard import AddressGuard, AddressRefusedError, called_host


class GuardedDial:
    """A `Dial` for one tenant under one set of rules. `refusal` is why its last call opened no connection, if the rules
    were the reason: clients hide the exceptions of what they connect with in their own."""

    def __init__(self, tenant: int, rules: TargetRules, resolver: AbstractResolver | None, protocol: str) -> None:
        self._tenant = tenant
        self._rules = rules
        self._resolver = resolver
        self._protocol = protocol
        self.refusal: TargetFault | None = None

    async def __call__(self, host: str, port: int) -> socket.socket:
        """In a context of its own: batches have none, and look-ups ask it for the tenant."""
        self.refusal = None
        tokens = calling_tenant.set(self._tenant), called_host.set(host)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                return await self._connect(host, port)
        except AddressRefusedError as error:
            self.refusal = error.fault
            raise
        except TimeoutError:
            raise TimeoutError(None, f"no answer within {CONNECT_SECONDS:g} s") from None
        finally:
            calling_tenant.reset(tokens[0])
            called_host.reset(tokens[1])

    async def _connect(self, host: str, port: int) -> socket.socket:
        guard = AddressGuard(self._rules.for_protocol(self._protocol, port))
        failed: OSError | None = None
        for found in await self._addresses(guard, host, port):
            try:
                return await _connected(guard, found, port)
            except AddressRefusedError:
                raise
            except OSError as error:
                failed = failed or error
        raise failed or OSError(None, "the name has no address")

    async def _addresses(self, guard: AddressGuard, host: str, port: int) -> list[ResolveResult]:
        address = read_address(host)
        if address is not None:
            family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
            return [ResolveResult(hostname=host, host=host, port=port, family=family, proto=0, flags=0)]
        resolver = self._resolver or aiohttp.ThreadedResolver()
        return await GuardedResolver(resolver, guard).resolve(host, port, socket.AF_UNSPEC)


async def _connected(guard: AddressGuard, found: ResolveResult, port: int) -> socket.socket:
    """Refused addresses of a name were left out before; the guard checks again, as the last step."""
    address = (found["host"], port)
    opened = guard.open_socket((found["family"], socket.SOCK_STREAM, 0, "", address))
    try:
        opened.setblocking(False)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        await asyncio.get_running_loop().sock_connect(opened, address)
    except BaseException:
        opened.close()
        raise
    return opened
