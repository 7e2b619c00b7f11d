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
from typing import NamedTuple

from aiormq.channel import Channel
from aiormq.connection import Connection, TransportFactory
from aiormq.exceptions import (
    AMQPChannelError,
    AMQPError,
    AuthenticationError,
    ChannelAccessRefused,
    ChannelInvalidStateError,
    ChannelNotFoundEntity,
    ChannelPreconditionFailed,
    DeliveryError,
    InvalidFrameError,
    ProbableAuthenticationError,
    PublishError,
)
from pamqp.commands import Basic

from detent.domain.run import Failed
from detent.domain.topics import amqp_route, default_port
from detent.targets.topics.publisher import (
    Answer,
    BrokerAddress,
    BrokerRefusedError,
    Dial,
    Publisher,
    Receipt,
    TopicMessage,
)

CONNECT_SECONDS = 15.0
HEARTBEAT_SECONDS = 30
MAX_CHANNELS = 100
PERSISTENT = 2


def open_publisher(address: BrokerAddress, dial: Dial) -> Publisher:
    return AmqpPublisher(address, dial)


class _Addressed(NamedTuple):
    message: TopicMessage
    exchange: str
    routing_key: str


class AmqpPublisher:
    def __init__(self, address: BrokerAddress, dial: Dial) -> None:
        self._address = address
        self._dial = dial
        self._connection: Connection | None = None
        self._channels: dict[str, Channel] = {}
        self._opening = asyncio.Lock()

    async def publish(self, messages: Sequence[TopicMessage]) -> Sequence[Answer]:
        addressed = [_Addressed(message, *amqp_route(message.topic)) for message in messages]
        channels = {exchange: await self._channel(exchange) for exchange in {each.exchange for each in addressed}}
        answers = await asyncio.gather(*(_send(channels[each.exchange], each) for each in addressed))
        again = [number for number, answer in enumerate(answers) if isinstance(answer, Exception)]
        alone = await self._one_at_a_time([addressed[number] for number in again])
        replaced = dict(zip(again, alone, strict=True))
        return [replaced[number] if isinstance(answer, Exception) else answer for number, answer in enumerate(answers)]

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        self._channels.clear()
        if connection is not None:
            await connection.close(None)

    async def _one_at_a_time(self, messages: Sequence[_Addressed]) -> list[Answer]:
        answers: list[Answer] = []
        missing: dict[str, Failed] = {}
        for each in messages:
            if each.exchange in missing:
                answers.append(missing[each.exchange])
                continue
            answer = await self._alone(each)
            if isinstance(answer, Exception):
                failed = _closed_channel(answer)
                if isinstance(answer, ChannelNotFoundEntity):
                    missing[each.exchange] = failed
                answers.append(failed)
            else:
                answers.append(answer)
        return answers

    async def _alone(self, message: _Addressed) -> Answer | Exception:
        try:
            channel = await self._channel(message.exchange)
        except (OSError, BrokerRefusedError) as error:
            return _unacknowledged(error)  # the first time it was perhaps sent
        return await _send(channel, message)

    async def _channel(self, exchange: str) -> Channel:
        """Raises OSError if the server cannot be reached."""
        channel = self._channels.get(exchange)
        if channel is not None and not channel.is_closed:
            return channel
        async with self._opening, asyncio.timeout(CONNECT_SECONDS):
            channel = self._channels.get(exchange)
            if channel is None or channel.is_closed:
                channel = self._channels[exchange] = await self._open_channel()
            return channel

    async def _open_channel(self) -> Channel:
        await self._close_spare_channels()
        connection = await self._connected()
        try:
            channel = await connection.channel()
        except (AMQPError, RuntimeError) as error:  # the connection broke in the meantime
            raise ConnectionError(_words(error)) from error
        assert isinstance(channel, Channel)
        return channel

    async def _close_spare_channels(self) -> None:
        self._channels = {exchange: channel for exchange, channel in self._channels.items() if not channel.is_closed}
        # A channel loses the confirmations that are under way when it is closed.
        idle = [exchange for exchange, channel in self._channels.items() if not channel.confirmations]
        for exchange in idle[: max(0, len(self._channels) - MAX_CHANNELS + 1)]:
            await self._channels.pop(exchange).close()

    async def _connected(self) -> Connection:
        if self._connection is None or not self._connection.is_opened:
            self._channels.clear()
            self._connection = await _connect(self._address, self._dial)
        return self._connection


