"""A small synchronous client of the REST API, on the standard library alone: imported fast, without a loop.

One client is one connection, kept alive between calls; give each thread its own. Proxies named in the
environment are not used: a scheduler's API is inside. Every answer is the API's JSON as dicts and lists, every
refusal is the class of `errors.py` with the same meaning, and a server that cannot be reached is `Unavailable`.
"""

from __future__ import annotations

import http.client
import json
import select
import socket
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from detent.errors import Conflict, DetentError, NotAuthorised, NotFound, Unavailable, UsageError
from detent.version import __version__

Document = dict[str, Any]

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 30.0
PAGE_SIZE = 500  # the most the API gives at once

# Asking these twice is asking once, so a kept-alive connection that died meanwhile may be replaced silently.
_REPEATABLE = frozenset({"GET", "PUT", "DELETE"})

# What is not listed is wrong usage below 500, and a fault of the server from there on.
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


class Client:
    """`url` is where the server listens, such as http://127.0.0.1:8787; `key` is sent as a bearer token."""

    def __init__(self, url: str, key: str | None = None, *, timeout: float = ANSWER_SECONDS) -> None:
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.scheme not in ("http", "https") or not parts.hostname or port == -1:
            raise UsageError(f"{url!r} is not the address of a server: give one such as http://127.0.0.1:8787.")
        if key is not None and not (key.isascii() and key.isprintable() and " " not in key):
            raise UsageError("The API key is not usable: give a key without spaces.")
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        self.url = f"{parts.scheme}://{host}{f':{port}' if port is not None else ''}{parts.path.rstrip('/')}"
        self.timeout = timeout
        self.change: str | None = None
        self._prefix = parts.path.rstrip("/")
        self._headers = {"Accept": "application/json", "User-Agent": f"detent/{__version__}"}
        if key is not None:
            self._headers["Authorization"] = f"Bearer {key}"
        self._connection = _connection(parts.scheme, parts.hostname, port)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    # -- jobs

    def create_job(self, document: Mapping[str, Any]) -> Document:
        return self._ask("POST", "/api/v1/jobs", body=document)

    def put_job(self, name: str, document: Mapping[str, Any]) -> Document:
        """Make the job of this name be this; `change` then says created, updated or unchanged."""
        return self._ask("PUT", f"/api/v1/jobs/by-name/{_segment(name)}", body=document)

    def list_jobs(self, **filters: object) -> Document:
        return self._ask("GET", "/api/v1/jobs", filters)

    def get_job(self, job: str) -> Document:
        return self._ask("GET", _job(job))

    def delete_job(self, job: str) -> Document:
        return self._ask("DELETE", _job(job))

    def pause_job(self, job: str, reason: str | None = None) -> Document:
        return self._ask("POST", f"{_job(job)}/pause", body={"reason": reason} if reason else None)

    def resume_job(self, job: str) -> Document:
        return self._ask("POST", f"{_job(job)}/resume")

    def trigger_job(self, job: str) -> Document:
        """Start a run now, beside the schedule; returns the run."""
        return self._ask("POST", f"{_job(job)}/trigger")

    def job_runs(self, job: str, **filters: object) -> Document:
        return self._ask("GET", f"{_job(job)}/runs", filters)

    # -- runs

    def list_runs(self, **filters: object) -> Document:
        return self._ask("GET", "/api/v1/runs", filters)

    def get_run(self, run: str) -> Document:
        return self._ask("GET", _run(run))

    def cancel_run(self, run: str) -> Document:
        return self._ask("POST", f"{_run(run)}/cancel")

    # -- keys and tenants

    def create_key(self, document: Mapping[str, Any]) -> Document:
        """Make a key; its text, `key`, is told only here."""
        return self._ask("POST", "/api/v1/keys", body=document)

    def list_keys(self, **filters: object) -> Document:
        return self._ask("GET", "/api/v1/keys", filters)

    def revoke_key(self, key: str, tenant: str | None = None) -> None:
        self._ask("DELETE", f"/api/v1/keys/{_segment(key)}", {"tenant": tenant})

    def create_tenant(self, name: str) -> Document:
        return self._ask("POST", "/api/v1/tenants", body={"name": name})

    def list_tenants(self, **filters: object) -> Document:
        return self._ask("GET", "/api/v1/tenants", filters)

    # -- the server itself

    def version(self) -> Document:
        return self._ask("GET", "/version")

    def live(self) -> bool:
        return self._exchange("GET", "/livez", None)[0] == 200

    def ready(self) -> Document:
        """What `/readyz?verbose` says, ready or not."""
        status, kind, raw = self._exchange("GET", "/readyz?verbose", None)
        return self._document(status, kind, raw)

    # -- one call

    def _ask(
        self, method: str, path: str, filters: Mapping[str, object] | None = None, body: object = None
    ) -> Document:
        query = _query(filters or {})
        status, kind, raw = self._exchange(method, f"{path}?{query}" if query else path, body)
        if 200 <= status < 300:
            return self._document(status, kind, raw) if raw else {}
        raise self._refusal(status, kind, raw)

    def _exchange(self, method: str, target: str, body: object) -> tuple[int, str, bytes]:
        """One request and its whole answer: status, content type, body."""
        sent = None if body is None else _encode(body)
        kept = self._still_open()
        try:
            return self._send(method, target, sent)
        except TimeoutError as error:
            self._connection.close()
            raise Unavailable(f"The detent server at {self.url} did not answer within {self.timeout:g} s.") from error
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            if kept and method in _REPEATABLE:
                return self._exchange(method, target, body)
            raise self._unreachable(error) from error
        except BaseException:
            self._connection.close()  # an interrupted exchange leaves half an answer on the wire
            raise

    def _still_open(self) -> bool:
        """Whether the connection of the last call can be used again; a dead one is put away."""
        channel = self._connection.sock
        if channel is None:
            return False
        if select.select([channel], [], [], 0)[0]:  # readable while nothing was asked: the server hung up
            self._connection.close()
            return False
        return True

    def _send(self, method: str, target: str, sent: bytes | None) -> tuple[int, str, bytes]:
        headers = dict(self._headers)
        if sent is not None:
            headers["Content-Type"] = "application/json"
        if self._connection.sock is None:
            self._connect()
        try:
            self._connection.request(method, self._prefix + target, sent, headers)
        except (BrokenPipeError, ConnectionResetError):
            if sent is None:
                raise
            # A body that is too large is refused before all of it was read, and the refusal may have arrived.
        answer = self._connection.getresponse()
        self.change = answer.headers.get("Detent-Change")
        return answer.status, answer.headers.get_content_type(), answer.read()

    def _connect(self) -> None:
        self._connection.timeout = CONNECT_SECONDS
        try:
            self._connection.connect()
        except TimeoutError as error:
            raise OSError(f"no connection within {CONNECT_SECONDS:g} s") from error
        self._connection.sock.settimeout(self.timeout)

    # -- what an answer means

    def _document(self, status: int, kind: str, raw: bytes) -> Document:
        try:
            document = json.loads(raw) if kind.endswith("json") else None
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise Unavailable(
                f"What answers at {self.url} is not a detent server (status {status}, {kind}): check DETENT_API_URL."
            )
        return document

    def _refusal(self, status: int, kind: str, raw: bytes) -> DetentError:
        problem = self._document(status, kind, raw)
        detail = str(problem.get("detail") or problem.get("title") or f"The server answered with status {status}.")
        meaning = _MEANINGS.get(status, UsageError if status < 500 else DetentError)
        if meaning is UsageError:
            return UsageError(detail, str(problem.get("pointer") or ""))
        if meaning is DetentError and problem.get("trace_id"):
            detail = f"{detail} (trace {problem['trace_id']})"
        return meaning(detail)

    def _unreachable(self, error: Exception) -> Unavailable:
        reason = ""
        if not isinstance(error, ConnectionRefusedError):
            reason = f" ({_reason(error)})"
        return Unavailable(
            f"No detent server answers at {self.url}{reason}: start one with `detent serve`, or set DETENT_API_URL."
        )


