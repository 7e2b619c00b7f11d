"""New connections: probes come first, those that wait are few, and nothing is left of those that have ended."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from detent.node import acceptor, connections
from detent.node.server import UNSENT_BYTES, ApiServer
from tests.security.wire import connect, probes, request, whole_server, wire
from tests.support.waiting import until

LINE = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"
PROBE = request("GET", "/livez")
JSON = "Content-Type: application/json"


@pytest.fixture
def sockets() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def connected(stack: ExitStack, server: ApiServer, sends: bytes) -> socket.socket:
    """A client whose connection and bytes wait in the kernel: the server's loop, which is this one, does not run."""
    client = stack.enter_context(closing(socket.create_connection(("127.0.0.1", urlsplit(server.url).port))))
    client.sendall(sends)
    client.setblocking(False)
    return client


def acceptor_of(server: ApiServer) -> Any:
    return server._server.servers[0]


async def received(client: socket.socket) -> bytes:
    async with asyncio.timeout(20):
        return await asyncio.get_running_loop().sock_recv(client, 4096)


async def test_a_probe_is_answered_before_connections_that_came_earlier(sockets: ExitStack) -> None:
    async with probes() as server:
        for _ in range(200):
            connected(sockets, server, LINE)
        probe = connected(sockets, server, PROBE)
        assert (await received(probe)).startswith(b"HTTP/1.1 200")
        assert len(server.connections.connections) < 200
        await until(lambda: len(server.connections.connections) >= 200)


async def test_a_probe_comes_first_also_if_its_request_arrives_after_its_connection(sockets: ExitStack) -> None:
    async with probes() as server:
        for _ in range(300):
            connected(sockets, server, LINE)
        probe = connected(sockets, server, b"")
        while not acceptor_of(server)._silent:
            await asyncio.sleep(0)  # one turn of the loop
        probe.send(PROBE)
        assert (await received(probe)).startswith(b"HTTP/1.1 200")
        assert len(server.connections.connections) < 300


async def test_every_connection_is_served_in_the_end(sockets: ExitStack) -> None:
    async with probes() as server:
        clients = [connected(sockets, server, request("GET", "/metrics")) for _ in range(100)]
        for client in clients:
            assert (await received(client)).startswith(b"HTTP/1.1 200")


async def test_the_oldest_are_closed_when_more_wait_than_there_are_descriptors_for(sockets: ExitStack) -> None:
    async with probes(max_connections=4) as server:
        clients = [connected(sockets, server, LINE) for _ in range(connections.WAITING + 100)]
        before = descriptors()
        await until(lambda: server.connections.connections)
        assert descriptors() - before <= 4 + connections.FOR_PROBES + connections.WAITING
        assert await ended(clients[0])
        async with wire(server.url) as client:
            assert (await client.ask(request("GET", "/metrics"))).status == 200


async def test_a_probe_whose_request_came_while_it_waited_is_served_and_not_closed(
    sockets: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acceptor, "SERVED_PER_TURN", 0)
    monkeypatch.setattr(acceptor, "LOOKED_AT_PER_TURN", 0)
    async with probes(max_connections=4) as server:
        silent = acceptor_of(server)._silent
        probe, oldest, *_ = [connected(sockets, server, b"") for _ in range(connections.WAITING + 4)]
        await until(lambda: len(silent) == connections.WAITING + 4)
        probe.send(PROBE)
        connected(sockets, server, b"")
        assert (await received(probe)).startswith(b"HTTP/1.1 200")
        connected(sockets, server, b"")
        assert await ended(oldest)


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


async def ended(client: socket.socket) -> bool:
    try:
        return await received(client) == b""
    except ConnectionResetError:
        return True


async def test_a_server_without_descriptors_accepts_again_when_there_are_some(
    sockets: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with probes() as server:
        listening = acceptor_of(server)
        failing = _Failing(listening._sock, 3)
        monkeypatch.setattr(listening, "_sock", failing)
        monkeypatch.setattr(acceptor, "RETRY_SECONDS", 0.001)
        assert (await received(connected(sockets, server, PROBE))).startswith(b"HTTP/1.1 200")
        assert failing.times == 0


class _Failing:
    """A listening socket whose process has no descriptor left for a while."""

    def __init__(self, sock: socket.socket, times: int) -> None:
        self._sock = sock
        self.times = times

    def fileno(self) -> int:
        return self._sock.fileno()

    def accept(self) -> Any:
        if self.times:
            self.times -= 1
            raise OSError(24, "Too many open files")
        return self._sock.accept()


async def test_a_new_connection_does_not_make_way_before_its_request_could_be_read(database_url: str) -> None:
    slow = request("POST", "/api/v1/jobs", JSON, "Content-Length: 500") + b"{"
    async with whole_server(database_url, max_connections=8) as (server, _), wire(server.url) as new:
        bodies = [await connect(server.url) for _ in range(3)]
        for client in bodies:
            await client.send(slow)
        await until(lambda: (len(server.connections.bodies), len(server.connections.reading)) == (3, 1))
        for _ in range(10):
            async with wire(server.url) as other:
                assert (await other.ask(PROBE)).status == 200
        assert (await new.ask(request("GET", "/version"))).status == 200
        for client in bodies:
            await client.close()


async def test_half_sent_requests_make_way_before_a_new_connection(sockets: ExitStack) -> None:
    async with probes(max_connections=8) as server, wire(server.url) as new:
        await until(lambda: len(server.connections.reading) == 1)
        half_sent = [connected(sockets, server, LINE) for _ in range(server.connections.max_of_one_peer)]
        assert await ended(half_sent[0])
        assert (await new.ask(PROBE)).status == 200


@pytest.mark.parametrize(("asks", "status"), [(LINE + b"a:\r\n" * 101, 431), (b"no\r\n", 400), (PROBE, 200)])
async def test_nothing_is_left_of_a_connection_that_has_ended(asks: bytes, status: int) -> None:
    """Garbage is collected seldom on a node, and a refused request may have had many headers."""
    gc.collect()
    gc.disable()
    try:
        async with probes() as server, wire(server.url) as client:
            connection = weakref.ref(await until(lambda: next(iter(server.connections.connections), None)))
            assert (await client.ask(asks)).status == status
            await client.close()
            await until(lambda: connection() is None)
    finally:
        gc.enable()


async def test_the_kernel_keeps_little_for_a_client_that_does_not_read() -> None:
    async with probes() as server, wire(server.url):
        connection = await until(lambda: next(iter(server.connections.connections), None))
        own = connection.transport.get_extra_info("socket").fileno()
        with socket.socket(fileno=os.dup(own)) as sock:
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT) == UNSENT_BYTES
