"""Limits on what one client can cost a server before its request is complete: bytes, connections, time."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from detent.node import connections, protocol
from detent.node.server import ApiServer
from detent.runtime.clock import monotonic
from tests.security.wire import Wire, connect, probes, request, whole_server, wire
from tests.support.waiting import until

LIMIT = 32_768
LINE = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = b"POST /livez HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
NONSENSE = (
    *(b"\x16\x03\x01\x02\x00\x01\x00", b"GET / HTTP/9.9\r\n\r\n", b"GET \xff HTTP/1.1\r\n\r\n"),
    *(b"GET http://localhost HTTP/1.1\r\n\r\n", b"CONNECT localhost:80 HTTP/1.1\r\n\r\n"),  # the parser accepts these
)
CLAIM = b'{"worker": "w", "wait_seconds": 20, "targets": ["http"]}'
JOB = b'{"schedule": "@daily", "target": {"type": "http", "url": "http://127.0.0.1:9/"}}'
JSON = "Content-Type: application/json"
NDJSON = "Content-Type: application/x-ndjson"
FORM = "Content-Type: application/x-www-form-urlencoded"


# --- bytes of headers ---


async def test_headers_that_never_end_are_refused_after_32_kib() -> None:
    async with probes() as server:
        for begin, rest in ((LINE + b"X-Long: ", b"a"), (b"", b"\r\n"), (LINE + b"X-Long: a", b"\t a")):
            async with wire(server.url) as client:
                refused = await client.ask((begin + rest * LIMIT)[:LIMIT])
                assert (refused.status, refused.problem) == (431, "headers-too-large")
                assert await client.ended() == b""


async def test_headers_may_have_32_kib_and_not_a_byte_more() -> None:
    largest = LINE + b"X-Long: " + b"a" * (LIMIT - len(LINE) - 12) + b"\r\n\r\n"
    assert len(largest) == LIMIT
    async with probes() as server, wire(server.url) as client:
        assert (await client.ask(largest)).status == 200
        refused = await client.ask(largest.replace(b"aa", b"aaa", 1))
        assert (refused.status, refused.problem) == (431, "headers-too-large")


async def test_more_than_a_hundred_headers_are_refused() -> None:
    async with probes() as server, wire(server.url) as client:
        assert (await client.ask(LINE + b"a:\r\n" * 99 + b"\r\n")).status == 200
        refused = await client.ask(LINE + b"a:\r\n" * 101)
        assert (refused.status, refused.problem) == (431, "headers-too-large")
        assert refused.headers["connection"] == "close"


async def test_a_path_of_more_than_16_kib_is_refused() -> None:
    async with probes() as server, wire(server.url) as client:
        refused = await client.ask(b"GET /" + b"a" * protocol.MAX_TARGET_BYTES)
        assert (refused.status, refused.problem) == (414, "uri-too-long")


async def test_chunk_extensions_and_trailers_are_limited_like_headers(database_url: str) -> None:
    """The parser keeps a trailer in memory until it is complete, and has no limit for it."""
    head = request("POST", "/api/v1/jobs", JSON, "Transfer-Encoding: chunked")
    async with whole_server(database_url) as (server, _):
        for begin in (b"1;", b"1\r\nx\r\n0\r\nX-Trailer: "):
            async with wire(server.url) as client:
                await client.send(head + begin)
                await until(lambda: server.connections.bodies)
                refused = await client.ask(b"a" * LIMIT)
                assert (refused.status, refused.problem) == (431, "headers-too-large")


async def test_trailers_are_read_and_not_kept() -> None:
    async with probes() as server, wire(server.url) as client:
        trailers = b"".join(b"X-%d: a\r\n" % number for number in range(1000))
        assert (await client.ask(CHUNKED + b"1\r\nx\r\n0\r\n" + trailers + b"\r\n")).status == 405
        assert (await client.ask(LINE + b"\r\n")).status == 200


async def test_what_is_not_http_gets_a_problem_and_no_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        async with probes() as server:
            for nonsense in NONSENSE:
                async with wire(server.url) as client:
                    refused = await client.ask(nonsense)
                    assert (refused.status, refused.problem) == (400, "malformed-request")
    assert caplog.records == []


@pytest.mark.parametrize("before", [b"", LINE + b"\r\n"], ids=["first", "second"])
async def test_a_target_that_is_not_a_path_gets_a_problem_and_no_line_in_the_log(
    caplog: pytest.LogCaptureFixture, before: bytes
) -> None:
    """Also as the second request of a connection: the handler of the first one must not be called."""
    with caplog.at_level(logging.WARNING):
        async with probes() as server, wire(server.url) as client:
            if before:
                assert (await client.ask(before)).status == 200
            refused = await client.ask(b"CONNECT 127.0.0.1:80 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (refused.status, refused.problem) == (400, "malformed-request")
            assert await client.ended() == b""
    assert caplog.records == []


async def test_a_request_to_upgrade_the_protocol_is_answered_once_in_http(
    caplog: pytest.LogCaptureFixture,
) -> None:
    upgrade = request("GET", "/livez", "Connection: Upgrade", "Upgrade: websocket")
    with caplog.at_level(logging.WARNING):
        async with probes() as server, wire(server.url) as client:
            answer = await client.ask(upgrade + b"\x81\x05hello" * 100)
            assert (answer.status, answer.headers["connection"]) == (200, "close")
            assert await client.ended() == b""
    assert caplog.records == []


async def test_only_a_few_pipelined_requests_are_kept() -> None:
    async with probes() as server, wire(server.url) as client:
        await client.send((LINE + b"\r\n") * 500)
        answers = [await client.answer() for _ in range(protocol.MAX_PIPELINED + 1)]
        assert {answer.status for answer in answers} == {200}
        assert answers[-1].headers["connection"] == "close"
        assert await client.ended() == b""


# --- bodies ---


async def test_a_login_of_more_than_16_kib_is_refused(database_url: str) -> None:
    """Also if the client sends all of it: the answer is not lost."""
    chunk = b"10000\r\n" + b"a" * 0x10000
    async with whole_server(database_url, host="0.0.0.0") as (server, _):
        for framing, body in (("Content-Length: 16385", b""), ("Transfer-Encoding: chunked", chunk)):
            async with wire(server.url) as client:
                refused = await client.ask(request("POST", "/login", FORM, framing) + body)
                assert (refused.status, refused.headers["connection"]) == (413, "close")
                assert await client.ended() == b""


async def test_a_client_that_goes_on_sending_after_a_refusal_is_disconnected(
    database_url: str,
) -> None:
    async with whole_server(database_url, host="0.0.0.0") as (server, _), wire(server.url) as client:
        refused = await client.ask(request("POST", "/login", FORM, "Content-Length: 99999999"))
        assert refused.status == 413
        client.writer.write(b"a" * 50_000_000)
        await until(lambda: server.connections.reading and next(iter(server.connections.reading)).flow.read_paused)
        server.connections.sweep(monotonic() + protocol.CLOSE_SECONDS + 1)
        await until(lambda: not server.connections.connections)


async def test_bodies_of_all_requests_together_are_limited(database_url: str) -> None:
    """A body that does not fit is refused, small requests are still served, and a finished request frees its bytes."""
    limits: dict[str, Any] = {"max_request_memory_bytes": 1_048_576, "max_payload_bytes": 1000}
    size = 900_000
    announced = (f"Content-Length: {size + 100}", b" " * size, b" " * 100)
    chunked = ("Transfer-Encoding: chunked", b"%x\r\n" % size + b" " * size + b"\r\n", b"0\r\n\r\n")
    async with whole_server(database_url, **limits) as (server, _):
        held = server.connections
        for framing, body, end in (announced, chunked):
            upload = request("POST", "/api/v1/jobs/batch", NDJSON, framing)
            async with wire(server.url) as first, wire(server.url) as second, wire(server.url) as third:
                await first.send(upload + body)
                await until(lambda: held.held >= size - connections.SMALL_BODY_BYTES)
                refused = await second.ask(upload + (b"" if framing.startswith("Content") else body))
                assert (refused.status, refused.problem) == (503, "busy")
                assert refused.headers["retry-after"] == "1"
                assert held.held <= held.max_held
                assert (await third.ask(request("POST", "/api/v1/jobs", JSON, body=JOB))).status == 201
            await until(lambda: held.held == 0)
            async with wire(server.url) as client:
                assert (await client.ask(upload + body + end)).problem == "invalid"  # it was read: it has no job
            await until(lambda: held.held == 0)


async def test_a_body_that_could_never_be_held_is_refused_by_its_length(database_url: str) -> None:
    limits: dict[str, Any] = {"max_request_memory_bytes": 1_048_576, "max_payload_bytes": 1000}
    async with whole_server(database_url, **limits) as (server, _), wire(server.url) as client:
        refused = await client.ask(request("POST", "/api/v1/jobs/batch", NDJSON, "Content-Length: 99999999999"))
        assert (refused.status, refused.problem) == (413, "body-too-large")


# --- time ---


async def test_headers_that_take_longer_than_their_time_are_refused() -> None:
    async with probes() as server, wire(server.url) as client, wire(server.url) as silent, wire(server.url) as used:
        assert (await used.ask(LINE + b"\r\n")).status == 200
        await used.send(LINE)
        await client.send(LINE)
        await until(lambda: len(server.connections.reading) == 3)
        server.connections.sweep(monotonic() + 9)
        server.connections.sweep(monotonic() + 10.1)
        for waiting in (client, used):
            refused = await waiting.answer()
            assert (refused.status, refused.problem) == (408, "headers-too-slow")
            assert await waiting.ended() == b""
        assert await silent.ended() == b""


async def test_a_body_that_takes_longer_than_its_time_is_refused(database_url: str) -> None:
    head = request("POST", "/api/v1/jobs", JSON, "Content-Length: 500")
    async with whole_server(database_url) as (server, _), wire(server.url) as client:
        await client.send(head + b"{")
        await until(lambda: server.connections.bodies)
        server.connections.sweep(monotonic() + 29)
        await client.send(b" ")
        server.connections.sweep(monotonic() + 31)
        refused = await client.answer()
        assert (refused.status, refused.problem) == (408, "body-too-slow")
        assert await client.ended() == b""


async def test_a_connection_is_not_kept_for_a_client_that_is_done() -> None:
    async with probes() as server, wire(server.url) as client:
        assert (await client.ask(LINE + b"\r\n")).status == 200
        server.connections.sweep(monotonic() + protocol.IDLE_SECONDS + 0.1)
        assert await client.ended() == b""


async def unreading(server: ApiServer, client: Wire) -> Any:
    """The server's side of a client that reads none of its large answers, once answers wait to be read."""
    address = client.writer.get_extra_info("sockname")

    async def stuck() -> Any:
        own = [each for each in server.connections.connections if each.client == address]
        if own and not own[0].pipeline:
            await client.send(request("GET", "/openapi.json") * protocol.MAX_PIPELINED)
        return next((each for each in own if unread(each)), None)

    return await until(stuck)


