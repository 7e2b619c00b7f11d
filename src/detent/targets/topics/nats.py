"""Messages to streams of NATS JetStream.

    nats://host:4222      the message goes to the stream that takes the subject `topic`

`Nats-Msg-Id` is the idempotency key: within the stream's duplicate window, the server stores a message once, however
many attempts sent it. The messages of a batch are sent together, and acknowledged in any order.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from detent.domain.run import Failed
from detent.domain.topics import default_port
from detent.targets.breaker import Unanswered
from detent.targets.text import one_line
from detent.targets.topics.publisher import Answer, BrokerAddress, BrokerRefusedError, Dial, Receipt, TopicMessage

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg

CONNECT_SECONDS = 10
PING_SECONDS = 10
MESSAGE_ID = "Nats-Msg-Id"
# The status of a reply by the server itself, if nothing takes the subject.
NO_RESPONDERS = "503"


# Not "Authentication Timeout": either side was slow.
_REFUSED = re.compile("authorization|authentication(?! timeout)", re.IGNORECASE)


def open_publisher(address: BrokerAddress, dial: Dial) -> NatsPublisher:
    return NatsPublisher(address, dial)


class _Batch:
    """Messages that are sent together. Their serial numbers, from `first`, are in the subjects of their replies."""

    def __init__(self, messages: Sequence[TopicMessage], first: int) -> None:
        self.messages = messages
        self.first = first
        self.done: asyncio.Future[Sequence[Answer]] = asyncio.get_running_loop().create_future()
        self._answers: list[Answer | None] = [None] * len(messages)
        self._missing = len(messages)

    def answer(self, number: int, answer: Answer) -> None:
        """The first answer to a message counts."""
        if self._answers[number] is not None:
            return
        self._answers[number] = answer
        self._missing -= 1
        if not self._missing and not self.done.done():
            self.done.set_result([answer for answer in self._answers if answer is not None])


class NatsPublisher:
    def __init__(self, address: BrokerAddress, dial: Dial) -> None:
        from nats.errors import Error

        url = address.url
        self._error = Error
        self._address = address
        self._dial = dial
        self._host, self._port = url.host or "", url.port or default_port(url.scheme)
        self._client: Client | None = None
        self._inbox = ""
        self._batch: _Batch | None = None
        self._serial = 0

    async def publish(self, messages: Sequence[TopicMessage]) -> Sequence[Answer]:
        client = await self._connected()
        batch = self._batch = _Batch(messages, self._serial)
        self._serial += len(messages)
        try:
            for number, message in enumerate(messages):
                await self._send(client, batch, number, message)
            return await batch.done
        finally:
            self._batch = None

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()
            self._break_off()

    async def _send(self, client: Client, batch: _Batch, number: int, message: TopicMessage) -> None:
        headers = {**message.headers, "Content-Type": message.content_type, MESSAGE_ID: message.deduplication_id}
        if _most_bytes(message.body, headers) > client.max_payload:
            size = _bytes(message.body, headers)
            if size > client.max_payload:  # the server would close the connection
                batch.answer(number, self._too_large(size, client.max_payload))
                return
        try:
            await client.publish(
                message.topic, message.body, reply=f"{self._inbox}.{batch.first + number}", headers=headers
            )
        except (self._error, OSError) as error:
            batch.answer(number, self._broken(error))

    async def _acknowledged(self, reply: Msg) -> None:
        """What belongs to a batch that is over is left out."""
        batch, serial = self._batch, reply.subject.rpartition(".")[2]
        if (
            batch is None
            or not serial.isdecimal()
            or not batch.first <= int(serial) < batch.first + len(batch.messages)
        ):
            return
        number = int(serial) - batch.first
        message = batch.messages[number]
        if reply.headers and reply.headers.get("Status") == NO_RESPONDERS:
            batch.answer(number, self._no_stream(message))
            return
        try:
            batch.answer(number, self._answer(message, msgspec.json.decode(reply.data)))
        except (msgspec.DecodeError, AttributeError, KeyError, TypeError, ValueError):
            words = f"{self._peer} answered for {message.topic!r} with what is no acknowledgement."
            batch.answer(number, Failed(words))

    def _answer(self, message: TopicMessage, said: dict[str, Any]) -> Answer:
        error = said.get("error")
        if error is None:
            receipt: dict[str, str | int] = {"stream": str(said["stream"]), "sequence": int(said["seq"])}
            return Receipt(receipt, bool(said.get("duplicate")))
        words = one_line(str(error.get("description"))).rstrip(".")
        sentence = f"{self._peer} refused the message for {message.topic!r}: {words}."
        return Failed(sentence, retryable=int(error.get("code", 500)) >= 500)

    # --- what fails ---

    @property
    def _peer(self) -> str:
        return f"{self._host}:{self._port}"

    def _too_large(self, size: int, limit: int) -> Failed:
        return Failed(
            f"The message has {size:,} bytes with its headers, and {self._peer} takes at most {limit:,}: send less, or "
            "raise max_payload of the server.",
            retryable=False,
        )

    def _no_stream(self, message: TopicMessage) -> Failed:
        return Failed(
            f"No stream of {self._peer} takes the subject {message.topic!r}: create one with "
            f"`nats stream add --subjects {message.topic}`."
        )

    def _broken(self, error: BaseException | None) -> Unanswered:
        words = "" if error is None else f": {one_line(str(error)).rstrip('.')}"
        sentence = f"The connection to {self._peer} broke before the message was acknowledged{words}."
        return Unanswered(Failed(sentence), sent=True)

    def _break_off(self) -> None:
        """The connection is closed: what the server has not acknowledged, it may or may not have."""
        if self._batch is not None:
            for number in range(len(self._batch.messages)):
                self._batch.answer(number, self._broken(None))

    async def _complained(self, error: Exception) -> None:
        """The server does not say which message it refused, only its subject."""
        said = str(error)
        if self._batch is None or "permissions violation" not in said.lower():
            return
        words = one_line(said.removeprefix("nats: "))
        for number, message in enumerate(self._batch.messages):
            if f'"{message.topic.lower()}"' in said.lower():
                self._batch.answer(number, Failed(f"{self._peer} refused the message: {words}.", retryable=False))

    # --- the connection ---

    async def _connected(self) -> Client:
        if self._client is not None and self._client.is_connected:
            return self._client
        opened = await self._dial(self._host, self._port)
        client, hang_up = _dialed_client(opened, encrypted=self._address.tls is not None)
        try:
            await self._connect(client)
            self._inbox = client.new_inbox()
            await client.subscribe(f"{self._inbox}.*", cb=self._acknowledged)
        except BaseException:
            hang_up()
            raise
        self._client = client
        return client

    async def _connect(self, client: Client) -> None:
        from nats.errors import Error

        tls, given = self._address.tls, self._address
        options: dict[str, Any] = {"tls": tls, "tls_hostname": self._host} if tls is not None else {}
        if given.username is None:
            options["token"] = given.password
        else:
            options |= {"user": given.username, "password": given.password}
        host = given.url.host_subcomponent

        async def closed() -> None:
            if self._client is client:  # it may end when the next one is in use already
                self._client = None
                self._break_off()

        try:
            await client.connect(
                f"{'nats' if tls is None else 'tls'}://{host}:{self._port}", error_cb=self._complained,
                closed_cb=closed, allow_reconnect=False, max_reconnect_attempts=0, name="detent",
                connect_timeout=CONNECT_SECONDS, ping_interval=PING_SECONDS, **options,
            )  # fmt: skip
        except (Error, TimeoutError) as error:
            with suppress(Exception):
                await client.close()
            words = one_line(str(error).removeprefix("nats: ")).strip(" '.")
            if _REFUSED.search(words) is not None:
                raise BrokerRefusedError(f"{self._peer} refused the connection: {words}.") from None
            raise OSError(None, words or type(error).__name__) from error


def _most_bytes(body: bytes, headers: Mapping[str, str]) -> int:
    """More than the message has, without encoding it: a character has four bytes at most."""
    return len(body) + 12 + sum(map(len, headers)) * 4 + sum(map(len, headers.values())) * 4 + len(headers) * 4


def _bytes(body: bytes, headers: Mapping[str, str]) -> int:
    return len(body) + 12 + sum(len(name.encode()) + len(text.encode()) + 4 for name, text in headers.items())


def _dialed_client(opened: Any, *, encrypted: bool) -> tuple[Client, Callable[[], None]]:
    """A client on a socket that is connected already, to an address that was checked, and what closes it at once. It
    never connects again: a server may name others, which were not."""
    from nats.aio.client import Client
    from nats.aio.transport import TcpTransport
    from nats.errors import SecureConnRequiredError

    writers: list[asyncio.StreamWriter] = []

    class DialedTransport(TcpTransport):
        async def connect(self, uri: Any, buffer_size: int, connect_timeout: int) -> None:
            self._io_reader, self._io_writer = await asyncio.open_connection(sock=opened, limit=buffer_size)
            writers.append(self._io_writer)
            self._bare_io_reader, self._bare_io_writer = self._io_reader, self._io_writer

    class DialedClient(Client):
        async def _connect_to_server(self, s: Any) -> None:
            self._transport = DialedTransport()  # type: ignore[no-untyped-call]  # its base has no types
            await self._transport.connect(s.uri, 32_768, CONNECT_SECONDS)

        async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
            """The password would be sent in the clear."""
            if encrypted and initial_connection and not info.get("tls_required"):
                raise SecureConnRequiredError
            await super()._process_info(info, initial_connection)

    def hang_up() -> None:
        for writer in writers:
            writer.close()
        if not writers:  # else the socket is theirs
            opened.close()

    return DialedClient(), hang_up
