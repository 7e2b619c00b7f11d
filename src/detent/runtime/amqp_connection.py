"""A connection of AMQP 0-9-1 and its channels, for all who speak to RabbitMQ. pamqp encodes and decodes frames.

The package of pamqp is an extra: import this module at first use.
"""

from __future__ import annotations

import asyncio
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar, cast

from pamqp.body import ContentBody
from pamqp.commands import Basic, Channel, Connection
from pamqp.common import FieldTable
from pamqp.exceptions import PAMQPException
from pamqp.frame import FrameTypes, marshal, unmarshal
from pamqp.header import ContentHeader, ProtocolHeader
from pamqp.heartbeat import Heartbeat

from detent.runtime.amqp_refusals import is_passing

MAX_FRAME_BYTES = 131_072
HEAD = struct.Struct(">BHI")
"""Of a frame: its type, its channel, the size of what follows."""
END_BYTES = 1

REPLY_SUCCESS = 200
ACCESS_REFUSED, NOT_FOUND, PRECONDITION_FAILED = 403, 404, 406
CONNECTION_FORCED, RESOURCE_ERROR, INTERNAL_ERROR = 320, 506, 541
_PASSING = (CONNECTION_FORCED, RESOURCE_ERROR, INTERNAL_ERROR)

Reply = TypeVar("Reply", bound=FrameTypes)


class ClosedChannel(NamedTuple):
    """The broker closed the channel, because of a message or a question on it."""

    code: int
    text: str


class ChannelClosedError(ConnectionError):
    """The broker answered a question by closing the channel."""

    def __init__(self, closed: ClosedChannel) -> None:
        super().__init__(closed.text)
        self.closed = closed


class AmqpRefusedError(Exception):
    """The broker refused the client: its credentials, its virtual host. No retry helps."""


class AmqpLogin(NamedTuple):
    """Without a username: as all clients do, a user that may connect from the broker's own machine only."""

    username: str | None
    password: str | None
    vhost: str

    def __repr__(self) -> str:
        """Without the password."""
        return f"AmqpLogin({self.username!r}, {self.vhost!r})"


class AmqpChannel(ABC):
    """What the connection knows of a channel. Subclasses handle its frames."""

    def __init__(self, connection: AmqpConnection, number: int, frame_max: int) -> None:
        self.number = number
        self.closed: ClosedChannel | None = None
        self.frame_max = frame_max
        self.connection = connection

    @property
    def is_open(self) -> bool:
        return self.closed is None and not self.connection.lost

    async def ask(self, frame: FrameTypes, reply: type[Reply]) -> Reply:
        """One question at a time. Raises ChannelClosedError if the broker refuses, otherwise ConnectionError."""
        return await self.connection.ask(frame, reply, self.number)

    @abstractmethod
    def handle(self, frame: FrameTypes) -> None:
        """A message, a part of one, or what the broker says about messages."""

    @abstractmethod
    def lose(self, reason: str) -> None:
        """Called once: the broker has closed the channel, as `closed` says, or the connection broke."""


OpenedChannel = TypeVar("OpenedChannel", bound=AmqpChannel)