async def test_a_client_that_does_not_read_its_answer_is_disconnected(database_url: str) -> None:
    """Only one answer waits in memory; the others are not produced before it is read."""
    async with whole_server(database_url) as (server, _), wire(server.url, receives=4096) as client:
        connection = await unreading(server, client)
        assert unread(connection) < len((await asked(server.url, "/openapi.json")).body) + 100_000
        now = monotonic()
        server.connections.sweep(now)
        server.connections.sweep(now + protocol.SEND_SECONDS - 1)
        assert connection in server.connections.connections
        server.connections.sweep(now + protocol.SEND_SECONDS + 1)
        await until(lambda: connection not in server.connections.connections)


async def test_closing_does_not_wait_for_a_client_that_does_not_read(database_url: str) -> None:
    async with whole_server(database_url) as (server, _), wire(server.url, receives=4096) as client:
        connection = await unreading(server, client)
        connection.transport.close()
        now = monotonic()
        server.connections.sweep(now)
        assert connection in server.connections.connections
        server.connections.sweep(now + protocol.CLOSE_SECONDS + 1)
        await until(lambda: connection not in server.connections.connections)


async def test_answers_that_are_not_read_are_limited_together(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with whole_server(database_url) as (server, _):
        held = server.connections
        async with wire(server.url, receives=4096) as one, wire(server.url, receives=4096) as other:
            stuck = [await unreading(server, client) for client in (one, other)]
            monkeypatch.setattr(held, "max_held", max(map(unread, stuck)))
            held.sweep(monotonic())
            assert len([each for each in stuck if each in held.connections]) == 1


def unread(connection: Any) -> int:
    size: int = connection.unread_bytes()
    return size


async def asked(url: str, path: str) -> Any:
    async with wire(url) as client:
        return await client.ask(request("GET", path))


# --- connections ---


async def half_sent(url: str, count: int, address: str = "127.0.0.1") -> list[Wire]:
    opened = [await connect(url, address) for _ in range(count)]
    for client in opened:
        await client.send(LINE)
    return opened


async def test_half_sent_requests_of_one_address_make_way_for_its_next_request() -> None:
    async with probes(max_connections=8) as server:
        waiting = await half_sent(server.url, 4)
        await until(lambda: len(server.connections.reading) == 4)
        assert (await asked(server.url, "/metrics")).status == 200
        assert await waiting[0].ended() == b""  # the oldest
        assert (await waiting[-1].ask(b"\r\n")).status == 200
        for client in waiting:
            await client.close()


async def test_half_sent_requests_of_many_addresses_make_way_for_the_next_request() -> None:
    async with probes(max_connections=8) as server:
        waiting = [each for last in (2, 3, 4, 5) for each in await half_sent(server.url, 2, f"127.0.0.{last}")]
        await until(lambda: len(server.connections.reading) == 8)
        assert (await asked(server.url, "/metrics")).status == 200
        assert await waiting[0].ended() == b""
        for client in waiting:
            await client.close()


async def test_connections_that_send_nothing_keep_no_other_client_out() -> None:
    async with probes(max_connections=50) as server:
        silent = [await connect(server.url) for _ in range(200)]
        assert (await asked(server.url, "/livez")).status == 200
        assert len(server.connections.connections) <= 50
        for client in silent:
            await client.close()


async def test_an_unused_connection_makes_way_for_the_next_one() -> None:
    async with probes(max_connections=2) as server, wire(server.url) as idle:
        assert (await idle.ask(LINE + b"\r\n")).status == 200
        assert (await asked(server.url, "/metrics")).status == 200
        assert await idle.ended() == b""


async def test_a_slow_body_makes_way_for_the_next_connection(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = request("POST", "/api/v1/jobs", JSON, "Content-Length: 500") + b"{"
    async with whole_server(database_url, max_connections=2) as (server, _), wire(server.url) as client:
        await client.send(slow)
        await until(lambda: server.connections.bodies)
        assert (await asked(server.url, "/version")).status == 503
        monkeypatch.setattr(connections, "SLOW_BODY_SECONDS", 0.0)
        assert (await asked(server.url, "/version")).status == 200
        assert await client.ended() == b""


async def test_probes_are_answered_while_every_connection_is_at_work(database_url: str) -> None:
    """Only probes are: any other request is refused at once instead of waiting without an answer."""
    claim = request("POST", "/api/v1/queues/default/claim", JSON, body=CLAIM)
    async with whole_server(database_url, max_connections=4) as (server, _):
        workers = [await connect(server.url) for _ in range(2)]
        for worker in workers:
            await worker.send(claim)
        await until(lambda: len(server.connections.connections) == 2 and not server.connections.reading)
        for path in ("/livez", "/readyz", "/livez?"):
            answer = await asked(server.url, path)
            assert (answer.status, answer.headers["connection"]) == (200, "close")
        refused = await asked(server.url, "/version")
        assert (refused.status, refused.problem, refused.headers["retry-after"]) == (503, "busy", "1")
        async with wire(server.url, "127.0.0.2") as other:
            assert (await other.ask(request("GET", "/version"))).status == 200
        for worker in workers:
            await worker.close()


async def test_connections_for_probes_are_few() -> None:
    async with probes(max_connections=2) as server:
        async with wire(server.url) as busy:
            connection: Any = await until(lambda: next(iter(server.connections.connections), None))
            connection.enter(None)  # it is at work
            waiting = [await connect(server.url) for _ in range(connections.FOR_PROBES + 8)]
            await until(lambda: len(server.connections.connections) == connections.FOR_PROBES + 1)
            assert (await asked(server.url, "/livez")).status == 200
            assert (await busy.ask(LINE + b"\r\n")).status == 200
        for client in waiting:
            await client.close()


@pytest.mark.parametrize(("metrics_port", "servers"), [(None, 1), (0, 2)])
async def test_there_are_descriptors_left_when_all_connections_are_taken(
    monkeypatch: pytest.MonkeyPatch, metrics_port: int | None, servers: int
) -> None:
    """Also if the process has a second server, for metrics."""
    monkeypatch.setattr("resource.getrlimit", lambda _: (1024, 4096))
    async with probes(max_connections=5000, metrics_port=metrics_port) as server:
        taken = server.connections.most + server.connections.most_waiting
        assert taken * servers == 1024 - connections.OTHER_DESCRIPTORS


async def test_refusals_are_logged_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[Any] = []
    monkeypatch.setattr("detent.node.server.SWEEP_SECONDS", 3600.0)  # only the test sweeps
    monkeypatch.setattr(connections.log, "warning", lambda *words, **facts: lines.append(facts))
    async with probes() as server:
        for _ in range(20):
            async with wire(server.url) as client:
                assert (await client.ask(b"nonsense\r\n\r\n")).status == 400
        now = monotonic()
        for seconds in range(59):
            server.connections.sweep(now + seconds)
        assert len(lines) == 1
        server.connections.sweep(now + 120)
        assert sum(line["counts"]["malformed-request"] for line in lines) == 20
