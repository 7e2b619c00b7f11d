"""Servers that mean harm or are broken: each costs one failed or truncated run, never more."""

from __future__ import annotations

import asyncio
import gzip
import socket
import ssl
import struct
from pathlib import Path

import pytest

from detent.domain.job import HttpTarget, TargetTls
from detent.domain.target_url import TargetError
from detent.targets.exchange import header_lines
from detent.targets.http import HttpTargetRunner
from tests.support.certificates import Authority
from tests.targets.target_helpers import Received, Sink, call_of, failed, http_call, result_of, succeeded

HEAD = b"HTTP/1.1 200 OK\r\n"


def says(sink: Sink, data: bytes, *, then_close: bool = True) -> None:
    async def write(_: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()
        if then_close:
            writer.close()

    sink.answer = write


async def endless(_: Received, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"\r\n")
    while True:
        writer.write(b"x" * 65_536)
        await writer.drain()


async def test_an_endless_answer_is_cut_and_its_connection_closed(runner: HttpTargetRunner, sink: Sink) -> None:
    sink.answer = endless
    stored = succeeded(await runner(http_call(sink.url)))
    assert stored == {"status": 200, "body": "x" * 1000, "truncated": True}
    await asyncio.wait_for(sink.gone.wait(), 5)


async def test_endless_chunks_are_cut_too(runner: HttpTargetRunner, sink: Sink) -> None:
    async def chunks(_: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"4\r\nabcd\r\n")
            await writer.drain()

    sink.answer = chunks
    assert succeeded(await runner(http_call(sink.url)))["truncated"] is True
    await asyncio.wait_for(sink.gone.wait(), 5)


async def test_a_trickling_response_ends_with_the_timeout(runner: HttpTargetRunner, sink: Sink) -> None:
    async def trickle(_: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.01)

    sink.answer = trickle
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await runner(http_call(sink.url))
    await asyncio.wait_for(sink.gone.wait(), 5)


async def test_a_trickle_past_the_cap_is_not_waited_for(runner: HttpTargetRunner, sink: Sink) -> None:
    async def stall(_: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"Content-Length: 5000\r\n\r\n" + b"x" * 1000)
        await writer.drain()

    sink.answer = stall
    assert succeeded(await runner(http_call(sink.url)))["truncated"] is True


async def test_a_compressed_answer_is_not_unpacked(runner: HttpTargetRunner, sink: Sink) -> None:
    bomb = gzip.compress(b"\0" * 50_000_000)
    assert len(bomb) > 1000
    says(sink, HEAD + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb) + bomb)
    stored = succeeded(await runner(http_call(sink.url)))
    assert stored["truncated"] is True
    assert stored["body"].startswith("\x1f\ufffd")
    assert len(stored["body"].encode()) <= 1000


@pytest.mark.parametrize(
    "head",
    [
        b"X-Large: " + b"x" * 100_000 + b"\r\n",
        b"".join(b"X-%d: x\r\n" % number for number in range(10_000)),
        b"No colon at all\r\n",
        b"Content-Length: -5\r\n",
        b"Content-Length: 5\r\nContent-Length: 6\r\n",
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n",
    ],
    ids=["one-large", "many", "no-colon", "negative-length", "two-lengths", "length-and-chunks", "no-chunk"],
)
async def test_headers_that_are_too_large_or_wrong_fail_the_attempt(
    runner: HttpTargetRunner, sink: Sink, head: bytes
) -> None:
    says(sink, HEAD + head + b"\r\nabc")
    outcome = failed(await runner(http_call(sink.url)))
    assert outcome.retryable
    assert outcome.error.endswith(".")
    assert len(outcome.error) < 300


async def test_what_is_not_http_fails_the_attempt(runner: HttpTargetRunner, sink: Sink) -> None:
    says(sink, b"SSH-2.0-OpenSSH_9.9\r\n")
    outcome = failed(await runner(http_call(sink.url)))
    assert "not valid HTTP" in outcome.error
    assert outcome.retryable


