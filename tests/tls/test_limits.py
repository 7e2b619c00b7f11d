"""The limits of clients hold with TLS: silence, slow handshakes, too many connections, slow and large requests."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from detent.node.tls_acceptor import UNSENT_BYTES, TlsAcceptor
from tests.security.wire import Wire, request
from tests.support.waiting import until
from tests.tls.tls_server import CertificateFolder, Serving, serving

HALF_A_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"


@pytest.fixture
def sockets() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def acceptor_of(served: Serving) -> TlsAcceptor:
    found: Any = served.server._server.servers[0]
    assert isinstance(found, TlsAcceptor)
    return found


async def opened(stack: ExitStack, served: Serving, sends: bytes = b"") -> socket.socket:
    client = stack.enter_context(closing(socket.socket()))
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(client, ("127.0.0.1", served.port))
    await loop.sock_sendall(client, sends)
    return client


async def closed(client: socket.socket) -> bool:
    """Whether the server closes the connection and sends nothing before."""
    try:
        async with asyncio.timeout(60):
            return await asyncio.get_running_loop().sock_recv(client, 100) == b""
    except ConnectionResetError:
        return True


@asynccontextmanager
async def secure_wire(served: Serving, context: ssl.SSLContext) -> AsyncIterator[Wire]:
    made = Wire(*await asyncio.open_connection("127.0.0.1", served.port, ssl=context))
    try:
        yield made
    finally:
        await made.close()


async def test_a_client_that_says_nothing_is_disconnected(folder: CertificateFolder, sockets: ExitStack) -> None:
    async with serving(folder, request_header_seconds=1) as served:
        client = await opened(sockets, served)
        assert await closed(client)
        assert served.counts["silent"] == 1
        assert not acceptor_of(served)._new


async def test_a_handshake_that_does_not_end_is_cut(folder: CertificateFolder, sockets: ExitStack) -> None:
    async with serving(folder, request_header_seconds=1) as served:
        client = await opened(sockets, served, HALF_A_HELLO)
        assert await closed(client)
        await until(lambda: not acceptor_of(served)._new)
        assert served.counts["TLS: handshake not completed"] == 1


@pytest.mark.parametrize("sends", [b"", HALF_A_HELLO], ids=["silent", "half a handshake"])
async def test_the_oldest_unfinished_connections_are_closed_when_there_are_too_many(
    folder: CertificateFolder, sockets: ExitStack, monkeypatch: pytest.MonkeyPatch, sends: bytes
) -> None:
    monkeypatch.setattr("detent.node.connections.WAITING", 8)
    async with serving(folder, max_connections=4, request_header_seconds=600) as served:
        before = descriptors()
        clients = [await opened(sockets, served, sends) for _ in range(60)]
        assert await closed(clients[0])
        assert await closed(clients[40])
        await until(lambda: len(acceptor_of(served)._new) <= 12)
        await until(lambda: descriptors() - before <= len(clients) + 12 + 8)
        async with secure_wire(served, folder.client()) as client:  # the newest is served
            assert (await client.ask(request("GET", "/livez"))).status == 200


async def test_nothing_is_left_of_connections_when_the_server_stops(
    folder: CertificateFolder, sockets: ExitStack
) -> None:
    before = descriptors()
    async with serving(folder) as served:
        await opened(sockets, served)
        await opened(sockets, served, HALF_A_HELLO)
        async with secure_wire(served, folder.client()) as client:
            assert (await client.ask(request("GET", "/livez"))).status == 200
            await until(lambda: len(acceptor_of(served)._new) == 2)
    sockets.close()
    await until(lambda: descriptors() <= before + 2, what="descriptors to be closed")


async def test_slow_headers_are_refused_over_tls(folder: CertificateFolder) -> None:
    async with serving(folder, request_header_seconds=1) as served, secure_wire(served, folder.client()) as client:
        await client.send(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n")
        assert (await client.answer()).problem == "headers-too-slow"
        assert await client.ended() == b""


async def test_a_client_that_goes_on_sending_after_a_refusal_can_read_it(folder: CertificateFolder) -> None:
    async with serving(folder) as served, secure_wire(served, folder.client()) as client:
        await client.send(request("POST", "/livez", f"Content-Length: {10**9}") + b"x" * 100_000)
        assert (await client.answer()).problem == "body-too-large"


async def test_an_answer_that_is_not_read_takes_no_more_memory_than_without_tls(folder: CertificateFolder) -> None:
    async with serving(folder) as served, secure_wire(served, folder.client()) as client:
        assert (await client.ask(request("GET", "/livez"))).status == 200
        (connection,) = served.server.connections.connections
        transport: Any = connection.transport
        assert transport.get_write_buffer_limits()[1] == UNSENT_BYTES
