"""A node under attack: /livez answers within 100 ms, and memory does not grow.

The figures are those of the machine, so all of this is long. The rules behind it are tested in `test_requests.py`.
"""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.security.livez_watch import NO_ANSWER
from tests.security.wire import Wire, connect, request, wire
from tests.support.processes import Node, Nodes

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

SECONDS = 8.0
HALF_SENT = 1500
MEGABYTE = 1_048_576
MOST_GROWTH = 100 * MEGABYTE
MOST_WAIT = 0.1
LINE = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"
FORM = "Content-Type: application/x-www-form-urlencoded"
NDJSON = "Content-Type: application/x-ndjson"

Attack = Callable[[str, float], Awaitable[None]]


class Watch:
    """Asks /livez all the time, and reads the memory use of the process."""

    def __init__(self, node: Node) -> None:
        arguments = [str(urlsplit(node.url).port), str(node.process.pid)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.security.livez_watch", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"  # it has seen how much memory the node has now
        self.grown = 0
        self.waits: list[float] = []
        self.bare_waits: list[float] = []

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        found = json.loads(self._process.communicate(timeout=60)[0])
        self.grown, self.waits, self.bare_waits = found["grown"], sorted(found["waits"]), sorted(found["bare_waits"])

    @property
    def late(self) -> float:
        """How much longer than a bare server the node took in 99 of 100 cases."""
        return self.waits[len(self.waits) * 99 // 100] - self.bare_waits[len(self.bare_waits) * 99 // 100]

    def __str__(self) -> str:
        livez, bare = (_shown(each) for each in (self.waits, self.bare_waits))
        return f"memory +{self.grown / MEGABYTE:.0f} MB; /livez {livez}; a bare server {bare}"


def _shown(waits: list[float]) -> str:
    middle, most = waits[len(waits) // 2] * 1000, waits[len(waits) * 99 // 100] * 1000
    return f"{len(waits)} times, {middle:.1f} ms, p99 {most:.1f} ms"


async def half_sent(url: str, until: float) -> None:
    """1,500 requests that never end, of which each sends a little now and then; closed ones are opened again."""
    opened: dict[int, Wire] = {}
    while time.monotonic() < until:
        for number in range(HALF_SENT):
            with suppress(OSError):
                client = opened.get(number)
                if client is None or client.writer.is_closing() or client.reader.at_eof():
                    if client is not None:
                        await client.close()
                    opened[number] = client = await connect(url)
                    client.writer.write(LINE)
                client.writer.write(b"X-A: b\r\n")
        await asyncio.sleep(0.2)
    await _close(opened.values())


async def endless_headers(url: str, until: float) -> None:
    """Headers without an end, as fast as they are taken."""

    async def flood(part: bytes) -> None:
        while time.monotonic() < until:
            with suppress(OSError, TimeoutError):
                async with wire(url) as client, asyncio.timeout(max(0.1, until - time.monotonic())):
                    client.writer.write(LINE)
                    while not client.writer.is_closing():
                        await client.send(part)

    parts = [b"X-%d: %s\r\n" % (number, b"a" * 100) for number in range(300)]
    await asyncio.gather(*(flood(b"".join(parts)) for _ in range(5)), *(flood(b"a" * 65_536) for _ in range(5)))


async def unfinished_logins(url: str, until: float) -> None:
    """150 logins of 3 MB that stop before their end, and 300 that send a byte now and then."""
    size = 3 * MEGABYTE
    large = []
    for _ in range(150):
        large.append(await connect(url))
        large[-1].writer.write(request("POST", "/login", FORM, f"Content-Length: {size}") + b"a" * (size - 1))
        await asyncio.sleep(0.02)
    slow = []
    for _ in range(300):
        slow.append(await connect(url))
        slow[-1].writer.write(request("POST", "/login", FORM, "Content-Length: 16000"))
        await asyncio.sleep(0.01)
    while time.monotonic() < until:
        for client in slow:
            with suppress(OSError):
                client.writer.write(b"a")
        await asyncio.sleep(1)
    await _close([*large, *slow])


async def unfinished_uploads(url: str, until: float) -> None:
    """Eight batches of nearly 64 MB."""
    size = 60 * MEGABYTE

    async def upload(client: Wire) -> None:
        await client.send(request("POST", "/api/v1/jobs/batch", NDJSON, f"Content-Length: {size}"))
        for _ in range(size // MEGABYTE - 1):
            await client.send(b" " * MEGABYTE)

    uploads = [await connect(url) for _ in range(8)]
    with suppress(TimeoutError):
        async with asyncio.timeout(max(0.1, until - time.monotonic())):
            await asyncio.gather(*map(upload, uploads), return_exceptions=True)
            await asyncio.sleep(max(0.0, until - time.monotonic()))
    await _close(uploads)


async def unread_answers(url: str, until: float) -> None:
    """Clients that ask for a large page again and again, and read nothing."""
    clients = [await connect(url, receives=4096) for _ in range(40)]
    while time.monotonic() < until:
        for client in clients:
            with suppress(OSError):
                client.writer.write(request("GET", "/openapi.json") * 2)
            await asyncio.sleep(0.01)
    await _close(clients)


async def _close(clients: Iterable[Wire]) -> None:
    for client in clients:
        await client.close()


@pytest.fixture
async def node(database_url: str, tmp_path: Path) -> AsyncIterator[Node]:
    """Started where a process may open 1,024 files, as is usual; the attack needs more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    try:
        with closing(Nodes(tmp_path, DETENT_DATABASE_URL=database_url)) as nodes:
            started = await nodes.start("serve")
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            yield started
            assert "Traceback" not in started.text
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("attack", [half_sent, endless_headers, unfinished_logins, unfinished_uploads, unread_answers])
async def test_an_attacked_node_answers_probes_and_does_not_grow(node: Node, attack: Attack) -> None:
    with Watch(node) as watch:
        await attack(node.url, time.monotonic() + SECONDS)
    assert node.process.poll() is None
    assert watch.grown < MOST_GROWTH, str(watch)
    assert watch.late < MOST_WAIT, str(watch)
    assert watch.waits[-1] < NO_ANSWER, str(watch)
