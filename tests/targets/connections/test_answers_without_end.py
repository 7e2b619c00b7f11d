"""Servers that send more than an answer, or an answer that goes wrong on its way: the call ends, and so does the
connection."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from detent.domain.target_access import PRIVATE_TOO
from detent.targets import answer_protocol, connectors
from detent.targets.answer_protocol import AnswerProtocol
from detent.targets.connectors import GuardedConnectors
from detent.targets.exchange import _read, destination_of, exchange
from detent.targets.http import HttpTargetRunner
from detent.targets.policies import FixedPolicy
from tests.targets.target_helpers import Received, Sink, failed, http_call, result_of, succeeded

HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 C\r\n\r\n"
MANY_HINTS = b"HTTP/1.1 103 E\r\n" + b"".join(b"Link-%d: %s\r\n" % (n, b"x" * 8000) for n in range(30)) + b"\r\n"
# What is under way between two sockets of this machine, and more than a call reads.
UNDER_WAY = 40_000_000


async def flood(writer: asyncio.StreamWriter, data: bytes) -> int:
    """How much was sent until the connection ended."""
    data *= max(1, 65_536 // len(data))
    sent = 0
    try:
        while sent < 2 * UNDER_WAY:
            writer.write(data)
            sent += len(data)
            await writer.drain()
    except ConnectionError:
        pass
    return sent


class Flood:
    """Answers with a beginning, and then with the same without end."""

    def __init__(self, sink: Sink, begins: bytes, goes_on: bytes, *, waits: bool = False) -> None:
        """`waits`: it goes on when `go` is set."""
        self._begins, self._goes_on = begins, goes_on
        self.go = asyncio.Event()
        if not waits:
            self.go.set()
        self.sent: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        sink.answer = self._write

    async def _write(self, _: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(self._begins)
        await self.go.wait()
        self.sent.set_result(await flood(writer, self._goes_on))


async def read_what_was_sent() -> None:
    """The server writes into a socket of the same machine: what it wrote is there, and read by the next turns."""
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.mark.parametrize("answer", [CONTINUE, MANY_HINTS], ids=["continue", "early-hints"])
async def test_informational_answers_without_end_fail_the_attempt(
    runner: HttpTargetRunner, sink: Sink, answer: bytes
) -> None:
    flooded = Flood(sink, b"", answer)
    async with asyncio.timeout(30):
        outcome = failed(await runner(http_call(sink.url)))
        assert outcome.retryable and "not valid HTTP" in outcome.error
        assert await flooded.sent < UNDER_WAY


async def test_an_extension_of_a_chunk_without_end_breaks_the_connection(runner: HttpTargetRunner, sink: Sink) -> None:
    flooded = Flood(sink, CHUNKED + b"3\r\nabc\r\n1;", b"x")
    async with asyncio.timeout(30):
        outcome = failed(await runner(http_call(sink.url)))
        assert outcome.error == f"The connection broke before the answer of {sink.url} was complete."
        assert result_of(outcome) == {"status": 200, "body": "abc", "truncated": True}
        assert await flooded.sent < UNDER_WAY


async def test_answers_without_end_on_a_kept_connection_end_it(
    runner: HttpTargetRunner, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connectors, "KEEP_ALIVE_SECONDS", 1000.0)
    flooded = Flood(sink, HEAD + b"Content-Length: 2\r\n\r\nok", CONTINUE, waits=True)
    async with asyncio.timeout(30):
        assert succeeded(await runner(http_call(sink.url)))["body"] == "ok"
        flooded.go.set()
        assert await flooded.sent < UNDER_WAY


async def test_an_answer_before_a_flood_counts(runner: HttpTargetRunner, sink: Sink) -> None:
    async def write(_: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"Content-Length: 2\r\n\r\nok" + CONTINUE * 20)

    sink.answer = write
    for connections in (1, 2):
        assert succeeded(await runner(http_call(sink.url)))["body"] == "ok"
        assert sink.connections == connections


@pytest.mark.parametrize("per_second", [1 << 40, 0], ids=["slow", "fast"])
async def test_any_number_of_informational_answers_may_come_if_they_come_slowly(
    runner: HttpTargetRunner, sink: Sink, monkeypatch: pytest.MonkeyPatch, per_second: int
) -> None:
    monkeypatch.setattr(answer_protocol, "BYTES_AROUND", 0)
    monkeypatch.setattr(answer_protocol, "BYTES_PER_SECOND", per_second)

    async def write(_: Received, writer: asyncio.StreamWriter) -> None:
        for _number in range(1000):
            writer.write(b"HTTP/1.1 102 Processing\r\n\r\n")
            await read_what_was_sent()
        writer.write(HEAD + b"Content-Length: 2\r\n\r\nok")

    sink.answer = write
    outcome = await runner(http_call(sink.url))
    if per_second:
        assert succeeded(outcome)["body"] == "ok"
    else:
        assert "not valid HTTP" in failed(outcome).error


@pytest.mark.parametrize("cap", [0, 1000, 3_000_000])
@pytest.mark.parametrize(
    "pieces", [(HEAD + b"\r\n", b"x" * 65_536), (CHUNKED, b"1\r\nx\r\n" * 10_000)], ids=["large", "chunks-of-a-byte"]
)
async def test_a_body_of_any_size_is_read_up_to_the_limit(sink: Sink, cap: int, pieces: tuple[bytes, bytes]) -> None:
    flooded = Flood(sink, *pieces)
    async with asyncio.timeout(60):
        runner = HttpTargetRunner(FixedPolicy(PRIVATE_TOO), max_result_bytes=cap)
        assert succeeded(await runner(http_call(sink.url))) == {"status": 200, "body": "x" * cap, "truncated": True}
        await flooded.sent
        await runner.close()


@pytest.mark.parametrize("rest", [b"zz\r\n", b"f" * 20 + b"\r\n", b"0\r\nBad trailer\r\n\r\n"])
async def test_a_body_that_goes_wrong_later_ends_the_attempt(runner: HttpTargetRunner, sink: Sink, rest: bytes) -> None:
    async def write(_: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED + b"3\r\nabc\r\n")
        await read_what_was_sent()
        writer.write(rest)

    sink.answer = write
    async with asyncio.timeout(10):
        outcome = failed(await runner(http_call(sink.url)))
    assert outcome.error == f"The connection broke before the answer of {sink.url} was complete."
    assert result_of(outcome) == {"status": 200, "body": "abc", "truncated": True}


async def test_a_body_on_a_connection_that_was_closed_here_is_broken() -> None:
    protocol = AnswerProtocol(asyncio.get_running_loop())
    body = aiohttp.StreamReader(protocol, 1000, loop=asyncio.get_running_loop())
    assert not protocol.connected
    assert await _read(body, 1000) == (b"", False, True)


async def test_connections_of_aiohttp_have_the_protocol_with_limits(sink: Sink) -> None:
    """It is put in place of a private attribute, and relies on others: another version may have none of them."""
    made = GuardedConnectors(connections=0)
    with made.connector(1, PRIVATE_TOO, "127.0.0.1") as connector:
        connection = await connector.connect(destination_of(sink.url), [], aiohttp.ClientTimeout())
        protocol = connection.protocol
        assert isinstance(protocol, AnswerProtocol) and not protocol.used
        for name in ("_buffer", "_exception", "_payload", "_loop"):
            assert hasattr(protocol, name), name
        connection.close()
    await made.close()


async def test_a_connection_without_limits_is_not_used(sink: Sink) -> None:
    async with aiohttp.TCPConnector() as connector:
        with pytest.raises(TypeError, match="ResponseHandler"):
            await exchange(connector, destination_of(sink.url), b"GET / HTTP/1.1\r\n\r\n", 1000)
    assert sink.received == []
