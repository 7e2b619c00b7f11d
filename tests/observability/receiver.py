"""A real HTTP server that stores each message it receives, and answers with the statuses a test sets."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from aiohttp import web

SECRET_BYTES = b"an example of twenty-four bytes or more"
SECRET = f"whsec_{base64.b64encode(SECRET_BYTES).decode()}"


class Message(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)

    @property
    def authentic(self) -> bool:
        """Whether the signature is valid, checked in the way a receiver would."""
        text = f"{self.headers['webhook-id']}.{self.headers['webhook-timestamp']}.".encode() + self.body
        expected = base64.b64encode(hmac.new(SECRET_BYTES, text, hashlib.sha256).digest()).decode()
        return hmac.compare_digest(self.headers.get("webhook-signature", ""), f"v1,{expected}")


class Receiver:
    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.url = ""
        self.answers: list[int] = []
        """Statuses to answer with, in order; 204 when empty."""

    def events(self) -> list[str]:
        """The event type of every message received."""
        return [message.document["type"].rpartition(".")[2] for message in self.messages]

    async def _receive(self, request: web.Request) -> web.Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.messages.append(Message(request.method, request.path, headers, await request.read()))
        status = self.answers.pop(0) if self.answers else 204
        location = {"Location": f"{self.url}/elsewhere"} if 300 <= status < 400 else {}
        return web.Response(status=status, headers=location)


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", receiver._receive)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield receiver
    finally:
        await runner.cleanup()


class Silence:
    """A server that accepts connections and never answers."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.url = ""
        self._over = asyncio.Event()

    async def listen(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked.set()
        await self._over.wait()
        writer.close()

    def end(self) -> None:
        self._over.set()


@asynccontextmanager
async def silence() -> AsyncIterator[Silence]:
    silent, talks = Silence(), set[asyncio.Task[None]]()

    def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talks.add(asyncio.create_task(silent.listen(reader, writer)))

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    silent.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    try:
        yield silent
    finally:
        server.close()
        silent.end()
        await asyncio.gather(*talks)
