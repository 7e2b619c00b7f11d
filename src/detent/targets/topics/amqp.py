"""RabbitMQ by AMQP 0-9-1, with publisher confirms: a run succeeds when the broker has taken charge of the message.

Every message is persistent and mandatory: one that no queue gets comes back, and its attempt fails. The broker reports
other faults by closing the channel, with all messages under way on it. So each exchange has a channel of its own, and
messages that were under way on a closed channel are sent once more, one at a time, to find the one at fault. A message
that the broker already had is then doubled; consumers recognise it by its message id.

This module is imported for the first message to such a broker (`clients.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from urllib.parse import unquote

from pamqp.commands import Confirm

from detent.domain.run import Failed
from detent.domain.topics import amqp_route, default_port
from detent.runtime.amqp_connection import (
    ACCESS_REFUSED,
    NOT_FOUND,
    PRECONDITION_FAILED,
    AmqpConnection,
    AmqpLogin,
    AmqpRefusedError,
    ClosedChannel,
)
from detent.targets.breaker import Unanswered
from detent.targets.topics.amqp_channel import HEARTBEAT_SECONDS, ChannelAnswer, PublishingChannel
from detent.targets.topics.publisher import (
    Answer,
    BrokerAddress,
    BrokerRefusedError,
    Dial,
    Publisher,
    TopicMessage,
)

CONNECT_SECONDS = 15.0
MAX_CHANNELS = 100


def open_publisher(address: BrokerAddress, dial: Dial) -> Publisher:
    return AmqpPublisher(address, dial)


class AmqpPublisher:
    def __init__(self, address: BrokerAddress, dial: Dial) -> None:
        url = address.url
        self._address = address
        self._dial = dial
        self._peer = f"{url.host_subcomponent}:{url.port or default_port(url.scheme)}"
        self._connection: AmqpConnection | None = None
        self._channels: dict[str, PublishingChannel] = {}
        self._opening = asyncio.Lock()

    async def publish(self, messages: Sequence[TopicMessage]) -> Sequence[Answer]:
        by_exchange: dict[str, list[int]] = {}
        for number, message in enumerate(messages):
            by_exchange.setdefault(amqp_route(message.topic)[0], []).append(number)
        channels = [await self._channel(exchange) for exchange in by_exchange]
        if self._connection is not None and self._connection.blocked is not None:
            return [Failed(f"{self._peer} accepts no messages now: {self._connection.blocked}.")] * len(messages)
        parts = await asyncio.gather(
            *(
                channel.publish([messages[number] for number in numbers])
                for channel, numbers in zip(channels, by_exchange.values(), strict=True)
            )
        )
        answers: dict[int, Answer] = {}
        for numbers, part in zip(by_exchange.values(), parts, strict=True):
            found = await self._without_closed([messages[number] for number in numbers], part)
            answers.update(zip(numbers, found, strict=True))
        return [answers[number] for number in range(len(messages))]

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        self._channels.clear()
        if connection is not None:
            connection.close()

    async def _without_closed(
        self, messages: Sequence[TopicMessage], answers: Sequence[ChannelAnswer]
    ) -> Sequence[Answer]:
        """Messages to one exchange, and their answers. Those that a closed channel left open are sent alone."""
        final: list[Answer] = []
        missing: Failed | None = None
        for message, answer in zip(messages, answers, strict=True):
            if not isinstance(answer, ClosedChannel):
                final.append(answer)
            elif missing is not None:
                final.append(missing)
            else:
                alone = answer if len(messages) == 1 else await self._alone(message)
                found = self._refused(alone) if isinstance(alone, ClosedChannel) else alone
                if isinstance(alone, ClosedChannel) and alone.code == NOT_FOUND and isinstance(found, Failed):
                    missing = found
                final.append(found)
        return final

    async def _alone(self, message: TopicMessage) -> ChannelAnswer:
        try:
            channel = await self._channel(amqp_route(message.topic)[0])
        except (OSError, BrokerRefusedError) as error:  # it was sent before, and perhaps taken
            failed = Failed(f"The connection to {self._peer} broke before the message was acknowledged: {error}")
            return failed if isinstance(error, BrokerRefusedError) else Unanswered(failed, sent=True)
        return (await channel.publish([message]))[0]

    async def _channel(self, exchange: str) -> PublishingChannel:
        """Raises OSError if the server cannot be reached."""
        channel = self._channels.get(exchange)
        if channel is not None and channel.is_open:
            return channel
        async with self._opening, asyncio.timeout(CONNECT_SECONDS):
            channel = self._channels.get(exchange)
            if channel is None or not channel.is_open:
                connection = await self._connected()
                await self._close_spare_channels(connection)
                channel = await connection.open_channel(PublishingChannel)
                await channel.ask(Confirm.Select(), Confirm.SelectOk)
                self._channels[exchange] = channel
            return channel

    async def _close_spare_channels(self, connection: AmqpConnection) -> None:
        """A channel with messages under way stays: they would lose their confirmations."""
        self._channels = {exchange: channel for exchange, channel in self._channels.items() if channel.is_open}
        idle = [exchange for exchange, channel in self._channels.items() if channel.is_idle]
        for exchange in idle[: max(0, len(self._channels) - MAX_CHANNELS + 1)]:
            await connection.close_channel(self._channels.pop(exchange))

    async def _connected(self) -> AmqpConnection:
        if self._connection is None or self._connection.lost:
            self._channels.clear()
            self._connection = None
            self._connection = await self._connect()
        return self._connection

    async def _connect(self) -> AmqpConnection:
        url, tls = self._address.url, self._address.tls
        host = url.host or ""
        connected = await self._dial(host, url.port or default_port(url.scheme))
        try:
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: AmqpConnection(self._peer, HEARTBEAT_SECONDS),
                sock=connected,
                ssl=tls,
                server_hostname=host if tls is not None else None,
            )
        except BaseException:
            connected.close()
            raise
        try:
            vhost = unquote(url.raw_path[1:]) or "/"
            await connection.open(AmqpLogin(self._address.username, self._address.password, vhost))
        except AmqpRefusedError as error:
            connection.abort()
            raise BrokerRefusedError(str(error)) from None
        except BaseException:
            connection.abort()
            raise
        return connection

    def _refused(self, closed: ClosedChannel) -> Failed:
        # Without the permission to write, and for a message that is too large, a retry cannot help.
        permanent = closed.code in (ACCESS_REFUSED, PRECONDITION_FAILED)
        return Failed(f"{self._peer} refused the message: {closed.text}", retryable=not permanent)
