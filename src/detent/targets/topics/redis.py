"""Messages to Redis and Valkey: entries of a stream, or elements of a list.

    redis://host:6379/0                      XADD to the stream `topic`
    redis://host:6379/0?maxlen=100000        the stream keeps about so many entries
    redis://host:6379/0?mode=list            RPUSH to the list `topic`

An entry of a stream has the headers as fields, and the body in the field `body`. An element of a list is a JSON object
with `headers` and `body`, or the event itself if it is a CloudEvent. Redis does not deduplicate.

The commands of a batch are written together, and their answers read in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from detent.domain.run import Failed
from detent.domain.topics import default_port
from detent.targets.breaker import Unanswered
from detent.targets.text import one_line
from detent.targets.topics.messages import CLOUDEVENT
from detent.targets.topics.publisher import Answer, BrokerAddress, BrokerRefusedError, Dial, Receipt, TopicMessage

if TYPE_CHECKING:
    from redis.asyncio.connection import AbstractConnection

BODY = b"body"
# What a server says while it restarts, fails over or is full for a while; what else it refuses, it refuses again.
_PASSING = ("OOM", "READONLY", "LOADING", "MISCONF", "BUSY", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "NOREPLICAS")


def open_publisher(address: BrokerAddress, dial: Dial) -> RedisPublisher:
    return RedisPublisher(address, dial)


class RedisPublisher:
    def __init__(self, address: BrokerAddress, dial: Dial) -> None:
        from redis.exceptions import AuthenticationError, RedisError, ResponseError
        from redis.exceptions import ConnectionError as LostConnectionError

        url = address.url
        self._address = address
        self._dial = dial
        self._host, self._port = url.host or "", url.port or default_port(url.scheme)
        self._list = url.query.get("mode") == "list"
        length = url.query.get("maxlen")
        self._trim = (b"MAXLEN", b"~", length.encode()) if length else ()
        self._connection: AbstractConnection | None = None
        self._reader: asyncio.StreamReader | None = None
        self._error, self._refused, self._response = RedisError, AuthenticationError, ResponseError
        self._lost: tuple[type[Exception], ...] = (OSError, LostConnectionError)

    async def publish(self, messages: Sequence[TopicMessage]) -> Sequence[Answer]:
        connection = await self._connected()
        answers: list[Answer] = []
        try:
            await connection.send_packed_command([b"".join([self._packed(one) for one in messages])])
            for message in messages:
                answers.append(await self._answer(connection, message))  # noqa: PERF401 - those before a break count
        except (self._error, OSError) as error:
            await self.close()
            if isinstance(error, self._refused) and not answers:
                raise BrokerRefusedError(self._refusal(error)) from None
            answers += [self._broken(error)] * (len(messages) - len(answers))
        except BaseException:  # answers that are not read would be taken for those of the next batch
            await self.close()
            raise
        return answers

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.disconnect(nowait=True)

    def _packed(self, message: TopicMessage) -> bytes:
        """The command as it is sent. The client takes five times as long to write it."""
        if self._list:
            words = [b"RPUSH", message.topic.encode(), _element(message)]
        else:
            words = [b"XADD", message.topic.encode(), *self._trim, b"*"]
            for name, value in message.headers.items():
                words += (name.encode(), value.encode())
            words += (b"Content-Type", message.content_type.encode(), BODY, message.body)
        packed = [b"*%d\r\n" % len(words)]
        packed += [b"$%d\r\n%b\r\n" % (len(word), word) for word in words]
        return b"".join(packed)

    async def _answer(self, connection: AbstractConnection, message: TopicMessage) -> Answer:
        try:
            answer = await connection.read_response()
        except self._response as error:
            code = str(getattr(error, "status_code", None) or str(error).partition(" ")[0])
            sentence = f"{self._host}:{self._port} refused the message for {message.topic!r}: {one_line(str(error))}."
            return Failed(sentence.replace("..", "."), retryable=code in _PASSING)
        if self._list:
            return Receipt({"list": message.topic, "length": int(answer)})
        return Receipt({"stream": message.topic, "id": answer.decode() if isinstance(answer, bytes) else str(answer)})

    def _broken(self, error: Exception) -> Failed | Unanswered:
        """A login that is no longer valid, or what is not the protocol of Redis, is an answer all the same."""
        words = one_line(str(error)) or type(error).__name__
        broken = f"The connection to {self._host}:{self._port} broke before the message was acknowledged: {words}"
        failed = Failed(f"{broken.rstrip('.')}.")
        lost = isinstance(error, self._lost) and not isinstance(error, self._refused)
        return Unanswered(failed, sent=True) if lost else failed

    # --- the connection ---

    async def _connected(self) -> AbstractConnection:
        if self._connection is not None:
            if self._reader is not None and not self._reader.at_eof():
                return self._connection
            await self.close()  # the server closed it while nothing was sent
        opened = await self._dial(self._host, self._port)
        tls = self._address.tls
        self._reader, writer = await asyncio.open_connection(
            sock=opened, ssl=tls, server_hostname=self._host if tls is not None else None
        )
        connection = self._around(self._reader, writer)
        try:
            await connection.connect()  # type: ignore[no-untyped-call]  # the client has no types here
        except self._refused as error:
            raise BrokerRefusedError(self._refusal(error)) from None
        except self._response as error:  # for example a database that it does not have
            raise BrokerRefusedError(self._refusal(error)) from None
        except self._error as error:
            raise OSError(None, one_line(str(error))) from error
        else:
            self._connection = connection
            return connection
        finally:
            if self._connection is not connection:  # also if it was cancelled
                writer.close()

    def _around(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> AbstractConnection:
        """A connection of the client on streams that are connected already. It is used for one connection only."""
        from redis.asyncio.connection import Connection
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff

        class DialedConnection(Connection):
            async def _connect(self) -> None:
                self._reader, self._writer = reader, writer

        return DialedConnection(
            host=self._host,
            port=self._port,
            db=int(self._address.url.path.strip("/") or 0),
            username=self._address.username,
            password=self._address.password,
            client_name="detent",
            socket_timeout=None,
            protocol=2,
            retry=Retry(NoBackoff(), 0),
        )

    def _refusal(self, error: Exception) -> str:
        return f"{self._host}:{self._port} refused the connection: {one_line(str(error)).rstrip('.')}."


def _element(message: TopicMessage) -> bytes:
    if message.content_type == CLOUDEVENT:
        return message.body
    return msgspec.json.encode({"headers": dict(message.headers), "body": msgspec.Raw(message.body)})
