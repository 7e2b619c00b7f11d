"""New connections of a server with TLS: those that hold a descriptor before they are connections of the server.

A client can open a connection and send nothing, or begin a handshake and never end it. Until its first bytes are there
it costs a descriptor and nothing else. A handshake costs the loop 0.6 ms (measured with a P-256 key), as much as four
small requests, so a few are begun per turn. Silence and handshake have `request_header_seconds` each, and where there
are more of these connections than descriptors for them, the oldest is closed.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial

from detent.api import problems
from detent.api.problems import Refusal
from detent.node.acceptor import LOOKED_AT_BYTES, Acceptor, Connecting
from detent.node.connections import Connections
from detent.node.tls_alerts import accepted_socket
from detent.runtime.clock import monotonic

SHUTDOWN_SECONDS = 5.0
SWEEP_SECONDS = 1.0
# As much as a connection without TLS. The default for TLS is 512 KB for each client that does not read its answers.
UNSENT_BYTES = 65_536
HANDSHAKE_RECORD = b"\x16"


@dataclass(slots=True)
class _NewConnection:
    """`handshake` is None while it is silent or waits for its turn."""

    since: float
    handshake: Connecting | None = None


class TlsAcceptor(Acceptor):
    def __init__(
        self,
        sock: socket.socket,
        make_protocol: Callable[..., asyncio.Protocol],
        connections: Connections,
        context: Callable[[], ssl.SSLContext],
    ) -> None:
        """`context`: the one for a new connection."""
        super().__init__(sock, make_protocol, connections)
        self._context = context
        self._new: dict[socket.socket, _NewConnection] = {}  # the oldest first
        self._sweep = self._loop.call_later(SWEEP_SECONDS, self._close_silent)

    def _sort(self, client: socket.socket) -> None:
        self._new.setdefault(client, _NewConnection(monotonic()))
        try:
            begin = client.recv(LOOKED_AT_BYTES, socket.MSG_PEEK)
        except BlockingIOError:
            self._loop.add_reader(client, self._speaks, client)
        except OSError:
            self._close(client)
        else:
            self._begun(client, begin)

    def _speaks(self, client: socket.socket) -> None:
        self._loop.remove_reader(client)
        self._sort(client)
        if self._turn is None:
            self._serve()

    def _begun(self, client: socket.socket, begin: bytes) -> None:
        if begin.startswith(HANDSHAKE_RECORD):
            self._waiting.append(client)
            return
        if begin:
            self._connections.count("not TLS")
            # A small answer always fits into the buffer of a new connection. What it sent must be read, or closing
            # would reset the connection and the answer would be lost.
            with suppress(OSError):
                client.recv(LOOKED_AT_BYTES)
                client.send(_plain_http_refused())
        self._close(client)

    def _connect(self, client: socket.socket, *, heard: bool, brings_probe: bool = False) -> None:
        """Nothing of its request has been heard yet, so it may be that of a probe."""
        connecting = self._loop.connect_accepted_socket(
            partial(self._make_protocol, heard=False),
            client,
            ssl=self._context(),
            ssl_handshake_timeout=self._connections.settings.request_header_seconds,
            ssl_shutdown_timeout=SHUTDOWN_SECONDS,
        )
        context = copy_context()
        context.run(accepted_socket.set, client)
        task = self._loop.create_task(connecting, context=context)
        self._new[client].handshake = task
        self._serving.add(task)
        task.add_done_callback(partial(self._shaken, client))

    def _shaken(self, client: socket.socket, task: Connecting) -> None:
        self._new.pop(client, None)
        if task.cancelled():
            client.close()  # it may have been cancelled before it began
        elif task.exception() is None:
            task.result()[0].set_write_buffer_limits(high=UNSENT_BYTES)
        self._served(task)

    def _name_of(self, failure: BaseException) -> str:
        """OpenSSL has a fixed set of reasons, such as `peer did not return a certificate`."""
        if isinstance(failure, ssl.SSLError) and failure.reason:
            return f"TLS: {failure.reason.replace('_', ' ').lower()}"
        return "TLS: handshake not completed"

    # --- when there are too many, or they take too long ---

    def _close_surplus(self) -> None:
        free = max(0, self._connections.most - len(self._connections.connections))
        while len(self._new) > self._connections.most_waiting + free:
            self._connections.count("evicted")
            self._close(next(iter(self._new)))

    def _close_silent(self) -> None:
        before = monotonic() - self._connections.settings.request_header_seconds
        for client in [client for client, new in self._new.items() if new.handshake is None and new.since < before]:
            self._connections.count("silent")
            self._close(client)
        self._sweep = self._loop.call_later(SWEEP_SECONDS, self._close_silent)

    def _close(self, client: socket.socket) -> None:
        handshake = self._new.pop(client).handshake
        if handshake is not None:
            handshake.cancel()  # this closes its socket
            return
        self._loop.remove_reader(client)
        if client in self._waiting:
            self._waiting.remove(client)
        client.close()

    def close(self) -> None:
        self._sweep.cancel()
        for client in list(self._new):
            self._close(client)
        super().close()


def _plain_http_refused() -> bytes:
    """The whole answer for a client that speaks HTTP without TLS."""
    detail = "This port speaks HTTPS: use an address that begins with https://."
    answer = problems.answer(Refusal(400, "malformed-request", detail), {})
    headers = [*answer.raw_headers, (b"connection", b"close")]
    lines = b"".join(name + b": " + value + b"\r\n" for name, value in headers)
    return b"HTTP/1.1 400 Bad Request\r\n" + lines + b"\r\n" + bytes(answer.body)
