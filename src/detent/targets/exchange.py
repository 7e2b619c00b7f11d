"""One request and its answer, over a connection of aiohttp.

The connector of aiohttp opens and keeps the connections, and its parser reads the answers. Its session stands between
the two: for each call it builds a request and a response, merges headers, looks for cookies, proxies and redirects, and
sends the body in a task of its own. A call of a job needs none of that. Without it, a call takes 28 µs of CPU
instead of 72 (docs/benchmarks/http.md).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from typing import NamedTuple

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError
from multidict import CIMultiDictProxy
from yarl import URL

from detent.domain.http_rules import WITH_BODY
from detent.domain.target_url import TargetError
from detent.targets.answer_protocol import AnswerProtocol
from detent.targets.http_failures import BadAnswerError, BrokenConnectionError

CONNECT_SECONDS = 10.0
_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
MANY_DESTINATIONS = 1000
SMALL_REQUEST = 16_384


class HttpAnswer(NamedTuple):
    status: int
    headers: CIMultiDictProxy[str]
    data: bytes
    """At least as much as was to be read, if there is so much."""
    complete: bool
    broken: bool
    """The connection broke before the answer was complete."""


def destination_of(origin: str, tls: ssl.SSLContext | bool = True) -> aiohttp.ClientRequest:
    """A host in the form in which the connector takes it, a request, of which it reads only that. `tls`: the
    certificates of the call; True: those of the connector. aiohttp.InvalidURL if the host is none."""
    return aiohttp.ClientRequest("GET", URL(origin), loop=asyncio.get_running_loop(), ssl=tls)


class Destinations:
    """The hosts that were called lately, by their origin: making one takes 3 µs."""

    def __init__(self) -> None:
        self._known: dict[str, aiohttp.ClientRequest] = {}

    def to(self, origin: str, tls: ssl.SSLContext | bool = True) -> aiohttp.ClientRequest:
        """One with certificates of a job is not kept: they hold a private key."""
        if tls is not True:
            return destination_of(origin, tls)
        known = self._known.get(origin)
        if known is None:
            if len(self._known) >= MANY_DESTINATIONS:
                self._known.clear()
            known = self._known[origin] = destination_of(origin)
        return known


def head_of(method: str, url: URL, headers: Iterable[tuple[str, str]]) -> str:
    """The beginning of a request, to which more lines may be added."""
    return f"{method} {url.raw_path_qs} HTTP/1.1\r\nHost: {url.host_port_subcomponent}\r\n{header_lines(headers)}"


def header_lines(headers: Iterable[tuple[str, str]]) -> str:
    """Every value was checked or encoded at its source. This is the last check that none of them adds a line to the
    request."""
    lines = [f"{name}: {value}\r\n" for name, value in headers]
    text = "".join(lines)
    if text.count("\r") + text.count("\n") > 2 * len(lines) or "\0" in text:
        raise TargetError("/target/headers", "A header has a line break, so the call was not made.")
    return text


def request_of(method: str, head: str, body: bytes | None) -> bytes:
    if body is None and method not in WITH_BODY:
        return f"{head}\r\n".encode()
    body = body or b""
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def exchange(
    connector: aiohttp.BaseConnector,
    destination: aiohttp.ClientRequest,
    request: bytes,
    cap: int,
    *,
    bodiless: bool = False,
) -> HttpAnswer:
    """Send a request once, and read its answer up to `cap` bytes. `bodiless`: the answer has no body, whatever its
    headers say, as to HEAD. The request is handed to the transport in one piece: it is in memory anyway, and a server
    may answer before it has read all of it."""
    connection = await _connection(connector, destination)
    protocol, transport, reusable = connection.protocol, connection.transport, False
    try:
        if protocol is None or transport is None or transport.is_closing():
            raise BrokenConnectionError(aiohttp.ServerDisconnectedError(), sent=False)
        if not isinstance(protocol, AnswerProtocol):
            raise TypeError(f"{type(protocol).__name__} does not limit what is read.")
        protocol.begin(cap, bodiless=bodiless)
        transport.write(request)
        message, content = await protocol.read()
        while 100 <= message.code < 200 and message.code != 101:
            message, content = await protocol.read()
        data, complete, broken = await _read(content, cap)
        reusable = complete and message.code != 101 and _was_sent(transport, request)
        protocol.end()
        return HttpAnswer(message.code, message.headers, data, complete, broken)
    except HttpProcessingError as error:
        raise BadAnswerError from error
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise BrokenConnectionError(error) from error
    finally:
        if reusable:
            connection.release()
        else:
            connection.close()


def _was_sent(transport: asyncio.Transport, request: bytes) -> bool:
    """Whether none of the request is left in memory; the next request would queue behind it. TLS does not count the
    encrypted bytes that it has passed to the transport below. So over TLS, only a request that fits into the buffers
    of the socket is known to be sent."""
    if transport.get_extra_info("sslcontext") is not None and len(request) > SMALL_REQUEST:
        return False
    return not transport.get_write_buffer_size()


async def _connection(
    connector: aiohttp.BaseConnector, destination: aiohttp.ClientRequest
) -> aiohttp.connector.Connection:
    """A new connection, or a kept one on which nothing has arrived since its last answer. Anything else would be taken
    for the answer to this request, and the end of the connection would fail it. Nothing has been sent yet, so another
    connection is no second attempt."""
    while True:
        connection = await connector.connect(destination, [], _TIMEOUT)
        protocol = connection.protocol
        if not isinstance(protocol, AnswerProtocol) or not protocol.used or protocol.is_silent():
            return connection
        connection.close()


async def _read(content: aiohttp.StreamReader, cap: int) -> tuple[bytes, bool, bool]:
    """What was read, whether it is complete, and whether the connection broke. With a cap of 0 only the status is
    wanted: a body that never comes is not waited for."""
    if not cap:
        return b"", content.at_eof(), False
    pieces: list[bytes] = []
    size = 0
    try:
        while not content.at_eof():
            pieces.append(await content.readany())
            size += len(pieces[-1])
            if size >= cap:
                break
    except (aiohttp.ClientError, OSError, RuntimeError):  # the last: the connection was closed here before it was read
        return b"".join(pieces), False, True
    return b"".join(pieces), size <= cap and content.at_eof(), False
