"""The packets of MQTT 5 that a publisher sends and receives, as bytes. No I/O.

A packet is a byte with its type and flags, the length of the rest in one to four bytes of seven bits, and the rest.
Properties, which MQTT 5 added, are a length and then identifiers with values of a type that the identifier decides.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

CONNACK, PUBACK, PINGRESP, DISCONNECT = 0x20, 0x40, 0xD0, 0xE0
PINGREQ_PACKET = b"\xc0\x00"
DISCONNECT_PACKET = b"\xe0\x00"
MAX_STRING_BYTES = 65_535

_CONNECT, _PUBLISH_QOS_1 = 0x10, 0x32
_CLEAN_START, _HAS_PASSWORD, _HAS_USERNAME = 0x02, 0x40, 0x80

_CONTENT_TYPE, _CORRELATION_DATA, _USER_PROPERTY = 0x03, 0x09, 0x26
SERVER_KEEP_ALIVE, REASON_STRING, RECEIVE_MAXIMUM, MAXIMUM_QOS, MAXIMUM_PACKET_SIZE = 0x13, 0x1F, 0x21, 0x24, 0x27

# How long the values are, by identifier: a number of bytes, or the kind of a value that has its own length.
_NUMBERS = {0x01: 1, 0x02: 4, 0x11: 4, 0x13: 2, 0x17: 1, 0x18: 4, 0x19: 1, 0x21: 2, 0x22: 2, 0x23: 2, 0x24: 1, 0x25: 1,
            0x27: 4, 0x28: 1, 0x29: 1, 0x2A: 1}  # fmt: skip
_STRINGS = frozenset({0x03, 0x08, 0x09, 0x12, 0x15, 0x16, 0x1A, 0x1C, 0x1F})
_VARIABLE_NUMBER = 0x0B

Properties = dict[int, int | str]


class MalformedPacketError(Exception):
    """The server does not speak MQTT 5."""


class ReceivedPacket(NamedTuple):
    kind: int
    rest: bytes


class BrokerReply(NamedTuple):
    """What CONNACK, PUBACK and DISCONNECT have in common."""

    reason: int
    properties: Properties


def _length(value: int) -> bytes:
    encoded = bytearray()
    while True:
        value, low = divmod(value, 128)
        if not value:
            encoded.append(low)
            return bytes(encoded)
        encoded.append(low | 0x80)


def _string(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("!H", len(data)) + data


def _packet(kind: int, *parts: bytes) -> bytes:
    rest = b"".join(parts)
    return bytes((kind,)) + _length(len(rest)) + rest


def connect(client_id: str, keep_alive: int, username: str | None, password: str | None) -> bytes:
    flags, credentials = _CLEAN_START, b""
    if username is not None:
        flags |= _HAS_USERNAME
        credentials += _string(username)
    if password is not None:
        flags |= _HAS_PASSWORD
        credentials += _string(password)
    head = b"\x00\x04MQTT\x05" + struct.pack("!BH", flags, keep_alive)
    return _packet(_CONNECT, head, _length(0), _string(client_id), credentials)


def publish_parts(
    topic: str, body: bytes, content_type: str, correlation: str, headers: Mapping[str, str]
) -> tuple[bytes, bytes]:
    """A PUBLISH of QoS 1 before and after its packet identifier, which is chosen when it is sent."""
    properties = b"".join(
        (
            bytes((_CONTENT_TYPE,)), _string(content_type), bytes((_CORRELATION_DATA,)), _string(correlation),
            *(bytes((_USER_PROPERTY,)) + _string(name) + _string(value) for name, value in headers.items()),
        )
    )  # fmt: skip
    name = _string(topic)
    tail = _length(len(properties)) + properties + body
    return bytes((_PUBLISH_QOS_1,)) + _length(len(name) + 2 + len(tail)) + name, tail


def received(buffer: bytearray) -> Iterator[ReceivedPacket]:
    """The complete packets of the buffer, which are removed from it."""
    start = 0
    try:
        while (found := _next(buffer, start)) is not None:
            kind, begin, start = found
            yield ReceivedPacket(kind & 0xF0, bytes(buffer[begin:start]))
    finally:
        del buffer[:start]


def _next(buffer: bytearray, start: int) -> tuple[int, int, int] | None:
    """Its first byte, where its rest begins, and where it ends."""
    size = shift = 0
    for position in range(start + 1, min(start + 5, len(buffer))):
        size |= (buffer[position] & 0x7F) << shift
        shift += 7
        if not buffer[position] & 0x80:
            end = position + 1 + size
            return (buffer[start], position + 1, end) if end <= len(buffer) else None
    if len(buffer) >= start + 5:
        raise MalformedPacketError("a packet has no length")
    return None


def packet_identifier(puback: bytes) -> int:
    return (puback[0] << 8) | puback[1]


def is_connack(buffer: bytearray) -> bool:
    """Whether this can be the beginning of the first answer of a broker."""
    return buffer[0] == CONNACK


def connack(rest: bytes) -> BrokerReply:
    # A server of MQTT 3.1.1 answers with two bytes, which have no properties.
    if len(rest) < 2:
        raise MalformedPacketError("CONNACK has no reason")
    return _reply(rest, 1)


def puback(rest: bytes) -> BrokerReply:
    return _reply(rest, 2)


def disconnect(rest: bytes) -> BrokerReply:
    return _reply(rest, 0)


def _reply(rest: bytes, start: int) -> BrokerReply:
    """Reason code and properties, which are left out when the reason is 0 or there are none."""
    if len(rest) <= start:
        return BrokerReply(0, {})
    return BrokerReply(rest[start], _properties(rest, start + 1) if len(rest) > start + 1 else {})


def _properties(data: bytes, position: int) -> Properties:
    try:
        size, position = _variable(data, position)
        end, found = position + size, Properties()
        while position < end:
            position = _property(data, position, found)
    except (IndexError, UnicodeDecodeError) as error:
        raise MalformedPacketError("a packet ends within its properties") from error
    return found


def _property(data: bytes, position: int, found: Properties) -> int:
    identifier, position = data[position], position + 1
    if identifier in _NUMBERS:
        end = position + _NUMBERS[identifier]
        found[identifier] = int.from_bytes(data[position:end], "big")
    elif identifier == _VARIABLE_NUMBER:
        found[identifier], end = _variable(data, position)
    elif identifier == _USER_PROPERTY:
        _, middle = _text(data, position)
        _, end = _text(data, middle)
    elif identifier in _STRINGS:
        found[identifier], end = _text(data, position)
    else:
        raise MalformedPacketError(f"a packet has the unknown property {identifier}")
    return end


def _variable(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte, position = data[position], position + 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return value, position


def _text(data: bytes, position: int) -> tuple[str, int]:
    end = position + 2 + ((data[position] << 8) | data[position + 1])
    return data[position + 2 : end].decode(errors="replace"), end
