"""The channels on which topics of RabbitMQ are published, with confirms. Nothing here waits between the frames of a
message, so that a channel which the broker closes is never written to afterwards.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import NamedTuple

from pamqp.body import ContentBody
from pamqp.commands import Basic
from pamqp.frame import FrameTypes, marshal
from pamqp.header import ContentHeader

from detent.domain.run import Failed
from detent.domain.topics import amqp_route
from detent.runtime.amqp_connection import END_BYTES, HEAD, AmqpChannel, AmqpConnection, ClosedChannel
from detent.targets.breaker import Unanswered
from detent.targets.topics.publisher import Answer, Receipt, TopicMessage

HEARTBEAT_SECONDS = 30
PERSISTENT = 2
MAX_NAME_BYTES = 255
MAX_HEADER_NAME_BYTES = 128
# The loop serves others after so many messages.
MESSAGES_AT_ONCE = 100

ChannelAnswer = Answer | ClosedChannel
"""`ClosedChannel`: the broker closed the channel while the message was under way, perhaps because of another one."""


class _Sent(NamedTuple):
    message_id: str
    receipt: Receipt
    answer: asyncio.Future[ChannelAnswer]


class PublishingChannel(AmqpChannel):
    def __init__(self, connection: AmqpConnection, number: int, frame_max: int) -> None:
        super().__init__(connection, number, frame_max)
        self._tag = 0
        self._under_way: dict[int, _Sent] = {}
        self._returned: dict[str, str] = {}
        self._returning: str | None = None

    @property
    def is_idle(self) -> bool:
        return not self._under_way

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
                broken = Failed(f"The connection to {self.connection.peer} broke before the message was sent.")
                answer.set_result(self.closed or Unanswered(broken, sent=False))
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
            self.connection.write(b"".join(data))
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
        if len(header) > self.frame_max:
            return _inexpressible(f"The headers have {len(header)} bytes; the broker takes at most {self.frame_max}.")
        room = self.frame_max - HEAD.size - END_BYTES
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
                sent.answer.set_result(_answer(self.connection.peer, sent, words, taken))

    def lose(self, reason: str) -> None:
        broken = f"The connection to {self.connection.peer} broke before the message was acknowledged: {reason}"
        answer: ChannelAnswer = self.closed or Unanswered(Failed(broken), sent=True)
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
