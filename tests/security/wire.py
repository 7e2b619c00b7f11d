"""A client that sends bytes, not requests, and servers to send them to."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from detent.api.app import create_app
from detent.api.health import create_probes
from detent.api.problem_pages import TEXTS
from detent.dashboard.app import add_dashboard
from detent.node.server import ApiServer
from detent.settings.settings import Settings
from detent.store import Database, Store
from detent.telemetry.health import Check
from detent.telemetry.metrics import Metrics

ANSWER_SECONDS = 20.0


class WireAnswer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def problem(self) -> str:
        """The kind of the problem; every problem has a page of its own."""
        assert self.headers["content-type"] == "application/problem+json", self
        document = json.loads(self.body)
        kind: str = document["type"].removeprefix("/problems/")
        assert (TEXTS[kind][0], document["status"]) == (self.status, self.status)
        return kind


class Wire:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def ask(self, data: bytes) -> WireAnswer:
        await self.send(data)
        return await self.answer()

    async def answer(self, *, head: bool = False) -> WireAnswer:
        """`head`: the request's method was HEAD, to which no body is sent."""
        async with asyncio.timeout(ANSWER_SECONDS):
            lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = {name.lower(): text for name, _, text in (line.partition(": ") for line in lines[1:] if line)}
            status = int(lines[0].split(" ")[1])
            if status == 100:
                return await self.answer(head=head)
            empty = head or status in (204, 304)
            return WireAnswer(status, headers, b"" if empty else await self._body(headers))

    async def _body(self, headers: dict[str, str]) -> bytes:
        if headers.get("content-type", "").startswith("text/event-stream"):
            return b""  # it never ends
        if headers.get("transfer-encoding") != "chunked":
            return await self.reader.readexactly(int(headers.get("content-length", 0)))
        body = b""
        while size := int(await self.reader.readuntil(b"\r\n"), 16):
            body += await self.reader.readexactly(size)
            await self.reader.readexactly(2)
        await self.reader.readexactly(2)
        return body

    async def ended(self) -> bytes:
        """What was still sent until the server closed the connection."""
        async with asyncio.timeout(ANSWER_SECONDS):
            with suppress(OSError):
                return await self.reader.read()
        return b""

    async def close(self) -> None:
        self.writer.transport.abort()
        with suppress(OSError):
            await self.writer.wait_closed()


@asynccontextmanager
async def wire(url: str, address: str = "127.0.0.1", *, receives: int | None = None) -> AsyncIterator[Wire]:
    """A connection from this address of loopback; `receives` is the size of its receive buffer."""
    opened = await connect(url, address, receives=receives)
    try:
        yield opened
    finally:
        await opened.close()


async def connect(url: str, address: str = "127.0.0.1", *, receives: int | None = None) -> Wire:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setblocking(False)
    if receives is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receives)
    try:
        sock.bind((address, 0))
        to = urlsplit(url)
        await asyncio.get_running_loop().sock_connect(sock, (to.hostname, to.port))
        return Wire(*await asyncio.open_connection(sock=sock))
    except BaseException:
        sock.close()
        raise


def request(method: str, path: str, *headers: str, body: bytes = b"") -> bytes:
    length = [f"Content-Length: {len(body)}"] if body else []
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *length, *headers, "", ""]).encode() + body


async def _ready() -> dict[str, Check]:
    return {"database": Check(True, "Always ready.")}


@asynccontextmanager
async def probes(**settings: Any) -> AsyncIterator[ApiServer]:
    """What listens on the metrics port: it needs no database."""
    async with ApiServer(create_probes(_ready, Metrics()), "127.0.0.1", 0, settings=Settings(**settings)) as server:
        yield server


@asynccontextmanager
async def whole_server(database_url: str, **settings: Any) -> AsyncIterator[tuple[ApiServer, Store]]:
    """The API and the dashboard."""
    database = Database(database_url)
    await database.open()
    store, chosen = Store(database), Settings(**settings)
    app = create_app(store, settings=chosen, readiness=_ready, metrics=Metrics())
    app.state.dashboard = add_dashboard(app)
    try:
        async with ApiServer(app, "127.0.0.1", 0, settings=chosen) as server:
            yield server, store
    finally:
        await database.close()