async def _connect(address: BrokerAddress, dial: Dial) -> Connection:
    # Without the query of the target: options of the client could name files of this machine.
    url = address.url.with_query({"heartbeat": str(HEARTBEAT_SECONDS)})
    if address.username is not None:
        url = url.with_user(address.username).with_password(address.password or "")
    transport = GuardedTransport(address, dial)
    connection = Connection(url, transport_factory=transport, client_properties={"connection_name": "detent"})
    try:
        await connection.connect()
    except ProbableAuthenticationError as error:
        raise BrokerRefusedError(f"The broker refused the connection: {_words(error)}") from error
    except AuthenticationError as error:
        raise BrokerRefusedError(f"The broker refused the connection: {error.reason % error.args}") from error
    except InvalidFrameError as error:  # the client does not hand on what the broker says here
        raise BrokerRefusedError(
            f"The broker refused the virtual host {connection.vhost!r}: it does not exist, or the user has no "
            "permission for it. Create it, grant the permission, or change the path of the URL."
        ) from error
    except OSError:
        raise
    except AMQPError as error:
        raise ConnectionError(f"The server does not answer as a broker of AMQP 0-9-1: {_words(error)}") from error
    return connection


class GuardedTransport(TransportFactory):
    """The client connects with the socket of `dial`, and resolves no name itself."""

    def __init__(self, address: BrokerAddress, dial: Dial) -> None:
        self._address = address
        self._dial = dial

    async def create(self, *_: object, **__: object) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        url, tls = self._address.url, self._address.tls
        host = url.host or ""
        connected = await self._dial(host, url.port or default_port(url.scheme))
        try:
            server_hostname = host if tls is not None else None
            return await asyncio.open_connection(sock=connected, ssl=tls, server_hostname=server_hostname)
        except BaseException:
            connected.close()
            raise


async def _send(channel: Channel, addressed: _Addressed) -> Answer | Exception:
    """An exception: the broker closed the channel, perhaps because of another message."""
    message, exchange, routing_key = addressed
    try:
        # Without `wait`, the messages of a batch are written together.
        await channel.basic_publish(
            message.body,
            exchange=exchange,
            routing_key=routing_key,
            properties=_properties(message),
            mandatory=True,
            wait=False,
        )
    except PublishError as error:
        return _unroutable(error.args[0], addressed)
    except DeliveryError:
        return Failed("The broker refused the message (basic.nack): a queue is full, or could not store the message.")
    except (AMQPChannelError, ChannelInvalidStateError) as error:
        return error
    except (AMQPError, OSError) as error:
        return _unacknowledged(error)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return _unacknowledged(error)  # the client's own: the broker did not answer heartbeats
    return Receipt({"exchange": exchange, "routing_key": routing_key})


def _properties(message: TopicMessage) -> Basic.Properties:
    return Basic.Properties(
        content_type=message.content_type,
        headers=dict(message.headers),
        delivery_mode=PERSISTENT,
        message_id=message.deduplication_id,
        app_id="detent",
    )


def _words(error: BaseException) -> str:
    return " ".join(str(each) for each in error.args if each is not None) or type(error).__name__


def _unroutable(words: object, addressed: _Addressed) -> Failed:
    if addressed.exchange:
        place = f"the exchange {addressed.exchange!r} has no queue for the routing key {addressed.routing_key!r}"
    else:
        place = f"there is no queue {addressed.routing_key!r}"
    return Failed(f"The broker returned the message ({words}): {place}. Declare or bind the queue.")


def _unacknowledged(error: BaseException) -> Failed:
    return Failed(f"The connection broke before the broker acknowledged the message: {_words(error)}")


def _closed_channel(error: Exception) -> Failed:
    # Without the permission to write, and for a message that is too large, a retry cannot help.
    permanent = isinstance(error, ChannelAccessRefused | ChannelPreconditionFailed)
    return Failed(f"The broker refused the message: {_words(error)}", retryable=not permanent)
