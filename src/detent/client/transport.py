"""What all clients of the REST API share: the server's address, one blocking exchange, and the meaning of an answer.

This uses the standard library only, so it imports fast and needs no event loop. Proxies named in the environment are
not used: a scheduler's API is internal. Every refusal becomes the class of `errors.py` with the same meaning, and an
unreachable server becomes `Unavailable`.
"""

from __future__ import annotations

import http.client
import json
import select
import socket
import threading
from collections.abc import Generator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from detent.client.tls import SYSTEM_TLS, ClientTls, tls_reason
from detent.errors import (
    Conflict,
    DetentError,
    ManyFaults,
    NotAuthorised,
    NotFound,
    OwnershipLost,
    Unavailable,
    UsageError,
)
from detent.version import __version__

Document = dict[str, Any]

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 30.0
PAGE_SIZE = 500  # the largest page of the API

ONCE = "Idempotency-Key"
_REPEATABLE = frozenset({"GET", "PUT", "DELETE"})

# Other statuses below 500 are wrong usage; from 500 on they are errors of the server.
_MEANINGS: Mapping[int, type[DetentError]] = {
    401: NotAuthorised,
    403: NotAuthorised,
    404: NotFound,
    409: Conflict,
    412: Conflict,
    429: Unavailable,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}

NO_HEADERS: Mapping[str, str] = {}


class ApiAddress:
    """The address of the server and the headers of every request."""

    def __init__(self, url: str, key: str | None) -> None:
        parts = urlsplit(url)
        try:
            self.port = parts.port
        except ValueError:
            self.port = -1
        if parts.scheme not in ("http", "https") or not parts.hostname or self.port == -1:
            shown = url.rpartition("@")[2]  # what is before it may be a password
            raise UsageError(f"{shown!r} is not the address of a server: give one such as http://127.0.0.1:8787.")
        if key is not None and not (key.isascii() and key.isprintable() and " " not in key):
            raise UsageError("The API key is not usable: give a key without spaces.")
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        self.scheme = parts.scheme
        self.host = parts.hostname
        self.prefix = parts.path.rstrip("/")
        self.url = f"{parts.scheme}://{host}{f':{self.port}' if self.port is not None else ''}{self.prefix}"
        self.headers = {"Accept": "application/json", "User-Agent": f"detent/{__version__}"}
        if key is not None:
            self.headers["Authorization"] = f"Bearer {key}"

    def too_slow(self, seconds: float) -> Unavailable:
        return Unavailable(f"The detent server at {self.url} did not answer within {seconds:g} s.")

    def unreachable(self, reason: str) -> Unavailable:
        """`reason` is empty when the connection was refused."""
        why = f" ({reason})" if reason else ""
        return Unavailable(
            f"No detent server answers at {self.url}{why}: start one with `detent serve`, or set DETENT_API_URL."
        )

    def no_tls(self, reason: str) -> Unavailable:
        return Unavailable(f"There is no secure connection to the detent server at {self.url}: {reason}.")

    def foreign(self, answer: ApiAnswer) -> Unavailable:
        return Unavailable(
            f"What answers at {self.url} is not a detent server (status {answer.status}, {answer.kind}): "
            "check DETENT_API_URL."
        )


class ApiAnswer(NamedTuple):
    """Status, content type, body, and what an upsert did."""

    status: int
    kind: str
    raw: bytes
    change: str | None = None

    @property
    def good(self) -> bool:
        return 200 <= self.status < 300

    def document(self, address: ApiAddress) -> Document:
        try:
            document = json.loads(self.raw) if self.kind.endswith("json") else None
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise address.foreign(self)
        return document

    def refusal(self, address: ApiAddress) -> DetentError:
        """The error that a problem document means."""
        problem = self.document(address)
        detail = str(problem.get("detail") or problem.get("title") or f"The server answered with status {self.status}.")
        meaning = _MEANINGS.get(self.status, UsageError if self.status < 500 else DetentError)
        if problem.get("type") == "/problems/stale":
            return OwnershipLost(detail)
        if meaning is UsageError and problem.get("errors"):
            return ManyFaults(
                detail, [UsageError(str(one["detail"]), str(one["pointer"])) for one in problem["errors"]]
            )
        if meaning is UsageError:
            return UsageError(detail, str(problem.get("pointer") or ""))
        if meaning is DetentError and problem.get("trace_id"):
            detail = f"{detail} (trace {problem['trace_id']})"
        return meaning(detail)


