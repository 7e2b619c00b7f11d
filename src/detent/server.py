"""The API's HTTP server, on our own loop and under our own signals."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from types import TracebackType

import uvicorn
from starlette.applications import Starlette

from detent.errors import Unavailable

STOP_SECONDS = 2


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the node's: it must drain before the server stops answering."""
        yield


class ApiServer:
    def __init__(self, app: Starlette, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._app = app
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=STOP_SECONDS,
            ws="none",
        )
        self._server = _Server(config)
        self._task: asyncio.Task[None] | None = None
        self.url = ""

    async def __aenter__(self) -> ApiServer:
        sock = bind(self._host, self._port)
        host = f"[{self._host}]" if ":" in self._host else self._host
        self.url = f"http://{host}:{sock.getsockname()[1]}"
        self._task = asyncio.create_task(self._server.serve(sockets=[sock]))
        await self._server.ready.wait()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.should_exit = True
        await self._app.state.close()  # requests that wait are answered now, not cut off later
        if self._task is not None:
            await self._task


def bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host.strip("[]"), port))
        sock.listen(1024)  # now, not when the server starts: a port that is taken is then known at once
    except OSError as error:
        sock.close()
        raise Unavailable(
            f"Port {port} on {host} cannot be used ({error.strerror}): "
            "stop what listens there, or choose another with --port."
        ) from error
    return sock
