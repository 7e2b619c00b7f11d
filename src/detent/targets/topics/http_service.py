"""HTTP requests of publishers whose broker is a service with an HTTP API, on sockets of the guarded dial."""

from __future__ import annotations

import asyncio
import socket
import ssl
from io import BytesIO
from typing import TYPE_CHECKING, NamedTuple

import aiohttp
from aiohttp.client_proto import ResponseHandler
from yarl import URL

from detent.domain.run import Failed
from detent.domain.topics import has_tls, server_of
from detent.targets.breaker import Unanswered
from detent.targets.http import UNANSWERED_STATUSES, retry_after_seconds
from detent.targets.text import one_line
from detent.targets.topics.publisher import BrokerAddress, Dial

if TYPE_CHECKING:
    from aiohttp.tracing import Trace

CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 30.0
CONNECTIONS = 32
KEEP_ALIVE_SECONDS = 15.0
MAX_ANSWER_BYTES = 1 << 20
LARGE_BODY_BYTES = 1 << 20


class ServiceAnswer(NamedTuple):
    status: int
    body: bytes
    retry_after: float | None = None


class UnansweredError(Exception):
    """The request was sent, and no answer came back: the service may have obeyed it."""


class _NotConnectedError(Exception):
    """Carries an error of the connection past the client, which would hide it in one of its own."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


class DialedConnector(aiohttp.BaseConnector):
    """A connector whose connections are dialled: it resolves no name itself."""

    def __init__(self, dial: Dial, tls: ssl.SSLContext | None) -> None:
        super().__init__(limit=CONNECTIONS, keepalive_timeout=KEEP_ALIVE_SECONDS)
        self._dial = dial
        self._tls = tls

    async def _create_connection(
        self, req: aiohttp.ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout
    ) -> ResponseHandler:
        host, port = req.url.raw_host or "", req.url.port or 443
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                return await self._connected(host, await self._dial(host, port))
        except OSError as error:  # TimeoutError is one
            raise _NotConnectedError(error) from error

    async def _connected(self, host: str, sock: socket.socket) -> ResponseHandler:
        name = host if self._tls is not None else None
        try:
            _, protocol = await self._loop.create_connection(
                self._factory, sock=sock, ssl=self._tls, server_hostname=name
            )
        except BaseException:
            sock.close()
            raise
        return protocol


class ServiceRequests:
    """Requests to one origin, which is `https` exactly when there is a TLS context."""

    def __init__(self, origin: URL, dial: Dial, tls: ssl.SSLContext | None) -> None:
        self.origin = origin
        self._dial = dial
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None

    @property
    def peer(self) -> str:
        """As sentences name it."""
        return self.origin.authority

    async def post(self, path: str, body: bytes, headers: dict[str, str]) -> ServiceAnswer:
        """Raises OSError if no connection could be made, so that nothing was sent, and otherwise UnansweredError. A
        request is sent once."""
        url = self.origin.join(URL(path, encoded=True))
        data = body if len(body) < LARGE_BODY_BYTES else BytesIO(body)  # which is written in parts
        try:
            async with self._open().post(url, data=data, headers=headers, allow_redirects=False) as answer:
                content = await answer.content.read(MAX_ANSWER_BYTES)
                while len(content) < MAX_ANSWER_BYTES and (more := await answer.content.read(MAX_ANSWER_BYTES)):
                    content += more
                wait = retry_after_seconds(answer.headers.get("Retry-After"), answer.headers.get("Date"))
                return ServiceAnswer(answer.status, content, wait)
        except _NotConnectedError as error:
            raise error.error from None
        except TimeoutError:
            raise UnansweredError(f"{self.peer} did not answer within {ANSWER_SECONDS:g} s.") from None
        except (aiohttp.ClientError, OSError) as error:
            raise UnansweredError(f"{self.peer} gave no usable answer: {error or type(error).__name__}.") from error

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=DialedConnector(self._dial, self._tls),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=ANSWER_SECONDS),
                trust_env=False,
                middlewares=(_send_once,),
            )
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


async def _send_once(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """The client would repeat some requests when a kept connection breaks."""
    try:
        return await handler(request)
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise UnansweredError(f"The connection to {request.url.authority} broke before it answered.") from error


def requests_to(address: BrokerAddress, dial: Dial) -> ServiceRequests:
    """Requests to the server of an address."""
    host, _ = server_of(address.url)
    name = f"[{host}]" if ":" in host else host
    port = f":{address.url.explicit_port}" if address.url.explicit_port else ""
    if not has_tls(str(address.url)):
        return ServiceRequests(URL(f"http://{name}{port}/"), dial, None)
    return ServiceRequests(URL(f"https://{name}{port}/"), dial, address.tls or ssl.create_default_context())


def failure_of_service(
    peer: str, answer: ServiceAnswer, words: str, *, retryable: bool | None = None
) -> Failed | Unanswered:
    """A refusal in the words of the service. Without `retryable`, its status decides as for HTTP targets."""
    may_help = answer.status in (408, 425, 429) or answer.status >= 500 if retryable is None else retryable
    sentence = f"{peer} refused the message with status {answer.status}: {one_line(words).rstrip('.')}."
    failed = Failed(sentence, retryable=may_help, retry_after=answer.retry_after if may_help else None)
    away = retryable is None and answer.status in UNANSWERED_STATUSES
    return Unanswered(failed, sent=True) if away else failed
