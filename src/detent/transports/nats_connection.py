"""One connection to a NATS server: requests whose replies are awaited together, and what the server sends by itself.

It never connects again: whoever uses it opens another one, and knows then that pull requests are gone and that a stream
in memory may be.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import sample
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error, NoServersError, SecureConnRequiredError

from detent.transports.answering import ANSWER_SECONDS, answering
from detent.transports.transport import TransportAwayError

DEFAULT_PORT = 4222
# The status of a reply by the server itself, if nothing takes the subject.
NO_RESPONDERS = "503"
# The status of a pull request whose consumer was deleted, or has another leader.
CONFLICT = "409"
# The status of a pull request that has waited as long as it was to.
EXPIRED = "408"
_REPLY, _ASK, _FETCH = "reply", "ask", "fetch"


class NatsAddress(NamedTuple):
    """`nats://[user:password@|token@]host[:port][,host[:port]…]`; `natss` is with TLS."""

    hosts: tuple[str, ...]
    encrypted: bool
    login: dict[str, str]

    @classmethod
    def parse(cls, address: str) -> NatsAddress:
        parts = urlsplit(address)
        who, _, hosts = parts.netloc.rpartition("@")
        user, separator, password = who.partition(":")
        login: dict[str, str] = {}
        if separator:
            login = {"user": unquote(user), "password": unquote(password)}
        elif user:
            login = {"token": unquote(user)}
        return cls(tuple(_with_port(host) for host in hosts.split(",")), parts.scheme == "natss", login)

    @property
    def peer(self) -> str:
        return ", ".join(self.hosts)


class NatsMessage(NamedTuple):
    subject: str
    body: bytes
    headers: dict[str, str] | None = None


class NatsRefusedError(TransportAwayError):
    """JetStream refused a request; `code` is its own number of the error."""

    def __init__(self, sentence: str, code: int) -> None:
        super().__init__(sentence)
        self.code = code


class NatsListener(Protocol):
    """What a connection reports about its pull requests. Those that wait and those that do not have inboxes of their
    own, because a message of a stream does not say which request it answers."""

    async def asked_for(self, connection: NatsConnection, message: Msg) -> None: ...
    async def fetched(self, connection: NatsConnection, message: Msg) -> None: ...
    def pull_ended(self, number: str, status: str) -> None: ...


class NatsConnection:
    def __init__(self, address: NatsAddress, listener: NatsListener, lost: Callable[[NatsConnection], None]) -> None:
        self._address = address
        self._listener = listener
        self._lost = lost
        self._client = Client()
        self._host = address.hosts[0]
        self._inbox = ""
        self._batches: dict[str, _Replies] = {}
        self._serial = 0

    @property
    def is_open(self) -> bool:
        return self._client.is_connected

    async def open(self) -> None:
        """To the first server of the address that answers, in random order."""
        refusals = []
        for host in sample(self._address.hosts, len(self._address.hosts)):
            try:
                async with answering(host, ANSWER_SECONDS, Error):
                    await self._open_to(host)
            except TransportAwayError as error:
                refusals.append(str(error))
            else:
                return
        raise TransportAwayError(" ".join(refusals))

    async def close(self) -> None:
        client = self._client
        try:
            with suppress(Exception):
                async with asyncio.timeout(ANSWER_SECONDS):
                    await client.close()
        finally:
            _hang_up(client)
            self._break_off()

    # --- what is sent ---

    async def ask_all(self, messages: Sequence[NatsMessage]) -> list[Msg]:
        """The reply to each. They are sent together; the server replies in any order."""
        batch = self.next_number()
        replies = self._batches[batch] = _Replies(len(messages))
        try:
            async with answering(self._host, ANSWER_SECONDS, Error):
                for place, message in enumerate(messages):
                    await self._client.publish(
                        message.subject,
                        message.body,
                        reply=f"{self._inbox}.{_REPLY}.{batch}.{place}",
                        headers=message.headers,
                    )
                if messages:
                    await replies.complete
        except TransportAwayError:
            await self.close()  # one that does not answer is not used again
            raise
        finally:
            del self._batches[batch]
        return replies.received()

    async def request(self, subject: str, body: Any) -> Any:
        """A request of the API of JetStream, and its answer."""
        (reply,) = await self.ask_all([NatsMessage(f"$JS.API.{subject}", msgspec.json.encode(body))])
        if status_of(reply) == NO_RESPONDERS:
            raise TransportAwayError(
                f"{self._host} has no JetStream, or this user may not use it: start nats-server with -js, and let the"
                " user publish to $JS.API.>."
            )
        return self.answer_of(reply)

    def answer_of(self, reply: Msg) -> Any:
        """The answer of JetStream, unless it refused."""
        try:
            said = msgspec.json.decode(reply.data)
        except msgspec.DecodeError as error:
            raise TransportAwayError(f"{self._host} answered with what is no answer of JetStream.") from error
        refusal = said.get("error")
        if refusal is not None:
            words = str(refusal.get("description", "no reason given")).rstrip(".")
            raise NatsRefusedError(f"{self._host} refused: {words}.", int(refusal.get("err_code", 0)))
        return said

    def next_number(self) -> str:
        """Of a pull request; its end is reported with it."""
        self._serial += 1
        return str(self._serial)

    async def ask(self, number: str, stream: str, consumer: str, seconds: float) -> None:
        """A pull request that waits so long for one message."""
        wanted = {"batch": 1, "expires": round(seconds * 1_000_000_000)}
        await self._pull(f"{_ASK}.{number}", stream, consumer, wanted)

    async def fetch(self, number: str, stream: str, consumer: str, count: int) -> None:
        """A pull request for messages that are there."""
        await self._pull(f"{_FETCH}.{number}", stream, consumer, {"batch": count, "no_wait": True})

    async def _pull(self, inbox: str, stream: str, consumer: str, wanted: dict[str, Any]) -> None:
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        await self.tell(subject, msgspec.json.encode(wanted), reply=f"{self._inbox}.{inbox}")

    async def check(self) -> None:
        """The server answers. Most of what is sent here has no answer, and so would not show it."""
        try:
            async with answering(self._host, ANSWER_SECONDS, Error):
                await self._client.flush(timeout=round(ANSWER_SECONDS) * 2)  # the shorter limit is ours
        except TransportAwayError:
            await self.close()
            raise

    async def tell(self, subject: str, body: bytes, reply: str = "") -> None:
        async with answering(self._host, ANSWER_SECONDS, Error):
            await self._client.publish(subject, body, reply=reply)

    # --- what arrives ---

    async def _replied(self, message: Msg) -> None:
        batch, place = message.subject.split(".")[-2:]
        replies = self._batches.get(batch)
        if replies is not None:
            replies.add(int(place), message)

    async def _asked_for(self, message: Msg) -> None:
        if message.subject.startswith(self._inbox):  # a message of a stream has a subject of the stream
            self._listener.pull_ended(message.subject.rpartition(".")[2], status_of(message))
        else:
            await self._listener.asked_for(self, message)

    async def _fetched(self, message: Msg) -> None:
        if message.subject.startswith(self._inbox):
            self._listener.pull_ended(message.subject.rpartition(".")[2], status_of(message))
        else:
            await self._listener.fetched(self, message)

    def _break_off(self) -> None:
        for replies in self._batches.values():
            replies.fail(ConnectionResetError("the connection broke before the answer"))
        self._lost(self)

    # --- the connection ---

    async def _open_to(self, host: str) -> None:
        client = self._client = _client(self._address.encrypted)
        self._host = host
        options: dict[str, Any] = dict(self._address.login)
        if self._address.encrypted:
            options |= {"tls": ssl.create_default_context(), "tls_hostname": urlsplit(f"tls://{host}").hostname}

        async def closed() -> None:
            self._break_off()

        try:
            await client.connect(
                f"{'tls' if self._address.encrypted else 'nats'}://{host}",
                name="detent",
                allow_reconnect=False,
                closed_cb=closed,
                error_cb=_ignore,
                connect_timeout=round(ANSWER_SECONDS),
                ping_interval=10,
                **options,
            )
            self._inbox = client.new_inbox()
            for kind, arrived in ((_REPLY, self._replied), (_ASK, self._asked_for), (_FETCH, self._fetched)):
                await client.subscribe(f"{self._inbox}.{kind}.>", cb=arrived)
        except BaseException:
            _hang_up(client)
            raise


class _Replies:
    def __init__(self, count: int) -> None:
        self.complete: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._missing = count
        self._by_place: list[Msg | None] = [None] * count

    def add(self, place: int, message: Msg) -> None:
        if self._by_place[place] is None:
            self._by_place[place] = message
            self._missing -= 1
            if self._missing == 0 and not self.complete.done():
                self.complete.set_result(None)

    def fail(self, error: Exception) -> None:
        if not self.complete.done():
            self.complete.set_exception(error)
            self.complete.exception()  # it may be that nobody waits any more

    def received(self) -> list[Msg]:
        return [message for message in self._by_place if message is not None]


def status_of(message: Msg) -> str:
    """Of a message without a body that the server sends by itself; empty for others."""
    return (message.headers or {}).get("Status", "")


def _with_port(host: str) -> str:
    return host if urlsplit(f"nats://{host}").port is not None else f"{host}:{DEFAULT_PORT}"


async def _ignore(_: Exception) -> None:
    """What fails is reported by the call that failed."""


def _client(encrypted: bool) -> Client:
    class CarefulClient(Client):
        async def _select_next_server(self) -> None:
            """The client of the library would try for ever to reach a server that refuses connections."""
            if not self._server_pool:
                raise NoServersError
            server = self._server_pool[0]
            await self._connect_to_server(server)
            self._current_server = server

        async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
            """Without TLS the password would be sent in the clear."""
            if encrypted and initial_connection and not info.get("tls_required"):
                raise SecureConnRequiredError
            await super()._process_info(info, initial_connection)

    return CarefulClient()


def _hang_up(client: Client) -> None:
    """A connection that was given up half open stays open otherwise."""
    transport = client._transport
    if transport is not None:
        with suppress(Exception):
            transport.close()  # type: ignore[no-untyped-call]  # the library has no types here
