"""A connection of AMQP 0-9-1 that publishes with confirms. pamqp encodes and decodes frames; nothing here waits between
the frames of a message, so that a channel which the broker closes is never written to afterwards.
"""

from __future__ import annotations

import asyncio
import re
import struct
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import NamedTuple, TypeVar, cast
from urllib.parse import unquote

from pamqp.body import ContentBody
from pamqp.commands import Basic, Channel, Confirm, Connection
from pamqp.common import FieldTable
from pamqp.exceptions import PAMQPException
from pamqp.frame import FrameTypes, marshal, unmarshal
from pamqp.header import ContentHeader, ProtocolHeader
from pamqp.heartbeat import Heartbeat

from detent.domain.run import Failed
from detent.domain.topics import amqp_route
from detent.targets.topics.publisher import Answer, BrokerAddress, BrokerRefusedError, Receipt, TopicMessage

HEARTBEAT_SECONDS = 30
PERSISTENT = 2
MAX_NAME_BYTES = 255
MAX_HEADER_NAME_BYTES = 128
MAX_FRAME_BYTES = 131_072
# The loop serves others after so many messages.
MESSAGES_AT_ONCE = 100

ACCESS_REFUSED, NOT_FOUND, PRECONDITION_FAILED = 403, 404, 406
CONNECTION_FORCED, RESOURCE_ERROR, INTERNAL_ERROR = 320, 506, 541
_PASSING = (CONNECTION_FORCED, RESOURCE_ERROR, INTERNAL_ERROR)
# RabbitMQ gives NOT_ALLOWED for them, as for a virtual host that does not exist.
_PASSING_WORDS = re.compile(r"limit .*is reached|is down")

Reply = TypeVar("Reply", bound=FrameTypes)

_HEAD = struct.Struct(">BHI")
_END_BYTES = 1


class ClosedChannel(NamedTuple):
    """The broker closed the channel while the message was under way, perhaps because of another message."""

    code: int
    text: str


ChannelAnswer = Answer | ClosedChannel


class _Sent(NamedTuple):
    message_id: str
    receipt: Receipt
    answer: asyncio.Future[ChannelAnswer]


