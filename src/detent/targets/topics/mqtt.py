"""MQTT 5 with QoS 1: a run succeeds when the broker has sent PUBACK for its message.

The facts of the run are user properties, which only MQTT 5 has, and the idempotency key is the correlation data. A
broker limits how many messages may be under way; the others wait in this process and are certainly not sent.
"""

from __future__ import annotations

import asyncio
import secrets
import struct
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, cast

from detent.domain.run import Failed, NotBegun
from detent.domain.topics import default_port
from detent.targets.breaker import Unanswered
from detent.targets.topics import mqtt_packets as packets
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
KEEP_ALIVE_SECONDS = 30
MAX_UNDER_WAY = 1000
LARGEST_IDENTIFIER = 65_535

# The words of the specification, for brokers that give no reason of their own.
_REASONS = {
    0x10: "No matching subscribers", 0x80: "Unspecified error", 0x81: "Malformed packet", 0x82: "Protocol error",
    0x83: "Implementation specific error", 0x84: "Unsupported protocol version", 0x85: "Client identifier not valid",
    0x86: "Bad user name or password", 0x87: "Not authorized", 0x88: "Server unavailable", 0x89: "Server busy",
    0x8A: "Banned", 0x8B: "Server shutting down", 0x8C: "Bad authentication method", 0x8D: "Keep alive timeout",
    0x8E: "Session taken over", 0x90: "Topic name invalid", 0x91: "Packet identifier in use",
    0x93: "Receive maximum exceeded", 0x95: "Packet too large", 0x96: "Message rate too high", 0x97: "Quota exceeded",
    0x98: "Administrative action", 0x99: "Payload format invalid", 0x9B: "QoS not supported",
    0x9C: "Use another server", 0x9D: "Server moved", 0x9F: "Connection rate exceeded", 0xA0: "Maximum connect time",
}  # fmt: skip
_MAY_PASS = frozenset({0x80, 0x83, 0x88, 0x89, 0x8B, 0x91, 0x93, 0x96, 0x97, 0x9F, 0xA0})
_FAILURE = 0x80
_OLD_PROTOCOL_REFUSED = 0x01


def open_publisher(address: BrokerAddress, dial: Dial) -> Publisher:
    return MqttPublisher(address, dial)


class _Outgoing(NamedTuple):
    topic: str
    head: bytes
    tail: bytes
    answer: asyncio.Future[Answer]


class MqttPublisher:
    def __init__(self, address: BrokerAddress, dial: Dial) -> None:
        self._address = address
        self._dial = dial
        self._connection: _MqttConnection | None = None
        self._connecting = asyncio.Lock()

    async def publish(self, messages: Sequence[TopicMessage]) -> Sequence[Answer]:
        connection = self._connection
        if connection is None or connection.lost:
            connection = await self._connected()
        return await connection.publish(messages)

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    async def _connected(self) -> _MqttConnection:
        async with self._connecting:
            if self._connection is None or self._connection.lost:
                async with asyncio.timeout(CONNECT_SECONDS):
                    self._connection = await _connect(self._address, self._dial)
            return self._connection


async def _connect(address: BrokerAddress, dial: Dial) -> _MqttConnection:
    url, tls = address.url, address.tls
    host, port = url.host or "", url.port or default_port(url.scheme)
    peer = f"{url.host_subcomponent}:{port}"
    connected = await dial(host, port)
    try:
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: _MqttConnection(peer), sock=connected, ssl=tls, server_hostname=host if tls is not None else None
        )
    except BaseException:
        connected.close()
        raise
    try:
        await connection.open(address)
    except BaseException:
        connection.abort()
        raise
    return connection