@pytest.mark.parametrize(
    "body",
    [
        b"Content-Length: 100\r\n\r\nabc",
        b"Transfer-Encoding: chunked\r\n\r\n5\r\nabc",
    ],
    ids=["short", "half-a-chunk"],
)
async def test_a_success_that_breaks_off_is_not_believed(runner: HttpTargetRunner, sink: Sink, body: bytes) -> None:
    says(sink, HEAD + body)
    outcome = failed(await runner(http_call(sink.url)))
    assert outcome.error == f"The connection broke before the answer of {sink.url} was complete."
    assert outcome.retryable
    assert result_of(outcome)["status"] == 200


async def test_a_failure_that_breaks_off_keeps_its_status(runner: HttpTargetRunner, sink: Sink) -> None:
    says(sink, b"HTTP/1.1 404 Not Found\r\nContent-Length: 100\r\n\r\nabc")
    outcome = failed(await runner(http_call(sink.url)))
    assert outcome.error == f"HTTP 404 from {sink.url}"
    assert result_of(outcome) == {"status": 404, "body": "abc", "truncated": True}


async def test_more_bytes_than_announced_do_not_reach_the_next_call(runner: HttpTargetRunner, sink: Sink) -> None:
    says(
        sink,
        HEAD + b"Content-Length: 2\r\n\r\nok" + HEAD + b"Content-Length: 4\r\n\r\nevil",
        then_close=False,
    )
    for _ in range(3):
        assert succeeded(await runner(http_call(sink.url)))["body"] == "ok"


@pytest.mark.parametrize("unasked", [HEAD + b"Content-Length: 4\r\n\r\nevil", b"HTTP/1.1 408 Req"], ids=["all", "half"])
async def test_an_answer_that_nobody_asked_for_is_not_taken_for_that_to_the_next_call(
    runner: HttpTargetRunner, sink: Sink, unasked: bytes
) -> None:
    sent = asyncio.Event()

    async def twice(_: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"Content-Length: 2\r\n\r\nok")
        await asyncio.sleep(0.05)
        writer.write(unasked)
        sent.set()

    sink.answer = twice
    for connections in (1, 2):
        assert succeeded(await runner(http_call(sink.url)))["body"] == "ok"
        assert sink.connections == connections
        await sent.wait()
        await asyncio.sleep(0.05)  # until it has been read
        sent.clear()


async def test_a_connection_that_was_switched_to_another_protocol_is_not_used_again(
    runner: HttpTargetRunner, sink: Sink
) -> None:
    says(sink, b"HTTP/1.1 101 Switching Protocols\r\n\r\n", then_close=False)
    for connections in (1, 2):
        assert "HTTP 101" in failed(await runner(http_call(sink.url))).error
        assert sink.connections == connections


async def test_a_server_that_speaks_first_is_connected_to_once(runner: HttpTargetRunner) -> None:
    greeted = 0

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal greeted
        greeted += 1
        writer.write(b"220 mail.example ESMTP\r\n")
        await reader.read()
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        assert "not valid HTTP" in failed(await runner(http_call(url))).error
    assert greeted == 1


async def test_a_connection_that_closes_without_an_answer_is_retried(runner: HttpTargetRunner, sink: Sink) -> None:
    says(sink, b"")
    outcome = failed(await runner(http_call(sink.url, {})))
    assert outcome.error == f"127.0.0.1:{sink.port} closed the connection before it answered {sink.url}."
    assert outcome.retryable


async def test_a_reset_connection_is_retried(runner: HttpTargetRunner, sink: Sink) -> None:
    async def reset(_: Received, writer: asyncio.StreamWriter) -> None:
        endpoint = writer.get_extra_info("socket")
        endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    sink.answer = reset
    outcome = failed(await runner(http_call(sink.url, {})))
    peer = f"127.0.0.1:{sink.port}"
    assert outcome.error == (f"The connection to {peer} broke before {sink.url} answered: connection reset by peer.")
    assert outcome.retryable


