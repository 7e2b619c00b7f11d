"""A broker of AMQP 0-9-1 that refuses every connection, in words of the test."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from pamqp.commands import Connection
from pamqp.frame import marshal

from tests.support.relay import Listener


class RefusingBroker(Listener):
    def __init__(self, code: int, words: str) -> None:
        super().__init__()
        self._code = code
        self._words = words

    @property
    def url(self) -> str:
        return f"amqp://127.0.0.1:{self.port}/"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(8)
        writer.write(marshal(Connection.Start(0, 9, {}, "PLAIN", "en_US"), 0))
        await reader.read(8)
        writer.write(marshal(Connection.Close(self._code, self._words, 10, 40), 0))
        with suppress(OSError):
            await reader.read()
