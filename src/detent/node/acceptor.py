"""New connections of one server: taken from the kernel at once, and served a few at a time, probes first.

The kernel hands connections over in the order in which they came. If the server made each one a connection of the loop
before it looked at the next, a probe would wait behind a thousand others for as long as those cost: 0.2 ms each, and
more with the requests that they bring. To take a connection and to look at its first bytes costs a tenth of that. So
all are taken in every turn of the loop. Those that bring a complete request for a probe are served at once, and a few
of the others per turn. When more wait than there are descriptors for, the one that has waited longest is closed.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from functools import partial

from detent.node.connections import PROBES, Connections

BACKLOG = 2048
TAKEN_PER_TURN = 128
LOOKED_AT_PER_TURN = 64
SERVED_PER_TURN = 8
RETRY_SECONDS = 0.1
LOOKED_AT_BYTES = 2048
PROBE_LINES = tuple(b"GET " + path + end for path in PROBES for end in (b" ", b"?"))


class Acceptor:
    """Has what uvicorn needs of an asyncio.Server."""

    def __init__(
        self, sock: socket.socket, make_protocol: Callable[..., asyncio.Protocol], connections: Connections
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self._make_protocol = make_protocol
        self._connections = connections
        self._silent: deque[socket.socket] = deque()
        self._waiting: deque[socket.socket] = deque()
        self._serving: set[asyncio.Task[tuple[asyncio.Transport, asyncio.Protocol]]] = set()
        self._closed = False
        self._turn: asyncio.Handle | None = None
        self._retry: asyncio.TimerHandle | None = None
        sock.setblocking(False)
        sock.listen(BACKLOG)
        self._loop.add_reader(sock, self._take)

    def _take(self) -> None:
        """Take all that wait in the kernel."""
        for _ in range(TAKEN_PER_TURN):
            try:
                client = self._sock.accept()[0]
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                break
            except OSError:
                self._pause()
                break
            client.setblocking(False)
            self._sort(client)
            self._close_surplus()
        if self._turn is None:
            self._serve()

    def _sort(self, client: socket.socket) -> None:
        """Serve a probe, and put others in line."""
        try:
            begin = client.recv(LOOKED_AT_BYTES, socket.MSG_PEEK)
        except BlockingIOError:
            self._silent.append(client)
        except OSError:
            client.close()
        else:
            # A request that is not complete has no precedence: anyone can begin with these words and wait.
            if begin.startswith(PROBE_LINES) and b"\r\n\r\n" in begin:
                self._connect(client, heard=True, brings_probe=True)
            elif begin:
                self._waiting.append(client)
            else:
                client.close()  # the client has left

    def _serve(self) -> None:
        """Serve some waiting clients. Those that have sent nothing yet come last; they may still turn out to be
        probes."""
        self._turn = None
        for _ in range(min(LOOKED_AT_PER_TURN, len(self._silent))):
            self._sort(self._silent.popleft())
        for _ in range(min(SERVED_PER_TURN, len(self._waiting) + len(self._silent))):
            heard = bool(self._waiting)
            self._connect((self._waiting or self._silent).popleft(), heard=heard)
        if self._waiting or self._silent:
            self._turn = self._loop.call_soon(self._serve)

    def _connect(self, client: socket.socket, *, heard: bool, brings_probe: bool = False) -> None:
        make_protocol = partial(self._make_protocol, heard=heard, brings_probe=brings_probe)
        task = self._loop.create_task(self._loop.connect_accepted_socket(make_protocol, client))
        self._serving.add(task)
        task.add_done_callback(self._served)

    def _served(self, task: asyncio.Task[tuple[asyncio.Transport, asyncio.Protocol]]) -> None:
        self._serving.discard(task)
        if task.cancelled():
            return
        if task.exception() is not None:
            self._connections.count("failed")  # the client left at the wrong moment
        elif self._closed:
            task.result()[0].close()  # uvicorn has ended the connections that there were before

    def _close_surplus(self) -> None:
        """Close clients if too many wait. Those that have sent something are closed first: they are not probes, which
        are served at once."""
        while self._has_surplus():
            if not self._waiting:
                oldest = self._silent.popleft()
                self._sort(oldest)  # its request may have come meanwhile
                if not self._silent or self._silent[-1] is not oldest:
                    continue
            closed = self._waiting.popleft() if self._waiting else self._silent.pop()
            closed.close()
            self._connections.count("evicted")

    def _has_surplus(self) -> bool:
        used = len(self._connections.connections) + len(self._serving)
        free = max(0, self._connections.most - used)
        return len(self._silent) + len(self._waiting) > self._connections.most_waiting + free

    def _pause(self) -> None:
        """Accept nothing for a while: there are no descriptors or no memory left, so the next try would fail, too."""
        self._connections.count("accept failed")
        self._loop.remove_reader(self._sock)
        self._retry = self._loop.call_later(RETRY_SECONDS, self._loop.add_reader, self._sock, self._take)

    # --- what uvicorn calls ---

    def close(self) -> None:
        self._closed = True
        self._loop.remove_reader(self._sock)
        for timer in (self._turn, self._retry):
            if timer is not None:
                timer.cancel()
        for client in (*self._silent, *self._waiting):
            client.close()

    async def wait_closed(self) -> None:
        return