class AmqpConnection(asyncio.Protocol):
    def __init__(self, peer: str, heartbeat_seconds: int) -> None:
        self.peer = peer
        self.lost = False
        self.blocked: str | None = None
        """Why the broker accepts no messages now."""
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._channels: dict[int, AmqpChannel] = {}
        self._replies: dict[int, asyncio.Future[FrameTypes]] = {}
        self._unwanted: dict[int, int] = {}
        """Replies that will come to questions which were cancelled, by channel."""
        self._frame_max = MAX_FRAME_BYTES
        self._heartbeat_seconds = heartbeat_seconds
        self._heard_at = self._loop.time()
        self._heartbeat: asyncio.TimerHandle | None = None
        self._reason: str | None = None
        self.ended: asyncio.Future[None] = self._loop.create_future()

    # --- for its user ---

    async def open(self, login: AmqpLogin) -> None:
        """Raises OSError if the broker is not available, AmqpRefusedError if it refuses the user."""
        start = await self.ask(ProtocolHeader(), Connection.Start)
        if "PLAIN" not in start.mechanisms.split():
            raise AmqpRefusedError(f"{self.peer} offers {start.mechanisms}, and detent authenticates with PLAIN.")
        tune = await self.ask(_start_ok(login), Connection.Tune)
        self._frame_max = min(tune.frame_max or MAX_FRAME_BYTES, MAX_FRAME_BYTES)
        heartbeat = min(tune.heartbeat, self._heartbeat_seconds)
        self.write(marshal(Connection.TuneOk(tune.channel_max, self._frame_max, heartbeat), 0))
        if heartbeat:
            self._plan_heartbeat(heartbeat)
        await self.ask(Connection.Open(virtual_host=login.vhost), Connection.OpenOk)

    async def open_channel(self, kind: Callable[[AmqpConnection, int, int], OpenedChannel]) -> OpenedChannel:
        number = next(number for number in range(1, 65_536) if number not in self._channels)
        channel = kind(self, number, self._frame_max)
        self._channels[number] = channel
        await channel.ask(Channel.Open(), Channel.OpenOk)
        return channel

    async def close_channel(self, channel: AmqpChannel) -> None:
        if channel.is_open:
            channel.closed = ClosedChannel(REPLY_SUCCESS, "it was closed here")
            closing = Channel.Close(reply_code=REPLY_SUCCESS, reply_text="", class_id=0, method_id=0)
            await channel.ask(closing, Channel.CloseOk)
        self._channels.pop(channel.number, None)

    def close(self) -> None:
        if self._transport is not None and not self.lost:
            closing = Connection.Close(reply_code=REPLY_SUCCESS, reply_text="", class_id=0, method_id=0)
            self.write(marshal(closing, 0))
            self._transport.close()

    def abort(self, reason: str | None = None) -> None:
        self._reason = self._reason or reason
        if self._transport is not None:
            self._transport.abort()

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    async def ask(self, frame: FrameTypes, reply: type[Reply], channel: int = 0) -> Reply:
        if self.lost:
            raise ConnectionError(self._reason or "the broker closed the connection")
        answer = self._replies[channel] = self._loop.create_future()
        try:
            self.write(marshal(frame, channel))
            found = await answer
        finally:
            del self._replies[channel]
            if answer.cancelled():
                self._unwanted[channel] = self._unwanted.get(channel, 0) + 1
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
            self.abort(f"the server does not answer as a broker of AMQP 0-9-1 ({error})")

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True
        if not self.ended.done():
            self.ended.set_result(None)
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        reason = self._reason or (str(error) if error is not None else "the broker closed the connection")
        for waiting in self._replies.values():
            if not waiting.done():
                waiting.set_exception(ConnectionError(reason))
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            channel.lose(reason)

    def _handle(self, number: int, frame: FrameTypes) -> None:
        match frame:
            case (
                Basic.Ack() | Basic.Nack() | Basic.Return() | Basic.Deliver() | Basic.Cancel()
                | ContentHeader() | ContentBody()
            ):  # fmt: skip
                channel = self._channels.get(number)
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
            case _ if self._unwanted.get(number):
                self._unwanted[number] -= 1
            case _:
                waiting = self._replies.get(number)
                if waiting is not None and not waiting.done():
                    waiting.set_result(frame)

    def _close_channel(self, number: int, closed: ClosedChannel) -> None:
        channel = self._channels.pop(number, None)
        self._unwanted.pop(number, None)
        if channel is not None:
            channel.closed = closed
            channel.lose(closed.text)
        waiting = self._replies.get(number)
        if waiting is not None and not waiting.done():
            waiting.set_exception(ChannelClosedError(closed))

    def _refuse(self, frame: Connection.Close) -> None:
        """While the connection is being opened: of the user or of the virtual host, or because the broker stops or has
        as many connections as it takes. Later, of anything."""
        self._reason = frame.reply_text
        waiting = self._replies.get(0)
        if waiting is not None and not waiting.done():
            words = f"{self.peer} refused the connection: {frame.reply_text}"
            passing = frame.reply_code in _PASSING or is_passing(frame.reply_text)
            waiting.set_exception(ConnectionError(words) if passing else AmqpRefusedError(words))
        self.write(marshal(Connection.CloseOk(), 0))
        if self._transport is not None:
            self._transport.close()

    def _plan_heartbeat(self, seconds: int) -> None:
        self._heartbeat = self._loop.call_later(seconds / 2, self._beat, seconds)

    def _beat(self, seconds: int) -> None:
        if self._loop.time() - self._heard_at > 2 * seconds:
            self.abort(f"the broker did not answer for {2 * seconds} s")
        else:
            self.write(Heartbeat.value)
            self._plan_heartbeat(seconds)


def _start_ok(login: AmqpLogin) -> Connection.StartOk:
    username, password = login.username, login.password
    if username is None:
        username, password = "guest", "guest"
    capabilities: FieldTable = {
        "authentication_failure_close": True,
        "basic.nack": True,
        "connection.blocked": True,
        "consumer_cancel_notify": True,
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
        while len(buffer) - start >= HEAD.size:
            if buffer[start : start + 4] == b"AMQP":
                raise ValueError("it requires another version of AMQP")
            size = HEAD.unpack_from(buffer, start)[2]
            if size > MAX_FRAME_BYTES:
                raise ValueError("a frame is too large")
            end = start + HEAD.size + size + END_BYTES
            if end > len(buffer):
                return
            _, channel, frame = unmarshal(bytes(buffer[start:end]))
            start = end
            yield channel, frame
    finally:
        del buffer[:start]