class ApiConnection:
    """One connection, kept alive between calls. Threads that share it take turns."""

    def __init__(
        self, url: str, key: str | None = None, *, timeout: float = ANSWER_SECONDS, tls: ClientTls = SYSTEM_TLS
    ) -> None:
        self.address = ApiAddress(url, key)
        self.timeout = timeout
        self._tls = tls
        self._connection = self._connection_to(self.address, tls)
        self._turn = threading.Lock()

    @staticmethod
    def _connection_to(address: ApiAddress, tls: ClientTls) -> http.client.HTTPConnection:
        if address.scheme == "https":
            return http.client.HTTPSConnection(address.host, address.port, context=tls.context())
        return http.client.HTTPConnection(address.host, address.port)

    @property
    def url(self) -> str:
        return self.address.url

    def close(self) -> None:
        self._connection.close()

    def exchange(
        self,
        method: str,
        target: str,
        body: bytes | None,
        patience: float = 0,
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> ApiAnswer:
        """Send one request and read its whole answer. `patience` is added to the timeout."""
        with self._turn:
            return self._exchange(method, target, body, patience, headers)

    def _exchange(
        self, method: str, target: str, body: bytes | None, patience: float, headers: Mapping[str, str]
    ) -> ApiAnswer:
        kept = self._still_open()
        try:
            return self._send(method, target, body, self.timeout + patience, headers)
        except TimeoutError as error:
            self._connection.close()
            raise self.address.too_slow(self.timeout + patience) from error
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            if kept and may_repeat(method, headers):
                return self._exchange(method, target, body, patience, headers)
            if self.address.scheme == "https" and (reason := tls_reason(error)) is not None:
                raise self.address.no_tls(reason) from error
            raise self.address.unreachable(_reason(error)) from error
        except BaseException:
            self._connection.close()  # an interrupted exchange leaves half an answer in the socket
            raise

    def stream(self, target: str, headers: Mapping[str, str], silent: float) -> Generator[str, None, None]:
        """The lines of an answer that stays open, on a connection of its own. It is broken when nothing comes for
        `silent` seconds."""
        connection = self._connection_to(self.address, self._tls)
        connection.timeout = CONNECT_SECONDS
        try:
            connection.connect()
            connection.sock.settimeout(silent)
            connection.request("GET", self.address.prefix + target, None, {**self.address.headers, **headers})
            answer = connection.getresponse()
            kind = answer.headers.get_content_type()
            if answer.status != 200 or kind != "text/event-stream":
                raise ApiAnswer(answer.status, kind, answer.read()).refusal(self.address)
            while line := answer.readline():
                yield line.decode().rstrip("\r\n")
        except TimeoutError as error:
            raise self.address.too_slow(silent) from error
        except (OSError, http.client.HTTPException) as error:
            if self.address.scheme == "https" and (reason := tls_reason(error)) is not None:
                raise self.address.no_tls(reason) from error
            raise self.address.unreachable(_reason(error)) from error
        finally:
            connection.close()

    def _still_open(self) -> bool:
        """Whether the connection of the last call can be used again; a dead one is closed."""
        channel = self._connection.sock
        if channel is None:
            return False
        if select.select([channel], [], [], 0)[0]:  # readable without a request: the server hung up
            self._connection.close()
            return False
        return True

    def _send(
        self, method: str, target: str, body: bytes | None, seconds: float, extra: Mapping[str, str]
    ) -> ApiAnswer:
        headers = {**self.address.headers, **extra}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self._connection.sock is None:
            self._connect()
        self._connection.sock.settimeout(seconds)
        try:
            self._connection.request(method, self.address.prefix + target, body, headers)
        except (BrokenPipeError, ConnectionResetError):
            if body is None:
                raise
            # The server refuses a body that is too large before it has read all of it; the refusal may have arrived.
        answer = self._connection.getresponse()
        change = answer.headers.get("Detent-Change")
        return ApiAnswer(answer.status, answer.headers.get_content_type(), answer.read(), change)

    def _connect(self) -> None:
        self._connection.timeout = CONNECT_SECONDS
        try:
            self._connection.connect()
        except TimeoutError as error:
            raise OSError(f"no connection within {CONNECT_SECONDS:g} s") from error


def may_repeat(method: str, headers: Mapping[str, str]) -> bool:
    """Whether a request may be sent again when a kept-alive connection turns out to be dead."""
    return method in _REPEATABLE or ONCE in headers


def encode(body: object) -> bytes:
    try:
        return json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise UsageError(f"The document cannot be sent as JSON: {error}.") from error


def segment(text: str) -> str:
    """A name or an id as one part of a path."""
    if not text:
        raise UsageError("The name is empty: give the name or the id.")
    return quote(text, safe="", errors="surrogatepass")


def with_query(path: str, filters: Mapping[str, object]) -> str:
    given = {name: value for name, value in filters.items() if value is not None and value != ()}
    query = urlencode(given, doseq=True, errors="surrogatepass")
    return f"{path}?{query}" if query else path


def _reason(error: Exception) -> str:
    if isinstance(error, ConnectionRefusedError):
        return ""
    if isinstance(error, socket.gaierror):
        return "the host name is not known"
    if isinstance(error, http.client.RemoteDisconnected):
        return "it hung up without an answer"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
