"""RabbitMQ by AMQP 0-9-1, with publisher confirms: a run succeeds when the broker has taken charge of the message.

Every message is persistent and mandatory: one that no queue gets comes back, and its attempt fails. The broker reports
other faults by closing the channel, with all messages under way on it. So each exchange has a channel of its own, and
messages that were under way on a closed channel are sent once more, one at a time, to find the one at fault. A message
that the broker already had is then doubled; consumers recognise it by its message id.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from detent.domain.run import Failed
from detent.domain.topics import amqp_route
from detent.targets.topics.publisher import Answer, BrokerAddress, Dial, Publisher, Receipt, TopicMessage

if TYPE_CHECKING:
    from aiormq.abc import AbstractChannel
    from aiormq.connection import Connection, TransportFactory
    from pamqp.commands import Basic

PORTS = {"amqp": 5672, "amqps": 5671}
CONNECT_SECONDS = 15.0
HEARTBEAT_SECONDS = 30
MAX_CHANNELS = 100
PERSISTENT = 2

_CHANNEL_IS_CLOSED = object()


def open_publisher(address: BrokerAddress, dial: Dial) -> Publisher:
    import aiormq  # noqa: F401, PLC0415 - a missing client is reported here, not by the first message

    return AmqpPublisher(address, dial)


class _ConnectionRefusedByBroker(Exception):
    """The broker answered, and does not let this user in."""


class _Addressed(NamedTuple):
    message: TopicMessage
    exchange: str
    routing_key: str


class AmqpPublisher:
    def __init__(self, address: BrokerAddress, dial: Dial) -> None:
        self._address = address
        self._dial = dial
        self._connection: Connection | None = None
        self._channels: dict[str, AbstractChannel] = {}
        self._opening = asyncio.Lock()

    async def publish(self, messages: Sequence[TopicMessage]) -> Sequence[Answer]:
        addressed = [_Addressed(message, *amqp_route(message.topic)) for message in messages]
        try:
            channels = {each.exchange: await self._channel(each.exchange) for each in addressed}
        except _ConnectionRefusedByBroker as refused:
            return [Failed(str(refused), retryable=False)] * len(messages)
        answers = await asyncio.gather(*(_send(channels[each.exchange], each) for each in addressed))
        again = [number for number, answer in enumerate(answers) if answer is _CHANNEL_IS_CLOSED]
        alone = await self._one_at_a_time([addressed[number] for number in again]) if again else ()
        replaced = dict(zip(again, alone, strict=True))
        return [replaced.get(number) or _known(answer) for number, answer in enumerate(answers)]

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        self._channels.clear()
        if connection is not None:
            await connection.close(None)

    async def _one_at_a_time(self, messages: Sequence[_Addressed]) -> list[Answer]:
        answers: list[Answer] = []
        no_exchange: dict[str, Failed] = {}
        for each in messages:
            answer: Answer
            if each.exchange in no_exchange:
                answer = no_exchange[each.exchange]
            else:
                answer, closed_with = await self._send_alone(each)
                if closed_with == "ChannelNotFoundEntity" and isinstance(answer, Failed):
                    no_exchange[each.exchange] = answer
            answers.append(answer)
        return answers

    async def _send_alone(self, message: _Addressed) -> tuple[Answer, str | None]:
        """Its answer, and the name of the error that closed the channel, if one did."""
        from aiormq.exceptions import AMQPChannelError  # noqa: PLC0415

        try:
            channel = await self._channel(message.exchange)
        except (OSError, _ConnectionRefusedByBroker) as error:
            return _unacknowledged(error), None
        try:
            return _known(await _send(channel, message, raise_closed=True)), None
        except AMQPChannelError as error:
            return _closed_channel(error), type(error).__name__

    async def _channel(self, exchange: str) -> AbstractChannel:
        """Raises OSError if the server cannot be reached."""
        channel = self._channels.get(exchange)
        if channel is not None and not channel.is_closed:
            return channel
        async with self._opening, asyncio.timeout(CONNECT_SECONDS):
            channel = self._channels.get(exchange)
            if channel is None or channel.is_closed:
                connection = await self._connected()
                try:
                    channel = await connection.channel()
                except RuntimeError as error:  # the connection broke in the meantime
                    raise ConnectionError(str(error)) from error
                await self._make_room()
                self._channels[exchange] = channel
            return channel

    async def _make_room(self) -> None:
        for exchange in [exchange for exchange, channel in self._channels.items() if channel.is_closed]:
            del self._channels[exchange]
        # Only where nothing is under way: closing a channel loses its confirmations.
        idle = deque(exchange for exchange, channel in self._channels.items() if not channel.confirmations)
        while len(self._channels) >= MAX_CHANNELS and idle:
            await self._channels.pop(idle.popleft()).close()

    async def _connected(self) -> Connection:
        if self._connection is not None and self._connection.is_opened:
            return self._connection
        self._channels.clear()
        self._connection = None
        self._connection = await _connect(self._address, self._dial)
        return self._connection


async def _connect(address: BrokerAddress, dial: Dial) -> Connection:
    from aiormq.connection import Connection  # noqa: PLC0415
    from aiormq.exceptions import (  # noqa: PLC0415
        AMQPError,
        AuthenticationError,
        InvalidFrameError,
        ProbableAuthenticationError,
    )

    # Options of the client in the query could name files of this machine.
    url = address.url.with_query({"heartbeat": str(HEARTBEAT_SECONDS)})
    if address.username is not None:
        url = url.with_user(address.username).with_password(address.password or "")
    connection = Connection(
        url, transport_factory=_guarded_transport()(address, dial), client_properties={"connection_name": "detent"}
    )
    try:
        await connection.connect()
    except ProbableAuthenticationError as error:
        raise _ConnectionRefusedByBroker(f"The broker refused the connection: {error.args[0]}") from error
    except AuthenticationError as error:
        raise _ConnectionRefusedByBroker(f"The broker refused the connection: {error.reason % error.args}") from error
    except InvalidFrameError as error:  # the client does not hand on what the broker says here
        raise _ConnectionRefusedByBroker(
            f"The broker refused the virtual host {connection.vhost!r}: it does not exist, or the user has no "
            "permission for it. Create it, grant the permission, or change the path of the URL."
        ) from error
    except OSError:
        raise
    except AMQPError as error:
        raise ConnectionError(f"The server does not answer as a broker of AMQP 0-9-1: {error!r}") from error
    return connection


@cache
def _guarded_transport() -> Callable[[BrokerAddress, Dial], TransportFactory]:
    from aiormq.connection import TransportFactory  # noqa: PLC0415

    class GuardedTransport(TransportFactory):
        """Uses the socket of `dial`; the client resolves no name itself."""

        def __init__(self, address: BrokerAddress, dial: Dial) -> None:
            self._address = address
            self._dial = dial

        async def create(self, *_: object, **__: object) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            url, tls = self._address.url, self._address.tls
            host = url.host or ""
            connected = await self._dial(host, url.port or PORTS[url.scheme])
            try:
                server_hostname = host if tls is not None else None
                return await asyncio.open_connection(sock=connected, ssl=tls, server_hostname=server_hostname)
            except BaseException:
                connected.close()
                raise

    return GuardedTransport


async def _send(channel: AbstractChannel, addressed: _Addressed, raise_closed: bool = False) -> object:
    """An answer, or _CHANNEL_IS_CLOSED: the broker closed the channel, perhaps because of another message."""
    from aiormq.exceptions import (  # noqa: PLC0415
        AMQPChannelError,
        AMQPError,
        ChannelInvalidStateError,
        DeliveryError,
        PublishError,
    )

    message, exchange, routing_key = addressed
    try:
        # Without `wait` the messages of a batch are written together.
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
        return Failed("The broker refused the message (basic.nack): a queue is full or it could not store the message.")
    except (AMQPChannelError, ChannelInvalidStateError) as error:
        if raise_closed and isinstance(error, AMQPChannelError):
            raise
        return _CHANNEL_IS_CLOSED
    except (AMQPError, OSError) as error:
        return _unacknowledged(error)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return _unacknowledged(error)  # of the client: the server did not answer heartbeats
    return Receipt({"exchange": exchange, "routing_key": routing_key})


def _properties(message: TopicMessage) -> Basic.Properties:
    from pamqp.commands import Basic  # noqa: PLC0415

    headers: Mapping[str, str] = message.headers
    return Basic.Properties(
        content_type=message.content_type,
        headers=dict(headers),
        delivery_mode=PERSISTENT,
        message_id=message.deduplication_id,
        app_id="detent",
    )


def _known(answer: object) -> Answer:
    if isinstance(answer, Receipt | Failed):
        return answer
    return _unacknowledged(ConnectionError("the channel is closed"))


def _unroutable(words: object, addressed: _Addressed) -> Failed:
    if addressed.exchange:
        place = f"the exchange {addressed.exchange!r} has no queue for the routing key {addressed.routing_key!r}"
    else:
        place = f"there is no queue {addressed.routing_key!r}"
    return Failed(f"The broker returned the message ({words}): {place}. Declare or bind the queue.")


def _unacknowledged(error: BaseException) -> Failed:
    words = " ".join(str(each) for each in error.args if each is not None) or type(error).__name__
    return Failed(f"The connection broke before the broker acknowledged the message: {words}")


def _closed_channel(error: Exception) -> Failed:
    from aiormq.exceptions import ChannelAccessRefused, ChannelPreconditionFailed  # noqa: PLC0415

    words = " ".join(str(each) for each in error.args if each is not None) or type(error).__name__
    # Without the permission to write, and with a message that is too large, a retry cannot help.
    permanent = isinstance(error, ChannelAccessRefused | ChannelPreconditionFailed)
    return Failed(f"The broker refused the message: {words}", retryable=not permanent)
