"""HTTP/1.1 on one connection, with limits on what a client may cost before its request is complete.

uvicorn's parser keeps the headers of a request until they are complete, however many there are. Here the bytes are
counted before the parser sees them: after `max_header_bytes` without progress the request is refused. Progress is the
end of the headers, a part of the body or the start of a chunk, so the same count ends headers, chunk extensions and
trailers that never end. What a refused client sends afterwards is ignored.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable
from typing import Any, cast

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from detent.api import problems
from detent.api.problems import Refusal
from detent.node.connections import PROBES, SMALL_BODY_BYTES, Connections, Lane
from detent.runtime.clock import monotonic

MAX_HEADERS = 100
MAX_TARGET_BYTES = 16_384
MAX_PIPELINED = 16
BODY_BYTES_PER_SECOND = 1_048_576  # a large body has longer
IDLE_SECONDS = 5
CLOSE_SECONDS = 5.0
IGNORED_BYTES = 262_144  # of a client that goes on sending after it was refused; then it has to wait
SEND_SECONDS = 30.0
READ_BYTES_PER_SECOND = 1024  # a client that reads its answer more slowly is disconnected


class Phase(enum.Enum):
    """What the parser expects next."""

    REQUEST = "request"
    HEADERS = "headers"
    BODY = "body"


class _Refused(Exception):  # noqa: N818 - an answer, not an error
    """Leaves the parser; None: the client gets the answers to its earlier requests and nothing else."""

    def __init__(self, refusal: Refusal | None) -> None:
        super().__init__()
        self.refusal = refusal


class _AnswerTransport:
    """What uvicorn writes an answer to. To close is left to the protocol, which knows what the client still sends.
    `finished`: the connection is being closed, and what a handler still writes is dropped."""

    def __init__(self, transport: asyncio.Transport, finish: Callable[[], None]) -> None:
        self._transport = transport
        self.is_closing = transport.is_closing
        self.close = finish
        self.finished = False

    def write(self, data: bytes) -> None:
        if not self.finished and not self._transport.is_closing():
            self._transport.write(data)


class LimitedProtocol(HttpToolsProtocol):
    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        heard: bool = False,
        brings_probe: bool = False,
    ) -> None:
        """`heard`: something has arrived with it. `brings_probe`: that is a complete request for a probe."""
        super().__init__(config, server_state, app_state, _loop)
        assert isinstance(server_state, Connections)
        self.peer = ""
        self.heard = heard
        self._brings_probe = brings_probe
        self.since = monotonic()
        self._all = server_state
        self._limits = server_state.settings
        self._phase = Phase.HEADERS
        self._answering: RequestResponseCycle | None = None
        self._lane: Lane | None = None
        self._for_probe = False
        self._refused = False
        self._unparsed = self._length = self._received = self._ignored = 0
        self._closing_at: float | None = None
        self._unread_at: tuple[float, int] | None = None

    # --- the connection ---

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        self._answers = _AnswerTransport(transport, self._finish)
        self._for_probe = not self._all.admit(self)
        self.enter(None if self._brings_probe else self._all.reading)

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.forget(self)
        self.enter(None)
        self._drop_pipeline()
        self._disconnect_handler()
        super().connection_lost(exc)
        # They refer to this object. Without a cycle, all of it is freed now and not at the next collection of garbage.
        del self._answers
        self.cycle = self._answering = None  # type: ignore[assignment]  # as in uvicorn

    def _drop_pipeline(self) -> None:
        """These requests never start, so no handler releases their bodies."""
        while self.pipeline:
            self._all.release(self.pipeline.pop()[0].scope["state"])

    def _disconnect_handler(self) -> None:
        """uvicorn reports a disconnect to the newest request only, and another one may be answered before it: a stream
        would never end."""
        if self._answering is not None and not self._answering.response_complete:
            self._answering.disconnected = True
            self._answering.message_event.set()

    def shutdown(self) -> None:
        if self._closing_at is None:
            super().shutdown()
        else:
            self.transport.close()

    def enter(self, lane: Lane | None) -> None:
        """Wait for the client in this lane; None: the server has something to do."""
        if lane is self._lane:
            return
        if self._lane is not None:
            self._lane.pop(self, None)
        if lane is not None:
            lane[self] = None
        self._lane = lane

    def data_received(self, data: bytes) -> None:
        self.heard = True
        if self._refused:
            self._ignore(len(data))
            return
        self._unset_keepalive_if_required()
        if self._phase is Phase.REQUEST:
            self._begin(Phase.HEADERS)
        try:
            self._feed(data)
        except httptools.HttpParserUpgrade:
            self._ignore_the_rest()
        except httptools.HttpParserError as error:
            self._refuse(_refusal_in(error))
        except _Refused as error:
            self._refuse(error.refusal)
        self._wait()

    def _feed(self, data: bytes) -> None:
        limit = self._limits.max_header_bytes
        if self._unparsed + len(data) < limit:
            self._unparsed += len(data)
            self.parser.feed_data(data)
            return
        rest = memoryview(data)
        while rest:
            piece = rest[: limit - self._unparsed]
            rest = rest[len(piece) :]
            self._unparsed += len(piece)
            self.parser.feed_data(piece)
            if self._unparsed >= limit:
                raise _Refused(_headers_too_large(f"larger than {limit} bytes"))

    def _begin(self, phase: Phase) -> None:
        """Start a phase of waiting for the client: the connection goes to the end of its lane, even if it is in it
        already."""
        self._phase, self.since = phase, monotonic()
        self.enter(None)

    def _wait(self) -> None:
        if self.transport.is_closing():
            self.enter(None)
        elif self._closing_at is not None or (self._phase is Phase.HEADERS and not self._refused):
            self.enter(self._all.reading)
        elif self._refused:
            self.enter(None)
        elif self._phase is Phase.BODY:
            self.enter(self._all.bodies)
        elif self.cycle is None or self.cycle.response_complete:
            self.since = monotonic()
            self.enter(self._all.idle)
        else:
            self.enter(None)

    # --- what the parser found ---

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._phase is Phase.REQUEST:  # pipelined: it came with the request before it
            self._begin(Phase.HEADERS)

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > MAX_TARGET_BYTES:
            detail = f"The path and query are longer than {MAX_TARGET_BYTES} bytes: shorten them."
            raise _Refused(Refusal(414, "uri-too-long", detail))

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._phase is Phase.BODY:
            return  # a trailer
        if len(self.headers) >= MAX_HEADERS:
            raise _Refused(_headers_too_large(f"more than {MAX_HEADERS}"))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._unparsed = 0
        self._check_request()
        super().on_headers_complete()  # raises if the target is not one of HTTP: there is no request then
        self._begin(Phase.BODY)
        # It has all of a transport that an answer needs.
        self.cycle.transport = cast("asyncio.Transport", self._answers)
        if not self.pipeline:
            self._answering = self.cycle
        if self._for_probe:
            self.cycle.keep_alive = False

    def _check_request(self) -> None:
        if self._for_probe and self.url.partition(b"?")[0] not in PROBES:
            raise _Refused(_busy("The server has as many connections as it may"))
        if len(self.pipeline) >= MAX_PIPELINED:
            raise _Refused(None)
        # The parser has checked that it is a number.
        self._length = int(next((value for name, value in self.headers if name == b"content-length"), 0))
        large = max(0, self._length - SMALL_BODY_BYTES)
        if large > self._all.max_held:
            raise _Refused(_body_too_large(self._all.max_held))
        if large and not self._all.fits(large):
            raise _Refused(_busy("The server holds as many bytes of requests as it may"))

    def on_chunk_header(self) -> None:
        self._unparsed = 0

    def on_body(self, body: bytes) -> None:
        self._unparsed = 0
        if self.cycle.response_complete or self.transport.is_closing():
            return
        self._received += len(body)
        # One small body per connection, not one for each request that waits on it.
        large = len(body) if self.pipeline else min(len(body), self._received - SMALL_BODY_BYTES)
        if large > 0:
            if not self._all.fits(large):
                raise _Refused(_busy("The server holds as many bytes of requests as it may"))
            self._all.hold(self.cycle.scope["state"], large)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._phase, self._unparsed, self._received = Phase.REQUEST, 0, 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        if self.pipeline:
            self._answering = self.pipeline[-1][0]
        super().on_response_complete()
        if self._phase is Phase.REQUEST:
            self._wait()

    # --- refusals ---

    def _refuse(self, refusal: Refusal | None) -> None:
        """Answer, if nothing else has to be or was answered, and read nothing more."""
        self._refused = True
        self._all.count(refusal.kind.slug if refusal else "pipelined")
        begun = self._phase is Phase.BODY and not self.pipeline  # its handler runs
        if self._phase is Phase.BODY and self.pipeline:  # it waits behind others, and is not started
            self._all.release(self.pipeline.popleft()[0].scope["state"])
        before = self.pipeline[0][0] if self.pipeline else self._answering
        if not begun and before is not None and not before.response_complete:
            before.keep_alive = False  # the requests before this one are answered first
            return
        if refusal is not None and not (begun and self.cycle.response_started):
            self._answer(refusal)
        self._finish()

    def _finish(self) -> None:
        """Close the connection, but not before a client that is still sending has had time to read the answer: closing
        what was not read yet resets the connection, and the answer is lost."""
        self._answers.finished = True
        self._drop_pipeline()
        self._disconnect_handler()
        if self._phase is Phase.REQUEST or self.transport.is_closing():
            self.transport.close()
        elif self._closing_at is None:
            self._refused, self._closing_at = True, monotonic()
            self.enter(self._all.reading)
            self.flow.resume_reading()
            try:
                self.transport.write_eof()
            except OSError:  # the client has left
                self.transport.abort()

    def _ignore(self, size: int) -> None:
        self._ignored += size
        if self._ignored > IGNORED_BYTES:
            self.flow.pause_reading()

    def _ignore_the_rest(self) -> None:
        """The client wants another protocol. It gets the answer to its request, and nothing else."""
        self._refused = True
        self.cycle.keep_alive = False

    def _answer(self, refusal: Refusal) -> None:
        response = problems.answer(refusal, {})
        headers = [*self.server_state.default_headers, *response.raw_headers, (b"connection", b"close")]
        lines = [name + b": " + value + b"\r\n" for name, value in headers]
        self.transport.write(b"".join([STATUS_LINE[response.status_code], *lines, b"\r\n", bytes(response.body)]))

    # --- time ---

    def check(self, now: float) -> None:
        """End the connection if its client takes too long."""
        if self._closing_at is not None or self.transport.is_closing():
            self._check_closing(now)
            return
        self._check_reader(now)
        waited = now - self.since
        if self._refused:
            return
        if self._phase is Phase.HEADERS and waited > self._limits.request_header_seconds:
            self._headers_overdue()
        elif self._phase is Phase.BODY and waited > self._body_seconds():
            detail = f"The body did not arrive within {self._body_seconds():.0f} seconds: send it again, faster."
            self._refuse(Refusal(408, "body-too-slow", detail))
        elif self._lane is self._all.idle and waited > IDLE_SECONDS:
            self.transport.close()

    def _headers_overdue(self) -> None:
        if not self._unparsed:
            self.transport.close()  # nothing was sent
            return
        seconds = f"{self._limits.request_header_seconds:g} seconds"
        detail = f"The headers did not arrive within {seconds}: send the request again, faster."
        self._refuse(Refusal(408, "headers-too-slow", detail))

    def _body_seconds(self) -> float:
        length = min(max(self._length, self._received), self._all.max_held)
        return self._limits.request_body_seconds + length / BODY_BYTES_PER_SECOND

    def _check_closing(self, now: float) -> None:
        """Closing waits until the client has read everything, which it may never do."""
        if self._closing_at is None:
            self._closing_at = now
        elif now - self._closing_at > CLOSE_SECONDS:
            self.transport.abort()

    def _check_reader(self, now: float) -> None:
        unread = self.unread_bytes()
        if not unread or self._unread_at is None:
            self._unread_at = (now, unread) if unread else None
            return
        began, before = self._unread_at
        if now - began > SEND_SECONDS:
            if before - unread < (now - began) * READ_BYTES_PER_SECOND:
                self._all.count("answer not read")
                self.transport.abort()
            self._unread_at = now, unread

    def unread_bytes(self) -> int:
        """The part of the answer that waits for the client, if it is more than a connection normally buffers."""
        return self.transport.get_write_buffer_size() if self.flow.write_paused else 0

    def resume_writing(self) -> None:
        self._unread_at = None
        super().resume_writing()


def _refusal_in(error: httptools.HttpParserError) -> Refusal | None:
    """The refusal behind a parser error. This is a separate function, because a local variable of `data_received` would
    refer to its own frame through the traceback, and keep the received bytes until the next garbage collection."""
    cause = error.__context__
    return cause.refusal if isinstance(cause, _Refused) else _malformed()


def _malformed() -> Refusal:
    detail = "The request is not HTTP/1.1: check the request line and the headers."
    return Refusal(400, "malformed-request", detail)


def _headers_too_large(what: str) -> Refusal:
    return Refusal(431, "headers-too-large", f"The request line and headers are {what}: send less in them.")


def _body_too_large(limit: int) -> Refusal:
    return Refusal(413, "body-too-large", f"The body is larger than {limit} bytes: send it in parts.")


def _busy(what: str) -> Refusal:
    return Refusal(503, "busy", f"{what}: wait a second and try again.", {"Retry-After": problems.RETRY_SECONDS})