@pytest.mark.parametrize("method", ["GET", "PUT", "POST"])
async def test_one_attempt_is_one_request_even_when_a_used_connection_breaks(
    runner: HttpTargetRunner, sink: Sink, method: str
) -> None:
    succeeded(await runner(http_call(sink.url, method=method)))
    says(sink, b"")
    assert failed(await runner(http_call(sink.url, method=method))).retryable
    assert len(sink.received) == 2
    assert sink.connections == 1


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_server_that_answers_before_it_has_read_the_request_gets_no_other_one_on_that_connection(
    runner: HttpTargetRunner, scheme: str, tmp_path: Path
) -> None:
    """What is left of the request would stand before the next one, and in the memory of the worker."""
    authority = Authority()
    context, tls = None, TargetTls(ca=authority.certificate)
    if scheme == "https":
        context = _server_context(authority, tmp_path)
    gone: list[asyncio.Task[bytes]] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        gone.append(asyncio.create_task(_read_slowly(reader, writer)))

    async with await asyncio.start_server(refuse, "127.0.0.1", 0, limit=1024, ssl=context) as server:
        url = f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        target = HttpTarget(url=url, tls=tls) if context else HttpTarget(url=url)
        for calls in (1, 2):
            outcome = failed(await runner(call_of(target, "x" * 20_000_000)))
            assert (outcome.error, outcome.retryable) == (f"HTTP 413 from {url}", False)
            assert len(gone) == calls
        for received in await asyncio.wait_for(asyncio.gather(*gone), 10):
            assert len(received) < 20_000_000


def _server_context(authority: Authority, folder: Path) -> ssl.SSLContext:
    (folder / "pair.pem").write_text(authority.issue().text)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "pair.pem")
    return context


async def _read_slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """Not before the caller has had its answer."""
    await asyncio.sleep(0.2)
    read = bytearray()
    try:
        while data := await reader.read(65_536):
            read += data
    except ConnectionError:
        pass
    writer.close()
    return bytes(read)


async def test_informational_answers_are_no_answers(runner: HttpTargetRunner, sink: Sink) -> None:
    early = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    says(sink, b"HTTP/1.1 100 Continue\r\n\r\n" + early * 3 + HEAD + b"Content-Length: 2\r\n\r\nok")
    assert succeeded(await runner(http_call(sink.url)))["body"] == "ok"


async def test_a_status_that_no_server_may_send_fails_the_attempt_at_once(runner: HttpTargetRunner, sink: Sink) -> None:
    says(sink, b"HTTP/1.1 099 Odd\r\nContent-Length: 0\r\n\r\n", then_close=False)
    assert failed(await asyncio.wait_for(runner(http_call(sink.url)), 10)).error == f"HTTP 99 from {sink.url}"


async def test_a_server_that_changes_the_protocol_fails_the_attempt(runner: HttpTargetRunner, sink: Sink) -> None:
    says(sink, b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", then_close=False)
    assert failed(await runner(http_call(sink.url))).error == f"HTTP 101 from {sink.url}"
    await asyncio.wait_for(sink.gone.wait(), 5)


async def test_the_length_in_an_answer_to_head_announces_no_body(runner: HttpTargetRunner, sink: Sink) -> None:
    says(sink, HEAD + b"Content-Length: 1000\r\n\r\n", then_close=False)
    for _ in range(2):
        assert succeeded(await runner(http_call(sink.url, method="HEAD"))) == {"status": 200, "body": ""}
    assert sink.connections == 1


@pytest.mark.parametrize("value", ["a\r\nX-Other: b", "a\nb", "a\rb", "a\0b"])
def test_a_header_that_would_add_a_line_is_not_written(value: str) -> None:
    with pytest.raises(TargetError, match="line break"):
        header_lines([("X-First", "a"), ("X-Value", value), ("X-Last", "c")])
