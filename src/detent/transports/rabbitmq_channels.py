"""The two channels of the transport RabbitMQ: one publishes offers with confirms, one consumes them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from pamqp.body import ContentBody
from pamqp.commands import Basic, Queue
from pamqp.common import FieldTable
from pamqp.frame import FrameTypes, marshal
from pamqp.header import ContentHeader

from detent.runtime.amqp_connection import AmqpChannel, AmqpConnection

PERSISTENT = 2
# A run that still waits is offered again every 30 s: without an end, a queue that no worker serves would only grow.
KEPT_MILLISECONDS = "120000"
# The loop serves others after so many offers.
AT_ONCE = 200

_ARGUMENTS: FieldTable = {"x-queue-type": "quorum"}


class QueueMessage(NamedTuple):
    queue: str
    body: bytes


class DeclaringChannel(AmqpChannel):
    def __init__(self, connection: AmqpConnection, number: int, frame_max: int) -> None:
        super().__init__(connection, number, frame_max)
        self.declared: set[str] = set()
        self._asking = asyncio.Lock()

    async def declare(self, names: Iterable[str]) -> dict[str, int]:
        """Creates the queues that do not exist, and answers how many offers wait in each."""
        found: dict[str, int] = {}
        async with self._asking:
            for name in names:
                declare = Queue.Declare(queue=name, durable=True, arguments=_ARGUMENTS)
                found[name] = (await self.ask(declare, Queue.DeclareOk)).message_count or 0
                self.declared.add(name)
        return found

    async def set_prefetch(self, count: int) -> None:
        """Of the consumers that are added from now on."""
        async with self._asking:
            await self.ask(Basic.Qos(prefetch_count=count), Basic.QosOk)


class _Unconfirmed:
    """The messages of one `publish` that wait for their confirmation."""

    def __init__(self, missing: int) -> None:
        self.missing = missing
        self.returned: set[str] = set()
        self.refused: set[int] = set()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class OfferPublishing(DeclaringChannel):
    def __init__(self, connection: AmqpConnection, number: int, frame_max: int) -> None:
        super().__init__(connection, number, frame_max)
        self._tag = 0
        self._under_way: dict[int, tuple[_Unconfirmed, int]] = {}

    async def publish(self, messages: Sequence[QueueMessage]) -> list[QueueMessage]:
        """Returns when the broker has them on disk. Answers those that it has not taken: their queue does not exist, or
        has no leader yet. Raises ConnectionError."""
        batch = _Unconfirmed(len(messages))
        for first in range(0, len(messages), AT_ONCE):
            if first:
                await asyncio.sleep(0)
            self._write(batch, messages, range(first, min(first + AT_ONCE, len(messages))))
        await batch.done
        self.declared -= batch.returned
        return [
            message
            for number, message in enumerate(messages)
            if number in batch.refused or message.queue in batch.returned
        ]

    def _write(self, batch: _Unconfirmed, messages: Sequence[QueueMessage], numbers: range) -> None:
        if not self.is_open:
            raise ConnectionError(self.closed.text if self.closed else "the connection broke")
        data: list[bytes] = []
        for number in numbers:
            queue, body = messages[number]
            self._tag += 1
            self._under_way[self._tag] = batch, number
            data += (_publish(queue, self.number), _header(len(body), self.number))
            data.append(marshal(ContentBody(body), self.number))
        self.connection.write(b"".join(data))

    def handle(self, frame: FrameTypes) -> None:
        """A returned message comes before its confirmation, and does not say to which `publish` it belongs."""
        match frame:
            case Basic.Return():
                for batch in {batch for batch, _ in self._under_way.values()}:
                    batch.returned.add(frame.routing_key or "")
            case Basic.Ack() | Basic.Nack():
                self._confirm(frame.delivery_tag or 0, bool(frame.multiple), isinstance(frame, Basic.Ack))

    def _confirm(self, tag: int, multiple: bool, taken: bool) -> None:
        tags = [each for each in self._under_way if each <= tag] if multiple else [tag]
        for each in tags:
            if each not in self._under_way:
                continue
            batch, number = self._under_way.pop(each)
            batch.missing -= 1
            if not taken:
                batch.refused.add(number)
            if not batch.missing and not batch.done.done():
                batch.done.set_result(None)

    def lose(self, reason: str) -> None:
        batches, self._under_way = {batch for batch, _ in self._under_way.values()}, {}
        for batch in batches:
            if not batch.done.done():
                batch.done.set_exception(ConnectionError(reason))


@lru_cache(maxsize=1024)
def _publish(name: str, channel: int) -> bytes:
    """By the default exchange, which routes to the queue of this name; mandatory: it comes back if there is none."""
    return marshal(Basic.Publish(exchange="", routing_key=name, mandatory=True), channel)


@lru_cache(maxsize=1024)
def _header(size: int, channel: int) -> bytes:
    properties = Basic.Properties(
        content_type="application/json", delivery_mode=PERSISTENT, expiration=KEPT_MILLISECONDS, app_id="detent"
    )
    return marshal(ContentHeader(body_size=size, properties=properties), channel)


class RabbitDelivery(NamedTuple):
    name: str
    """Of the queue."""
    consumer: str
    tag: int
    body: bytes


class _Incoming(NamedTuple):
    consumer: str
    tag: int
    name: str


class OfferConsuming(DeclaringChannel):
    """Deliveries are handed over once for all that arrived together."""

    def __init__(self, connection: AmqpConnection, number: int, frame_max: int) -> None:
        super().__init__(connection, number, frame_max)
        self.on_deliveries: Callable[[OfferConsuming, list[RabbitDelivery]], None] | None = None
        self.on_end: Callable[[OfferConsuming, str | None], None] | None = None
        """Of a consumer, whose queue was deleted, or None: of the channel."""
        self._incoming: _Incoming | None = None
        self._missing = 0
        self._parts: list[bytes] = []
        self._deliveries: list[RabbitDelivery] = []

    def consume(self, name: str, consumer: str) -> None:
        """Without waiting for an answer: if the queue does not exist, the broker closes the channel."""
        self.connection.write(marshal(Basic.Consume(queue=name, consumer_tag=consumer, nowait=True), self.number))

    def cancel(self, consumer: str) -> None:
        """Deliveries that are on their way still arrive."""
        self.connection.write(marshal(Basic.Cancel(consumer_tag=consumer, nowait=True), self.number))

    def acknowledge(self, tags: Iterable[int]) -> None:
        self.connection.write(b"".join(marshal(Basic.Ack(tag), self.number) for tag in tags))

    def requeue(self, tags: Iterable[int]) -> None:
        self.connection.write(b"".join(marshal(Basic.Nack(tag, False, True), self.number) for tag in tags))

    def handle(self, frame: FrameTypes) -> None:
        match frame:
            case Basic.Deliver():
                self._incoming = _Incoming(frame.consumer_tag or "", frame.delivery_tag or 0, frame.routing_key or "")
            case ContentHeader():
                self._missing = frame.body_size
                if not self._missing:
                    self._complete()
            case ContentBody():
                self._parts.append(frame.value or b"")
                self._missing -= len(self._parts[-1])
                if self._missing <= 0:
                    self._complete()
            case Basic.Cancel():
                if self.on_end is not None:
                    self.on_end(self, frame.consumer_tag or "")

    def _complete(self) -> None:
        incoming, self._incoming = self._incoming, None
        body, self._parts = b"".join(self._parts), []
        if incoming is None:
            return
        if not self._deliveries:
            asyncio.get_running_loop().call_soon(self._hand_over)
        self._deliveries.append(RabbitDelivery(incoming.name, incoming.consumer, incoming.tag, body))

    def _hand_over(self) -> None:
        deliveries, self._deliveries = self._deliveries, []
        if self.on_deliveries is not None:
            self.on_deliveries(self, deliveries)

    def lose(self, reason: str) -> None:
        self._deliveries = []
        if self.on_end is not None:
            self.on_end(self, None)