class AmqpConnection(asyncio.Protocol):
    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.lost = False
        self.blocked: str | None = None
        """Why the broker accepts no messages now."""
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._channels: dict[int, AmqpChannel] = {}
        self._replies: dict[int, asyncio.Future[FrameTypes]] = {}
        self._frame_max = MAX_FRAME_BYTES
        self._heard_at = self._loop.time()
        self._heartbeat: asyncio.TimerHandle | None = None
        self._reason: str | None = None

    # --- for the publisher ---

    async def open(self, address: BrokerAddress) -> None:
        """Raises OSError if the broker is not available, BrokerRefusedError if it refuses the user."""
        start = await self._ask(ProtocolHeader(), Connection.Start)
        if "PLAIN" not in start.mechanisms.split():
            raise BrokerRefusedError(f"{self.peer} offers {start.mechanisms}, and detent authenticates with PLAIN.")
        tune = await self._ask(_start_ok(address), Connection.Tune)
        self._frame_max = min(tune.frame_max or MAX_FRAME_BYTES, MAX_FRAME_BYTES)
        self.write(
            marshal(Connection.TuneOk(tune.channel_max, self._frame_max, min(tune.heartbeat, HEARTBEAT_SECONDS)), 0)
        )
        if tune.heartbeat:
            self._plan_heartbeat(min(tune.heartbeat, HEARTBEAT_SECONDS))
        vhost = unquote(address.url.raw_path[1:]) or "/"
        await self._ask(Connection.Open(virtual_host=vhost), Connection.OpenOk)

    async def open_channel(self) -> AmqpChannel:
        number = next(number for number in range(1, 65_536) if number not in self._channels)
        channel = self._channels[number] = AmqpChannel(self, number, self._frame_max)
        await self._ask(Channel.Open(), Channel.OpenOk, number)
        await self._ask(Confirm.Select(), Confirm.SelectOk, number)
        return channel

    async def close_channel(self, channel: AmqpChannel) -> None:
        if channel.closed is None and not self.lost:
            closing = Channel.Close(reply_code=200, reply_text="", class_id=0, method_id=0)
            await self._ask(closing, Channel.CloseOk, channel.number)
        self._channels.pop(channel.number, None)

    def close(self) -> None:
        if self._transport is not None and not self.lost:
            closing = Connection.Close(reply_code=200, reply_text="", class_id=0, method_id=0)
            self.write(marshal(closing, 0))
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    async def _ask(self, frame: FrameTypes, reply: type[Reply], channel: int = 0) -> Reply:
        if self.lost:
            raise ConnectionError(self._reason or "the broker closed the connection")
        answer = self._replies[channel] = self._loop.create_future()
        try:
            self.write(marshal(frame, channel))
            found = await answer
        finally:
            del self._replies[channel]
        if not isinstance(found, reply):
            raise ConnectionError(f"the broker answered with {found.name} where {reply.__name__} was expected")
        return found

    # --- of asyncio ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # those of uvloop have other base classes

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._loop.time()
        self._buffer += data
        try:
            for channel, frame in _frames(self._buffer):
                self._handle(channel, frame)
        except (PAMQPException, ValueError, struct.error) as error:
            self._reason = f"the server does not answer as a broker of AMQP 0-9-1 ({error})"
            self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        reason = self._reason or (str(error) if error is not None else "the broker closed the connection")
        for waiting in self._replies.values():
            if not waiting.done():
                waiting.set_exception(ConnectionError(reason))
        for channel in self._channels.values():
            channel.lose(Failed(f"The connection to {self.peer} broke before the message was acknowledged: {reason}"))
        self._channels.clear()

    def _handle(self, number: int, frame: FrameTypes) -> None:
        channel = self._channels.get(number)
        match frame:
            case Basic.Ack() | Basic.Nack() | Basic.Return() | ContentHeader() | ContentBody():
                if channel is not None:
                    channel.handle(frame)
            case Channel.Close():
                self.write(marshal(Channel.CloseOk(), number))
                self._close_channel(number, ClosedChannel(frame.reply_code or 0, frame.reply_text))
            case Connection.Close():
                self._refuse(frame)
            case Connection.Blocked():
                self.blocked = frame.reason
            case Connection.Unblocked():
                self.blocked = None
            case Heartbeat():
                pass
            case _:
                waiting = self._replies.get(number)
                if waiting is not None and not waiting.done():
                    waiting.set_result(frame)

    def _close_channel(self, number: int, closed: ClosedChannel) -> None:
        channel = self._channels.pop(number, None)
        if channel is not None:
            channel.closed = closed
            channel.lose(closed)
        waiting = self._replies.get(number)
        if waiting is not None and not waiting.done():
            waiting.set_exception(ConnectionError(closed.text))

    def _refuse(self, frame: Connection.Close) -> None:
        """While the connection is being opened: of the user or of the virtual host, or because the broker stops or has
        as many connections as it takes. Later, of anything."""
        self._reason = frame.reply_text
        waiting = self._replies.get(0)
        if waiting is not None and not waiting.done():
            words = f"{self.peer} refused the connection: {frame.reply_text}"
            passing = frame.reply_code in _PASSING or _PASSING_WORDS.search(frame.reply_text) is not None
            waiting.set_exception(ConnectionError(words) if passing else BrokerRefusedError(words))
        self.write(marshal(Connection.CloseOk(), 0))
        if self._transport is not None:
            self._transport.close()

    def _plan_heartbeat(self, seconds: int) -> None:
        self._heartbeat = self._loop.call_later(seconds / 2, self._beat, seconds)

    def _beat(self, seconds: int) -> None:
        if self._loop.time() - self._heard_at > 2 * seconds:
            self._reason = f"the broker did not answer for {2 * seconds} s"
            self.abort()
        else:
            self.write(Heartbeat.value)
            self._plan_heartbeat(seconds)