class _MqttConnection(asyncio.Protocol):
    def __init__(self, peer: str) -> None:
        self.lost = False
        self._peer = peer
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._opened: asyncio.Future[packets.BrokerReply] = self._loop.create_future()
        self._under_way: dict[int, _Outgoing] = {}
        self._waiting: deque[_Outgoing] = deque()
        self._identifier = 0
        self._window = MAX_UNDER_WAY
        self._max_packet_bytes: int | None = None
        self._keep_alive = KEEP_ALIVE_SECONDS
        self._silent_pings = 0
        self._ping: asyncio.TimerHandle | None = None
        self._reason: str | None = None
        self._complained = False
        """The broker closes the connection for what it was sent, not because it ends."""

    async def open(self, address: BrokerAddress) -> None:
        """Raises OSError if the broker is not available, BrokerRefusedError if it refuses."""
        client = f"detent-{secrets.token_hex(6)}"
        self._write(packets.connect(client, self._keep_alive, address.username, address.password))
        reason, properties = await self._opened
        if reason == _OLD_PROTOCOL_REFUSED:
            raise BrokerRefusedError(f"{self._peer} does not accept MQTT 5, which has headers: update the broker.")
        if reason:
            words = f"{self._peer} refused the connection: {_words(reason, properties)}"
            raise ConnectionError(words) if reason in _MAY_PASS else BrokerRefusedError(words)
        if properties.get(packets.MAXIMUM_QOS) == 0:
            raise BrokerRefusedError(f"{self._peer} offers QoS 0 only, so that no message is acknowledged.")
        self._window = max(1, min(MAX_UNDER_WAY, _number(properties, packets.RECEIVE_MAXIMUM, MAX_UNDER_WAY)))
        self._max_packet_bytes = _number(properties, packets.MAXIMUM_PACKET_SIZE, 0) or None
        self._keep_alive = _number(properties, packets.SERVER_KEEP_ALIVE, self._keep_alive)
        self._plan_ping()

    async def publish(self, messages: Sequence[TopicMessage]) -> list[Answer]:
        """Raises OSError if nothing was sent: the broker has closed the connection that it had just accepted."""
        if self.lost:
            raise ConnectionError(self._reason or "the broker closed the connection")
        answers = [self._enqueue(message) for message in messages]
        self._send_waiting()
        try:
            return [await answer for answer in answers]
        except asyncio.CancelledError:
            for answer in answers:
                answer.cancel()
            raise

    def close(self) -> None:
        if self._transport is not None and not self.lost:
            self._write(packets.DISCONNECT_PACKET)
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _enqueue(self, message: TopicMessage) -> asyncio.Future[Answer]:
        answer: asyncio.Future[Answer] = self._loop.create_future()
        try:
            head, tail = packets.publish_parts(
                message.topic, message.body, message.content_type, message.deduplication_id, message.headers
            )
        except struct.error:
            sentence = (
                f"A header or the topic has more than {packets.MAX_STRING_BYTES} bytes, which MQTT cannot express."
            )
            answer.set_result(Failed(sentence, retryable=False))
            return answer
        size = len(head) + 2 + len(tail)
        if self._max_packet_bytes is not None and size > self._max_packet_bytes:
            sentence = (
                f"The message has {size} bytes with its headers; {self._peer} takes at most {self._max_packet_bytes}. "
                "Make the payload smaller, or raise the limit of the broker."
            )
            answer.set_result(Failed(sentence, retryable=False))
        else:
            self._waiting.append(_Outgoing(message.topic, head, tail, answer))
        return answer

    def _send_waiting(self) -> None:
        """All that the broker's window admits, in one write."""
        parts: list[bytes] = []
        while self._waiting and len(self._under_way) < self._window:
            outgoing = self._waiting.popleft()
            if not outgoing.answer.done():  # or its caller was cancelled
                identifier = self._free_identifier()
                self._under_way[identifier] = outgoing
                parts += (outgoing.head, identifier.to_bytes(2, "big"), outgoing.tail)
        if parts:
            self._write(b"".join(parts))

    def _free_identifier(self) -> int:
        while True:
            self._identifier = self._identifier % LARGEST_IDENTIFIER + 1
            if self._identifier not in self._under_way:
                return self._identifier

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # those of uvloop have other base classes

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        try:
            if not self._opened.done() and not packets.is_connack(self._buffer):
                raise packets.MalformedPacketError("its first packet is no CONNACK")
            for kind, rest in packets.received(self._buffer):
                self._handle(kind, rest)
        except (packets.MalformedPacketError, IndexError) as error:
            self._reason = f"The server does not answer as a broker of MQTT 5: {error}"
            self.abort()
        self._send_waiting()

    def _handle(self, kind: int, rest: bytes) -> None:
        if kind == packets.PUBACK:
            sent = self._under_way.pop(packets.packet_identifier(rest), None)
            if sent is not None and not sent.answer.done():
                sent.answer.set_result(self._answer_of(sent.topic, packets.puback(rest)))
        elif kind == packets.CONNACK:
            if not self._opened.done():
                self._opened.set_result(packets.connack(rest))
        elif kind == packets.PINGRESP:
            self._silent_pings = 0
        elif kind == packets.DISCONNECT:
            reason, properties = packets.disconnect(rest)
            self._reason = _words(reason, properties)
            self._complained = reason not in _MAY_PASS

    def _answer_of(self, topic: str, reply: packets.BrokerReply) -> Answer:
        reason, properties = reply
        if not reason:
            return Receipt({"topic": topic})
        words = _words(reason, properties)
        if reason < _FAILURE:  # there are no subscribers, and the broker did not keep the message
            return Receipt({"topic": topic, "reason": words})
        return Failed(f"{self._peer} refused the message: {words}", retryable=reason in _MAY_PASS)

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True
        if self._ping is not None:
            self._ping.cancel()
        words = self._reason or (str(error) if error is not None else "The broker closed the connection.")
        if not self._opened.done():
            self._opened.set_exception(ConnectionError(words))
            self._opened.exception()  # the caller that waited may have been cancelled
        for sent in self._under_way.values():
            if not sent.answer.done():
                failed = Failed(f"The connection to {self._peer} broke before the message was acknowledged: {words}")
                sent.answer.set_result(failed if self._complained else Unanswered(failed, sent=True))
        for waiting in self._waiting:
            if not waiting.answer.done():
                waiting.answer.set_result(
                    NotBegun(f"The connection to {self._peer} broke before the message was sent: {words}")
                )
        self._under_way.clear()
        self._waiting.clear()

    def _plan_ping(self) -> None:
        if self._keep_alive:
            self._ping = self._loop.call_later(self._keep_alive / 2, self._send_ping)

    def _send_ping(self) -> None:
        if self._silent_pings >= 2:
            self._reason = f"The broker did not answer for {self._keep_alive} s."
            self.abort()
            return
        self._silent_pings += 1
        self._write(packets.PINGREQ_PACKET)
        self._plan_ping()


def _number(properties: packets.Properties, identifier: int, otherwise: int) -> int:
    value = properties.get(identifier, otherwise)
    return value if isinstance(value, int) else otherwise


def _words(reason: int, properties: packets.Properties) -> str:
    words = _REASONS.get(reason, "reason code")
    said = properties.get(packets.REASON_STRING)
    return f"{words} (0x{reason:02x}){f': {said}' if said else ''}"
