"""Limits what a server may send on a connection, in answers and outside them.

The protocol of aiohttp parses everything that arrives. It stops reading only while the body of an answer waits to be
read. So it would parse and keep an endless series of answers without a body (`100 Continue`), and endless bytes that
belong to no answer, such as the extension of a chunk. That blocks the loop on which all jobs fire.
"""

from __future__ import annotations

import asyncio
import select

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.http_exceptions import HttpProcessingError

# Answers that nothing has read yet. A server may send some informational ones before that to the request.
MOST_WAITING = 16
# A body in chunks of one byte takes six bytes for each. Around it are headers, and what is read ahead.
BYTES_PER_WANTED = 8
BYTES_AROUND = 2 << 20
# What comes slower than this costs nothing, and may go on: a server may send `102 Processing` all day.
BYTES_PER_SECOND = 16_384
# Parsed at once: 256 KiB of informational answers block the loop for 0.15 s, this much for a millisecond.
PIECE = 16_384


class AnswerProtocol(ResponseHandler):
    """Ends a connection on which too much arrives, and reports every failure to the reader of the body too."""

    used = False
    """A request was sent over this connection."""
    _received = 0
    _received_at_end = 0
    _most = BYTES_AROUND
    _began = 0.0

    def begin(self, cap: int, *, bodiless: bool) -> None:
        """The next answer is that to a request, and `cap` bytes of its body are wanted."""
        self.used = True
        self._received, self._most, self._began = 0, BYTES_PER_WANTED * cap + BYTES_AROUND, self._loop.time()
        self.set_response_params(skip_payload=bodiless, read_until_eof=True, auto_decompress=False)

    def end(self) -> None:
        """The answer has been read: what arrives from now on belongs to no request."""
        self._received_at_end = self._received

    def is_silent(self) -> bool:
        """Whether nothing has arrived since the last answer, not even the end of the connection. The loop may not have
        read it yet: without this check, every second call to a server that closes after each answer failed."""
        if self._buffer or self._received != self._received_at_end or self.transport is None:
            return False
        return not _has_arrived(self.transport)

    def close(self) -> None:
        """Drop what was not sent, and do not wait for the server. A server that does not read would keep the connection
        for 30 s, and with TLS also a server that does not close it in turn."""
        transport = self.transport
        super().close()
        if transport is not None and (transport.get_extra_info("sslcontext") or transport.get_write_buffer_size()):
            transport.abort()

    def data_received(self, data: bytes) -> None:
        if len(data) <= PIECE:
            self._parse(data)
            return
        for start in range(0, len(data), PIECE):
            if self._exception is not None:
                return
            self._parse(data[start : start + PIECE])

    def _parse(self, data: bytes) -> None:
        self._received += len(data)
        super().data_received(data)
        if len(self._buffer) > MOST_WAITING or (self._received > self._most and self._is_fast()):
            self._refuse()

    def _is_fast(self) -> bool:
        return self._received > self._most + BYTES_PER_SECOND * (self._loop.time() - self._began)

    def _refuse(self) -> None:
        """What was read stays readable: it may begin with the answer."""
        if self.transport is not None and self._exception is None:
            self.set_exception(HttpProcessingError(message="more than an answer"))
            self.transport.abort()

    def set_exception(self, exc: BaseException, exc_cause: BaseException | None = None) -> None:
        """Report the error to the reader of the body, too. aiohttp reports an error within a body only to the reader of
        the next answer, so the reader of the body would wait until its time limit."""
        if exc_cause is None:
            super().set_exception(exc)
        else:
            super().set_exception(exc, exc_cause)
        body = self._payload
        if body is not None and not body.is_eof() and body.exception() is None:
            body.set_exception(aiohttp.ClientPayloadError(str(exc)))


def _has_arrived(transport: asyncio.Transport) -> bool:
    """Asks the kernel, which takes 0.6 µs. Not `select`: it refuses descriptors over 1023."""
    poll = select.poll()
    poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
    return bool(poll.poll(0))
