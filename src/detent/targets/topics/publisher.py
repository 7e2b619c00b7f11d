"""What a publisher of a protocol is given, and what it answers.

A publisher is one connection of this process to one server, for the messages of one tenant. It gets messages in
batches, sends them pipelined, and answers for each when the broker has acknowledged it: only then does its run succeed.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from yarl import URL

from detent.domain.run import Failed, NotBegun
from detent.targets.breaker import Unanswered


class TopicMessage(NamedTuple):
    topic: str
    body: bytes
    headers: Mapping[str, str]
    """The facts of the run and the job's own headers; values are plain text."""
    key: str
    """Messages with the same key keep their order, where the broker has one."""
    deduplication_id: str
    """The idempotency key: the same for every attempt of a run."""
    content_type: str = "application/json"


class Receipt(NamedTuple):
    """The broker has the message. `facts` become the result of the run: partition and offset, stream id, sequence.
    `duplicate`: the broker says that it had the message already."""

    facts: Mapping[str, str | int]
    duplicate: bool = False


Answer = Receipt | Failed | Unanswered | NotBegun
"""`NotBegun`: the message was certainly not sent, and a retry costs no attempt. `Failed` has the broker's own words.
`Unanswered`: it said nothing about the message, which counts against the server."""

Dial = Callable[[str, int], Awaitable[socket.socket]]
"""A connected, non-blocking socket to this host and port, at an address that the tenant may reach; raises
AddressRefusedError or OSError. Publishers connect with it and in no other way: a name that a client resolves itself may
lead elsewhere than what was checked."""


class BrokerRefusedError(Exception):
    """The broker refused the client, for example its credentials; the text is a sentence with the broker's words. No
    retry helps, and none of the messages was sent."""


class BrokerAddress(NamedTuple):
    """A server as the target names it, with the values of secrets filled in. Two that are equal share a publisher."""

    url: URL
    username: str | None = None
    password: str | None = None
    tls: ssl.SSLContext | None = None
    """None: the connection has no TLS."""
    ca: str | None = None
    client_certificate: str | None = None
    """The PEM texts of `tls`, for clients that cannot use a context of Python."""
    ambient: bool = False
    """Whether the publisher may use the identity of the machine where it has no credentials: only the tenant of the
    operator may."""

    def __repr__(self) -> str:
        """Without the password."""
        return f"BrokerAddress({self.url!s})"


class Publisher(Protocol):
    async def publish(self, messages: Sequence[TopicMessage]) -> Sequence[Answer]:
        """An answer for each message, in their order. Raises OSError if the server cannot be reached, so that none was
        sent, and BrokerRefusedError. A publisher that raises is closed, and the next batch gets a new one. One whose
        connection breaks later answers `Unanswered` for what was not acknowledged, and connects again for the next
        batch. Cancelled: no run waits for an answer any more, or none came in time; it is closed."""
        ...

    async def close(self) -> None: ...


class OpenPublisher(Protocol):
    """Each module of a protocol has such a function, `open_publisher`. It imports its client library when it is called,
    not with the module, and need not connect yet."""

    def __call__(self, address: BrokerAddress, dial: Dial) -> Publisher: ...
