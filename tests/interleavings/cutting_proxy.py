"""A proxy in front of PostgreSQL that cuts a connection at the worst moment, exactly.

It reads the protocol's messages on their way. `lose_next_reply` lets the next statement run to its end and commit, and
cuts both sides instead of passing on the answer; `lose_next_request` cuts before the server has heard of the statement.
"""

from __future__ import annotations

import asyncio
import shutil
import struct
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

BIND, BIND_COMPLETE, READY = b"B", b"2", b"Z"
CHUNK = 65536


class Messages:
    """Cuts a byte stream into messages of a type byte, a length and a body."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        self._buffer += data
        while len(self._buffer) >= 5:
            size = 1 + struct.unpack("!I", self._buffer[1:5])[0]
            if len(self._buffer) < size:
                return
            message, self._buffer = self._buffer[:size], self._buffer[size:]
            yield message


class CuttingProxy:
    def __init__(self, server_socket: Path) -> None:
        self._server_socket = server_socket
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._lose_reply = False
        self._lose_request = False
        self.cuts = 0

    @staticmethod
    @asynccontextmanager
    async def before(url: str) -> AsyncIterator[tuple[CuttingProxy, str]]:
        """A proxy in front of the server of this address, and the address that leads through it."""
        query = parse_qs(urlsplit(url).query)
        name = f".s.PGSQL.{query['port'][0]}"
        folder = Path(tempfile.mkdtemp(prefix="detent-cut-"))  # short: the path of a socket must not be long
        proxy = CuttingProxy(Path(query["host"][0], name))
        listening = await asyncio.start_unix_server(proxy._serve, folder / name)
        try:
            yield proxy, url.replace(quote(query["host"][0], safe=""), quote(str(folder), safe=""))
        finally:
            listening.close()
            proxy._cut_all()
            await asyncio.gather(*proxy._tasks, return_exceptions=True)
            shutil.rmtree(folder)

    def lose_next_reply(self) -> None:
        self._lose_reply = True

    def lose_next_request(self) -> None:
        self._lose_request = True

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_unix_connection(self._server_socket)
        self._writers |= {writer, server_writer}
        both = (writer, server_writer)
        for work in (self._to_server(reader, both), self._to_client(server_reader, both)):
            task = asyncio.create_task(work)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _to_server(self, reader: asyncio.StreamReader, both: tuple[asyncio.StreamWriter, ...]) -> None:
        messages = Messages()
        first = True
        while data := await _read(reader):
            # The start-up packet has no type byte; it is all that the client sends before the server has answered.
            kinds = [] if first else [message[:1] for message in messages.feed(data)]
            first = False
            if self._lose_request and BIND in kinds:
                self._lose_request = False
                self._cut(both)
                return
            both[1].write(data)
        self._cut(both, counted=False)

    async def _to_client(self, reader: asyncio.StreamReader, both: tuple[asyncio.StreamWriter, ...]) -> None:
        messages = Messages()
        losing = False
        while data := await _read(reader):
            for message in messages.feed(data):
                if self._lose_reply and message[:1] == BIND_COMPLETE:
                    self._lose_reply, losing = False, True
                if not losing:
                    both[0].write(message)
                elif message[:1] == READY:  # by now the statement has committed
                    self._cut(both)
                    return
        self._cut(both, counted=False)

    def _cut(self, both: tuple[asyncio.StreamWriter, ...], *, counted: bool = True) -> None:
        self.cuts += counted
        for writer in both:
            writer.transport.abort()
            self._writers.discard(writer)

    def _cut_all(self) -> None:
        for writer in self._writers:
            writer.transport.abort()


async def _read(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(CHUNK)
    except OSError:
        return b""
