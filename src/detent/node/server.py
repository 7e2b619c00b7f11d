"""The API's HTTP server, on the node's loop; the node handles the signals."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable, Iterator
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, cast

import uvicorn
from starlette.applications import Starlette

from detent.errors import Unavailable
from detent.node.acceptor import Acceptor
from detent.node.connections import SWEEP_SECONDS, Connections, ReleaseBodies
from detent.node.protocol import IDLE_SECONDS, LimitedProtocol
from detent.runtime.clock import monotonic
from detent.runtime.service import Loop
from detent.settings.settings import Settings

if TYPE_CHECKING:
    from detent.node.tls import ServerTls

STOP_SECONDS = 2
SOUGHT = 100
# What the kernel keeps for a client that does not read. Without this, it is up to 4 MB for each.
UNSENT_BYTES = 131_072
# Browsers that have seen this use HTTPS only for a year.
HSTS = ("Strict-Transport-Security", "max-age=31536000")


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, connections: Connections, tls: ServerTls | None) -> None:
        super().__init__(config)
        self.server_state = self._connections = connections
        self._tls = tls
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Instead of uvicorn's own, whose server would accept one connection per turn of the loop."""
        make_protocol = partial(LimitedProtocol, self.config, self._connections, {})
        acceptors = [self._acceptor(sock, make_protocol) for sock in sockets or ()]
        self.servers = cast("list[asyncio.Server]", acceptors)  # they have what uvicorn calls
        self.started = True
        self.ready.set()

    def _acceptor(self, sock: socket.socket, make_protocol: Callable[..., LimitedProtocol]) -> Acceptor:
        tls = self._tls
        if tls is None:
            return Acceptor(sock, make_protocol, self._connections)
        from detent.node.tls_acceptor import TlsAcceptor

        return TlsAcceptor(sock, make_protocol, self._connections, lambda: tls.context)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The node handles signals: it must drain before the server stops answering."""
        yield


class ApiServer:
    def __init__(
        self,
        app: Starlette,
        host: str,
        port: int,
        *,
        settings: Settings | None = None,
        seek: bool = False,
        flag: str = "--port",
        tls: ServerTls | None = None,
    ) -> None:
        """`settings` has the limits of clients. `seek`: when the port is in use, take the next free one. `flag` is the
        option that chooses the port."""
        self._tls = tls
        self._host = host
        self._port = port
        self.app = app
        chosen = settings or Settings()
        self.connections = Connections(chosen)
        config = uvicorn.Config(
            ReleaseBodies(app, self.connections),
            http=LimitedProtocol,
            timeout_keep_alive=IDLE_SECONDS,
            log_config=None,
            access_log=False,
            proxy_headers=False,  # by default it would believe X-Forwarded-For of every local process
            lifespan="off",
            timeout_graceful_shutdown=STOP_SECONDS,
            ws="none",
            # Not for this machine alone: it would apply to every other program that listens on localhost.
            headers=[HSTS] if tls is not None and not chosen.local else None,
        )
        self._server = _Server(config, self.connections, tls)
        self._sweeps = Loop("connections", self._sweep)
        self._task: asyncio.Task[None] | None = None
        self._seek = seek
        self._flag = flag
        self.url = ""
        self.note = ""

    async def __aenter__(self) -> ApiServer:
        sock = seek(self._host, self._port) if self._seek else bind(self._host, self._port, self._flag)
        if self._seek and sock.getsockname()[1] != self._port:
            self.note = f"port {self._port} is in use, listening on {sock.getsockname()[1]}"
        host = f"[{self._host}]" if ":" in self._host else self._host
        self.url = f"{'http' if self._tls is None else 'https'}://{host}:{sock.getsockname()[1]}"
        self._task = asyncio.create_task(self._server.serve(sockets=[sock]))
        await self._server.ready.wait()
        self._sweeps.start()
        return self

    async def _sweep(self) -> float:
        self.connections.sweep(monotonic())
        return SWEEP_SECONDS

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.should_exit = True
        await self.app.state.close()  # answers requests that wait, instead of cutting them off later
        if self._task is not None:
            await self._task
        await self._sweeps.abort()


def seek(host: str, port: int) -> socket.socket:
    """The first free port from this one on, so that several servers can start on one machine without options."""
    for candidate in range(port, min(port + SOUGHT, 65536)):
        try:
            return _listen(host, candidate)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise _unusable(host, candidate, error, "--port") from error
    raise Unavailable(f"Ports {port} to {candidate} on {host} are all in use: choose one with --port.")


def bind(host: str, port: int, flag: str) -> socket.socket:
    try:
        return _listen(host, port)
    except OSError as error:
        raise _unusable(host, port, error, flag) from error


def _unusable(host: str, port: int, error: OSError, flag: str) -> Unavailable:
    return Unavailable(
        f"Port {port} on {host} cannot be used ({error.strerror}): "
        f"stop the program that listens there, or choose another port with {flag}."
    )


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)  # its connections inherit it
        sock.bind((host.strip("[]"), port))
        sock.listen(1024)  # before the server starts, so that a port in use fails here
    except OSError:
        sock.close()
        raise
    return sock
