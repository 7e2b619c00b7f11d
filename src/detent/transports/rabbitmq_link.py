"""A connection to RabbitMQ with one channel on it, opened again as needed."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Generic, TypeVar
from urllib.parse import unquote

from yarl import URL

from detent.domain.topics import default_port
from detent.runtime.amqp_connection import AmqpChannel, AmqpConnection, AmqpLogin, AmqpRefusedError
from detent.transports.answering import ANSWER_SECONDS, answering
from detent.transports.transport import TransportAwayError

# The broker drops a client that is silent for twice as long, and so returns what a stopped worker holds; this process
# does the same with a silent broker.
HEARTBEAT_SECONDS = 5
CLOSE_SECONDS = 1.0

LinkChannel = TypeVar("LinkChannel", bound=AmqpChannel)


class RabbitLink(Generic[LinkChannel]):
    def __init__(
        self,
        url: URL,
        kind: Callable[[AmqpConnection, int, int], LinkChannel],
        prepare: Callable[[LinkChannel], Awaitable[None]],
    ) -> None:
        """`prepare` gets each new channel before others do."""
        self._url = url
        self._port = url.explicit_port or default_port(url.scheme)
        self.peer = f"{url.host_subcomponent}:{self._port}"
        self._kind = kind
        self._prepare = prepare
        self._tls = ssl.create_default_context() if url.scheme == "amqps" else None
        self._connection: AmqpConnection | None = None
        self._channel: LinkChannel | None = None
        self._opening = asyncio.Lock()

    @property
    def current(self) -> LinkChannel | None:
        return self._channel if self._channel is not None and self._channel.is_open else None

    async def channel(self) -> LinkChannel:
        """Raises TransportAwayError."""
        found = self.current
        if found is not None:
            return found
        async with self._opening:
            if self.current is None:
                async with self.answering():
                    await self._open()
        found = self.current
        if found is None:
            raise TransportAwayError(f"{self.peer} closed the connection as soon as it was open.")
        return found

    def answering(self) -> AbstractAsyncContextManager[None]:
        """What the broker does not answer in time, or refuses, is a broker that is away."""
        return answering(self.peer, ANSWER_SECONDS, AmqpRefusedError)

    async def _open(self) -> None:
        try:
            if self._connection is None or self._connection.lost:
                self._connection = await self._connect()
            channel = await self._connection.open_channel(self._kind)
            await self._prepare(channel)
        except BaseException:  # also when it is cancelled: a late answer must not meet another question
            self.abort("the connection could not be prepared")
            raise
        self._channel = channel

    async def _connect(self) -> AmqpConnection:
        host = self._url.host or ""
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: AmqpConnection(self.peer, HEARTBEAT_SECONDS), host, self._port, ssl=self._tls
        )
        try:
            vhost = unquote(self._url.raw_path[1:]) or "/"
            await connection.open(AmqpLogin(self._url.user, self._url.password, vhost))
        except BaseException:
            connection.abort()
            raise
        return connection

    def abort(self, reason: str) -> None:
        """After an answer that did not come: later ones could be taken for those of other questions."""
        if self._connection is not None:
            self._connection.abort(reason)
        self._connection = self._channel = None

    async def close(self) -> None:
        async with self._opening:
            connection, self._connection, self._channel = self._connection, None, None
            if connection is not None and not connection.lost:
                connection.close()
                await asyncio.wait([connection.ended], timeout=CLOSE_SECONDS)