def gather(fetch: Callable[..., Document], limit: int, cursor: str | None = None) -> Document:
    """One page of up to `limit` items, however many pages of the API it takes.

    `fetch` is a listing verb of the client that takes `limit` and `cursor`.
    """
    items: list[Document] = []
    while True:
        page = fetch(limit=min(limit - len(items), PAGE_SIZE), cursor=cursor)
        items += page["items"]
        cursor = page["next_cursor"]
        if cursor is None or len(items) >= limit:
            return {"items": items, "next_cursor": cursor}


def _connection(scheme: str, host: str, port: int | None) -> http.client.HTTPConnection:
    if scheme == "https":
        return http.client.HTTPSConnection(host, port)
    return http.client.HTTPConnection(host, port)


def _encode(body: object) -> bytes:
    try:
        return json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise UsageError(f"The document cannot be sent as JSON: {error}.") from error


def _segment(text: str) -> str:
    if not text:
        raise UsageError("The name is empty: give the name or the id.")
    return quote(text, safe="", errors="surrogatepass")


def _job(job: str) -> str:
    return f"/api/v1/jobs/{_segment(job)}"


def _run(run: str) -> str:
    return f"/api/v1/runs/{_segment(run)}"


def _query(filters: Mapping[str, object]) -> str:
    given = {name: value for name, value in filters.items() if value is not None and value != ()}
    return urlencode(given, doseq=True, errors="surrogatepass")


def _reason(error: Exception) -> str:
    if isinstance(error, socket.gaierror):
        return "the host name is not known"
    if isinstance(error, http.client.RemoteDisconnected):
        return "it hung up without an answer"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
