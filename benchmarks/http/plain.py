"""The least that can be called an HTTP client: what Python itself costs, and no more. Nobody should use it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from typing import Any

import httptools


class Connection(asyncio.Protocol):
    def __init__(self, cap: int) -> None:
        self._cap = cap
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def ask(self, data: bytes) -> asyncio.Future[tuple[int, bytes]]:
        self._answer = asyncio.get_running_loop().create_future()
        self._body = b""
        self._parser = httptools.HttpResponseParser(self)
        self.transport.write(data)
        return self._answer

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, data: bytes) -> None:
        self._body += data
        if len(self._body) > self._cap:
            self.transport.abort()

    def on_message_complete(self) -> None:
        assert self._answer is not None
        self._answer.set_result((self._parser.get_status_code(), self._body))

    def connection_lost(self, _error: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError("the connection broke"))


class PlainClient:
    def __init__(self, open_socket: Callable[[Any], socket.socket], host: str, port: int, path: str, cap: int) -> None:
        self._open_socket = open_socket
        self._address = (host, port)
        self._first = f"POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\n"
        self._cap = cap
        self._idle: list[Connection] = []
        self._all: list[Connection] = []

    async def post(self, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        connection = self._idle.pop() if self._idle else await self._connect()
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        answer = await connection.ask(f"{self._first}{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        self._idle.append(connection)
        return answer

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        made = self._open_socket((socket.AF_INET, socket.SOCK_STREAM, 0, "", self._address))
        made.setblocking(False)
        await loop.sock_connect(made, self._address)
        _, connection = await loop.create_connection(lambda: Connection(self._cap), sock=made)
        self._all.append(connection)
        return connection

    def close(self) -> None:
        for connection in self._all:
            connection.transport.abort()
