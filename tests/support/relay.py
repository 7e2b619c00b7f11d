"""A relay to a server in the process of the test, which can stop answering and can speak TLS to its clients."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from tests.support.certificates import Authority

ROUNDS_TO_ACCEPT = 5


class Listener:
    """Accepts connections; leaves none and no task behind."""

    def __init__(self) -> None:
        self.port = 0
        self._handlers: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    @asynccontextmanager
    async def listening(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=tls)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            # A connection that was just accepted gets its handler in one of the loop's next rounds, unless the server
            # is closed by then: asyncio forgets it without closing it.
            for accepting in server.sockets:
                asyncio.get_running_loop().remove_reader(accepting.fileno())
            for _ in range(ROUNDS_TO_ACCEPT):
                await asyncio.sleep(0)
                self.cut()
            server.close()
            await asyncio.gather(*self._handlers, return_exceptions=True)
            await server.wait_closed()

    def cut(self) -> None:
        """Every connection breaks, without a word."""
        for writer in self._writers:
            writer.transport.abort()

    def own(self, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._handlers.add(task)
        self.own(writer)
        try:
            await self.serve(reader, writer)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
            self._handlers.discard(task)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise NotImplementedError


class Relay(Listener):
    def __init__(self, port: int) -> None:
        super().__init__()
        self.server_port = port
        self.answers = True
        """False: what the server sends is swallowed."""
        self.forwarded = 0
        """Bytes from clients to the server."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self.server_port)
        self.own(back)
        await asyncio.gather(self._copy(reader, back, True), self._copy(there, writer, False), return_exceptions=True)
        back.close()
        with suppress(OSError):
            await back.wait_closed()

    async def _copy(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, to_server: bool) -> None:
        try:
            while data := await source.read(65_536):
                if to_server:
                    self.forwarded += len(data)
                elif not self.answers:
                    continue
                sink.write(data)
                await sink.drain()
        finally:
            sink.close()


class Greeter(Listener):
    """A server that says this to every client, whatever it asks."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self._data = data

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(self._data)
        with suppress(OSError):
            while await reader.read(65_536):
                pass


@asynccontextmanager
async def relay_to(port: int, tls: ssl.SSLContext | None = None) -> AsyncIterator[Relay]:
    relay = Relay(port)
    async with relay.listening(tls):
        yield relay


@asynccontextmanager
async def greeting_with(data: bytes) -> AsyncIterator[int]:
    greeter = Greeter(data)
    async with greeter.listening():
        yield greeter.port


async def dial(host: str, port: int) -> socket.socket:
    """As publishers are given, for whom every address is allowed."""
    opened = socket.socket()
    opened.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(opened, (host, port))
    except BaseException:
        opened.close()
        raise
    return opened


def tls_of(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Of a server of this machine, and of a client that trusts it."""
    authority = Authority()
    issued = authority.issue()
    (folder / "server.pem").write_text(issued.text)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "server.pem")
    return server, ssl.create_default_context(cadata=authority.certificate)
