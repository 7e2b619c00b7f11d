"""A real node under many clients that mean it no good: it refuses them, does not grow, and answers everyone else.

How fast it answers meanwhile is a matter of the machine: `python -m chaos.floods` measures it against the promised
bounds. The rules behind this are tested one by one in `test_requests.py`.
"""

from __future__ import annotations

import asyncio
import re
import resource
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, closing, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.security.wire import Wire, WireAnswer, connect, request, wire
from tests.support.processes import Node, Nodes
from tests.support.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(120)]

MEGABYTE = 1_048_576
MAX_GROWTH = 100 * MEGABYTE
LINE = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"
JOB = b'{"schedule": "@daily", "target": {"type": "http", "url": "http://127.0.0.1:9/"}}'
JSON = "Content-Type: application/json"
FORM = "Content-Type: application/x-www-form-urlencoded"
NDJSON = "Content-Type: application/x-ndjson"


@pytest.fixture
async def node(database_url: str, tmp_path: Path) -> AsyncIterator[Node]:
    """Started where a process may open 1,024 files, as is usual; the clients need more. It does not grow."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    try:
        with closing(Nodes(tmp_path, DETENT_DATABASE_URL=database_url)) as nodes:
            started = await nodes.start("serve")
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            before = memory(started, "VmRSS")
            yield started
            assert started.process.poll() is None
            assert memory(started, "VmHWM") - before < MAX_GROWTH
            assert "Traceback" not in started.text
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def memory(node: Node, kind: str) -> int:
    """Now (VmRSS), or the most it has ever been (VmHWM)."""
    found = re.search(rf"{kind}:\s+(\d+) kB", Path(f"/proc/{node.process.pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


async def assert_others_are_answered(node: Node) -> None:
    for _ in range(5):
        async with wire(node.url) as client:
            assert (await client.ask(request("GET", "/livez"))).status == 200
            assert (await client.ask(request("GET", "/api/v1/jobs"))).status == 200
            assert (await client.ask(request("POST", "/api/v1/jobs", JSON, body=JOB))).status == 201


async def test_of_1500_half_sent_requests_the_oldest_make_way(node: Node) -> None:
    clients = [await connect(node.url) for _ in range(1500)]
    for client in clients:
        client.writer.write(LINE)
    await assert_others_are_answered(node)
    for client in clients[:700]:
        assert await client.ended() == b""
    assert (await clients[-1].ask(b"\r\n")).status == 200
    for client in clients:
        await client.close()


@pytest.mark.parametrize("part", [b"X-A: a\r\n" * 1024, b"a" * 8192], ids=["many", "one"])
async def test_headers_without_an_end_are_refused_however_many_send_them(node: Node, part: bytes) -> None:
    async def flood() -> WireAnswer:
        async with wire(node.url) as client:
            client.writer.write(LINE + part * (20 * MEGABYTE // len(part)))
            answer = await client.answer()
            assert await client.ended() == b""
            return answer

    answers = await asyncio.gather(*(flood() for _ in range(10)))
    assert {(answer.status, answer.problem) for answer in answers} == {(431, "headers-too-large")}
    await assert_others_are_answered(node)


async def send_until_disconnected(client: Wire, size: int) -> None:
    part = b"a" * 65_536
    with suppress(OSError):
        for _ in range(size // len(part)):
            await client.send(part)
    await client.ended()


async def test_150_logins_of_3_mb_are_refused_and_disconnected(node: Node) -> None:
    async def login() -> int:
        async with wire(node.url) as client:
            head = request("POST", "/login", FORM, f"Content-Length: {3 * MEGABYTE}")
            answer = await client.ask(head + b"a" * 1000)
            await send_until_disconnected(client, 3 * MEGABYTE - 1)
            return answer.status

    async with asyncio.TaskGroup() as group:
        logins = [group.create_task(login()) for _ in range(150)]
        await assert_others_are_answered(node)
    assert {login.result() for login in logins} == {413}


async def test_of_8_uploads_of_60_mb_one_is_held_at_most(node: Node) -> None:
    size = 60 * MEGABYTE

    async def upload(client: Wire) -> None:
        await client.send(request("POST", "/api/v1/jobs/batch", NDJSON, f"Content-Length: {size}"))
        for _ in range(size // MEGABYTE - 1):
            await client.send(b" " * MEGABYTE)

    async def refused(client: Wire) -> bool:
        sending = asyncio.create_task(upload(client))
        answering = asyncio.create_task(client.answer())
        await asyncio.wait([sending, answering], return_when=asyncio.FIRST_COMPLETED)
        sending.cancel()
        answering.cancel()
        await asyncio.wait([sending, answering])
        return not answering.cancelled() and answering.result().problem == "busy"

    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(wire(node.url)) for _ in range(8)]
        found = await asyncio.gather(*map(refused, clients))
        await assert_others_are_answered(node)
    assert sum(found) >= 7


async def test_300_clients_that_read_no_answer_cost_nothing(node: Node) -> None:
    port = urlsplit(node.url).port
    with ExitStack() as stack:
        clients = [stack.enter_context(closing(await unreading(port))) for _ in range(300)]
        await until(lambda: all(map(was_served, clients)), 30, "an answer for every client")
        await assert_others_are_answered(node)


async def unreading(port: int | None) -> socket.socket:
    """A client that has asked for a large page 16 times. A stream would read by itself. It has another address than the
    others: one address has half of the connections, which these take."""
    client = socket.socket()
    client.bind(("127.0.0.2", 0))
    client.setblocking(False)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(client, ("127.0.0.1", port))
    await loop.sock_sendall(client, request("GET", "/openapi.json") * 16)
    return client


def was_served(client: socket.socket) -> bool:
    """It has begun to receive, or had to make way for the next one of its address."""
    try:
        client.recv(1, socket.MSG_PEEK)
        return True
    except ConnectionResetError:
        return True
    except BlockingIOError:
        return False