class AmqpChannel:
    def __init__(self, connection: AmqpConnection, number: int, frame_max: int) -> None:
        self.number = number
        self.closed: ClosedChannel | None = None
        self._connection = connection
        self._frame_max = frame_max
        self._tag = 0
        self._under_way: dict[int, _Sent] = {}
        self._returned: dict[str, str] = {}
        self._returning: str | None = None

    @property
    def is_idle(self) -> bool:
        return not self._under_way

    @property
    def is_open(self) -> bool:
        return self.closed is None and not self._connection.lost

    async def publish(self, messages: Sequence[TopicMessage]) -> list[ChannelAnswer]:
        answers: list[asyncio.Future[ChannelAnswer]] = []
        for first in range(0, len(messages), MESSAGES_AT_ONCE):
            if first:
                await asyncio.sleep(0)
            answers += self._send(messages[first : first + MESSAGES_AT_ONCE])
        return [await answer for answer in answers]

    def _send(self, messages: Sequence[TopicMessage]) -> Iterator[asyncio.Future[ChannelAnswer]]:
        data: list[bytes] = []
        futures: list[asyncio.Future[ChannelAnswer]] = []
        for message in messages:
            answer: asyncio.Future[ChannelAnswer] = asyncio.get_running_loop().create_future()
            futures.append(answer)
            if not self.is_open:
                answer.set_result(
                    self.closed
                    or Failed(f"The connection to {self._connection.peer} broke before the message was sent.")
                )
                continue
            exchange, routing_key = amqp_route(message.topic)
            message_id = _message_id(message.deduplication_id)
            encoded = self._encoded(message, exchange, routing_key, message_id)
            if isinstance(encoded, Failed):
                answer.set_result(encoded)
                continue
            self._tag += 1
            receipt = Receipt({"exchange": exchange, "routing_key": routing_key})
            self._under_way[self._tag] = _Sent(message_id, receipt, answer)
            data += encoded
        if data:
            self._connection.write(b"".join(data))
        return iter(futures)

    def _encoded(
        self, message: TopicMessage, exchange: str, routing_key: str, message_id: str
    ) -> Sequence[bytes] | Failed:
        long = [name for name in message.headers if len(name.encode()) > MAX_HEADER_NAME_BYTES]
        if long:
            return _inexpressible(f"The name of the header {long[0]} has more than {MAX_HEADER_NAME_BYTES} bytes.")
        properties = Basic.Properties(
            content_type=message.content_type,
            headers=dict(message.headers),
            delivery_mode=PERSISTENT,
            message_id=message_id,
            app_id="detent",
        )
        try:
            publish = marshal(Basic.Publish(exchange=exchange, routing_key=routing_key, mandatory=True), self.number)
            header = marshal(ContentHeader(body_size=len(message.body), properties=properties), self.number)
        except (ValueError, TypeError, struct.error) as error:
            return _inexpressible(f"AMQP cannot express the message: {error}.")
        if len(header) > self._frame_max:
            return _inexpressible(f"The headers have {len(header)} bytes; the broker takes at most {self._frame_max}.")
        room = self._frame_max - _HEAD.size - _END_BYTES
        bodies = (message.body[first : first + room] for first in range(0, len(message.body), room))
        return (publish, header, *(marshal(ContentBody(part), self.number) for part in bodies))

    def handle(self, frame: FrameTypes) -> None:
        """A returned message comes before its confirmation."""
        match frame:
            case Basic.Return():
                self._returning = frame.reply_text
            case ContentHeader():
                if self._returning is not None:
                    self._returned[frame.properties.message_id or ""] = self._returning
                    self._returning = None
            case Basic.Ack() | Basic.Nack():
                self._confirm(frame.delivery_tag or 0, bool(frame.multiple), isinstance(frame, Basic.Ack))

    def _confirm(self, tag: int, multiple: bool, taken: bool) -> None:
        tags = [each for each in self._under_way if each <= tag] if multiple else [tag]
        for each in tags:
            sent = self._under_way.pop(each, None)
            if sent is None:
                continue
            words = self._returned.pop(sent.message_id, None)
            if not sent.answer.done():
                sent.answer.set_result(_answer(self._connection.peer, sent, words, taken))

    def lose(self, answer: ChannelAnswer) -> None:
        for sent in self._under_way.values():
            if not sent.answer.done():
                sent.answer.set_result(answer)
        self._under_way.clear()


def _answer(peer: str, sent: _Sent, returned: str | None, taken: bool) -> Answer:
    if returned is not None:
        return _unroutable(peer, returned, str(sent.receipt.facts["exchange"]), str(sent.receipt.facts["routing_key"]))
    if not taken:
        return Failed(f"{peer} refused the message (basic.nack): a queue is full, or could not store the message.")
    return sent.receipt


def _unroutable(peer: str, words: str, exchange: str, routing_key: str) -> Failed:
    if exchange:
        place = f"the exchange {exchange!r} has no queue for the routing key {routing_key!r}"
    else:
        place = f"there is no queue {routing_key!r}"
    return Failed(f"{peer} returned the message ({words}): {place}. Declare or bind the queue.")


def _inexpressible(sentence: str) -> Failed:
    return Failed(sentence, retryable=False)


def _message_id(key: str) -> str:
    """A key that is too long for a name of AMQP is hashed; the header Idempotency-Key has all of it."""
    data = key.encode()
    return key if len(data) <= MAX_NAME_BYTES else sha256(data).hexdigest()


def _start_ok(address: BrokerAddress) -> Connection.StartOk:
    username, password = address.username, address.password
    if username is None:  # as all clients do: a user that may connect from the broker's own machine only
        username, password = "guest", "guest"
    capabilities: FieldTable = {
        "authentication_failure_close": True,
        "connection.blocked": True,
        "publisher_confirms": True,
    }
    properties: FieldTable = {"product": "detent", "connection_name": "detent", "capabilities": capabilities}
    return Connection.StartOk(
        client_properties=properties, mechanism="PLAIN", response=f"\0{username}\0{password or ''}", locale="en_US"
    )


def _frames(buffer: bytearray) -> Iterator[tuple[int, FrameTypes]]:
    """The complete frames of the buffer, which are removed from it."""
    start = 0
    try:
        while len(buffer) - start >= _HEAD.size:
            if buffer[start : start + 4] == b"AMQP":
                raise ValueError("it requires another version of AMQP")
            size = _HEAD.unpack_from(buffer, start)[2]
            if size > MAX_FRAME_BYTES:
                raise ValueError("a frame is too large")
            end = start + _HEAD.size + size + _END_BYTES
            if end > len(buffer):
                return
            _, channel, frame = unmarshal(bytes(buffer[start:end]))
            start = end
            yield channel, frame
    finally:
        del buffer[:start]
