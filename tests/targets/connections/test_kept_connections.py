"""Connections that are kept for the next call, and those that are not: a real server in a thread of its own, so that it
closes while the loop of the caller does something else."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from detent.domain.target_access import PRIVATE_TOO
from detent.targets import connectors
from detent.targets.http import HttpTargetRunner
from detent.targets.policies import FixedPolicy
from tests.support.relay import tls_of
from tests.targets.target_helpers import failed, http_call, succeeded

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
PATIENCE = 10
Converse = Callable[[socket.socket], None]


class ThreadedServer:
    """Has one conversation after another. `may_go_on` and `went_on` are for a conversation that waits for the test."""

    def __init__(self, converse: Converse, tls: ssl.SSLContext | None = None) -> None:
        self._converse = converse
        self._tls = tls
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self._socket.getsockname()[1]}"
        self.connections = 0
        self._present: socket.socket | None = None
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with suppress(OSError):  # the test is over
            while True:
                accepted, _ = self._socket.accept()
                self.connections += 1
                accepted.settimeout(PATIENCE)
                with accepted if self._tls is None else self._tls.wrap_socket(accepted, server_side=True) as connection:
                    self._present = connection
                    self._converse(connection)

    def stop(self) -> None:
        """Also the conversation that waits for the next request of a connection that is kept."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        if self._present is not None:
            with suppress(OSError):  # closed already
                self._present.shutdown(socket.SHUT_RDWR)
        self._thread.join(PATIENCE)


@contextmanager
def threaded(converse: Converse, tls: ssl.SSLContext | None = None) -> Iterator[ThreadedServer]:
    server = ThreadedServer(converse, tls)
    try:
        yield server
    finally:
        server.stop()


def read_request(connection: socket.socket) -> bool:
    """False: there is none any more."""
    received = b""
    while not received.endswith(b"\r\n\r\n"):
        data = connection.recv(65_536)
        if not data:
            return False
        received += data
    return True


def answers(connection: socket.socket) -> None:
    with suppress(OSError):
        while read_request(connection):
            connection.sendall(OK)


class ClosesBetweenCalls:
    """Closes each connection when the test has its answer, while the loop of the test stands still."""

    def __init__(self) -> None:
        self._may_close, self._closed = threading.Semaphore(0), threading.Semaphore(0)

    def __call__(self, connection: socket.socket) -> None:
        assert read_request(connection)
        connection.sendall(OK)
        assert self._may_close.acquire(timeout=PATIENCE)
        if isinstance(connection, ssl.SSLSocket):
            connection.setblocking(False)  # or it would wait for our goodbye after its own
            with suppress(OSError):
                connection.unwrap()
        connection.close()
        self._closed.release()

    def close(self) -> None:
        self._may_close.release()
        assert self._closed.acquire(timeout=PATIENCE)


@pytest.fixture(params=["http", "https"])
def tls(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[ssl.SSLContext | None, ssl.SSLContext | None]:
    """Of the server, and of the caller."""
    return (None, None) if request.param == "http" else tls_of(tmp_path)


@pytest.fixture
def server_tls(tls: tuple[ssl.SSLContext | None, ssl.SSLContext | None]) -> ssl.SSLContext | None:
    return tls[0]


@pytest.fixture
async def runner(
    tls: tuple[ssl.SSLContext | None, ssl.SSLContext | None],
) -> AsyncIterator[HttpTargetRunner]:
    made = HttpTargetRunner(FixedPolicy(PRIVATE_TOO), max_result_bytes=1000, trust=tls[1])
    yield made
    await made.close()


async def test_a_connection_that_the_server_has_closed_since_its_answer_is_not_used(
    runner: HttpTargetRunner, server_tls: ssl.SSLContext | None
) -> None:
    converse = ClosesBetweenCalls()
    with threaded(converse, server_tls) as server:
        for calls in range(1, 6):
            assert succeeded(await runner(http_call(server.url)))["body"] == "ok"
            assert server.connections == calls
            converse.close()


async def test_calls_one_after_another_share_a_connection(
    runner: HttpTargetRunner, server_tls: ssl.SSLContext | None
) -> None:
    """With TLS 1.3 a server sends tickets after the handshake: they are read by the time of the next call."""
    with threaded(answers, server_tls) as server:
        for _ in range(50):
            assert succeeded(await runner(http_call(server.url)))["body"] == "ok"
        assert server.connections == 1


class Deaf:
    """Sends its answer, and nothing else: with TLS it does not say goodbye. Finds out when the other side has gone."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self.gone = threading.Event()

    def __call__(self, connection: socket.socket) -> None:
        assert read_request(connection)
        connection.sendall(self._answer)
        with socket.socket(fileno=connection.detach()) as below:  # below TLS
            below.settimeout(PATIENCE)
            with suppress(ConnectionError):
                while below.recv(65_536):
                    pass
        self.gone.set()


LONG = b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + b"x" * 2000


async def test_a_connection_with_an_answer_that_was_cut_is_closed_at_once(
    runner: HttpTargetRunner, server_tls: ssl.SSLContext | None
) -> None:
    deaf = Deaf(LONG)
    with threaded(deaf, server_tls) as server:
        assert succeeded(await runner(http_call(server.url)))["truncated"] is True
        assert await asyncio.to_thread(deaf.gone.wait, PATIENCE)


async def test_a_connection_that_was_not_used_for_too_long_is_closed_at_once(
    runner: HttpTargetRunner, server_tls: ssl.SSLContext | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connectors, "KEEP_ALIVE_SECONDS", 0.05)
    deaf = Deaf(OK)
    with threaded(deaf, server_tls) as server:
        assert succeeded(await runner(http_call(server.url)))["body"] == "ok"
        assert await asyncio.to_thread(deaf.gone.wait, PATIENCE)


async def test_a_connection_of_a_call_that_timed_out_is_closed_at_once(
    runner: HttpTargetRunner, server_tls: ssl.SSLContext | None
) -> None:
    deaf = Deaf(b"")
    with threaded(deaf, server_tls) as server:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await runner(http_call(server.url))
        assert await asyncio.to_thread(deaf.gone.wait, PATIENCE)


async def test_a_connection_that_breaks_after_the_request_was_sent_fails_the_attempt(
    runner: HttpTargetRunner, server_tls: ssl.SSLContext | None
) -> None:
    def hang_up(connection: socket.socket) -> None:
        assert read_request(connection)
        connection.sendall(OK)
        read_request(connection)

    with threaded(hang_up, server_tls) as server:
        assert succeeded(await runner(http_call(server.url)))["body"] == "ok"
        assert "closed the connection before it answered" in failed(await runner(http_call(server.url))).error
        assert server.connections == 1
