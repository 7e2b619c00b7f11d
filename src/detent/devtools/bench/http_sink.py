"""A process that answers every HTTP request with `200` and two bytes: `python -m detent.devtools.bench.http_sink`.

The measurement is about the caller, so this does the minimum: find the end of a request, answer, keep the connection.
It prints the port that it listens on. With a certificate and a key it uses TLS.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
from collections.abc import Callable
from typing import cast

from detent.node import process

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok"
HEAD_END = b"\r\n\r\n"


class Sink(asyncio.Protocol):
    """`heard` gets every request as raw bytes."""

    def __init__(self, heard: Callable[[bytes], None] | None = None) -> None:
        self._waiting = b""
        self._heard = heard

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # the faster loop's own kind is not a subclass

    def data_received(self, data: bytes) -> None:
        self._waiting += data
        while (length := request_length(self._waiting)) is not None:
            if self._heard is not None:
                self._heard(self._waiting[:length])
            self._waiting = self._waiting[length:]
            self._transport.write(ANSWER)


def request_length(data: bytes) -> int | None:
    """How many bytes the first request has, or None while it is not all there."""
    head = data.find(HEAD_END)
    if head < 0:
        return None
    at = data[:head].lower().find(b"\r\ncontent-length:")
    body = int(data[at + 17 : data.find(b"\r\n", at + 2)]) if at >= 0 else 0
    whole = head + len(HEAD_END) + body
    return whole if len(data) >= whole else None


async def serve(certificate: str | None, key: str | None) -> None:
    context = None
    if certificate is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, key)
    server = await asyncio.get_running_loop().create_server(Sink, "127.0.0.1", 0, ssl=context, backlog=2048)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)  # the parent ends this process by closing its stdin


def main() -> None:
    certificate, key = (*sys.argv[1:3], None, None)[:2]
    with asyncio.Runner(loop_factory=process.loop_factory()) as runner:
        runner.run(serve(certificate, key))


if __name__ == "__main__":
    main()
