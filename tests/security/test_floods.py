"""A node under clients that mean it no good: /livez answers within 100 ms, and memory does not grow.

The figures are those of the machine, so all of this is long. The rules behind it are tested in `test_requests.py`.
"""

from __future__ import annotations

import asyncio
import re
import resource
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.security.wire import Wire, connect, request
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
    """Asks /livez all the time, and looks at the memory of the process: in a thread, since the loop attacks."""

    def __init__(self, node: Node) -> None:
        to = urlsplit(node.url)
        self._address = (to.hostname, to.port)
        self._process = node.process.pid
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.before = self.memory()
        self.most = self.before
        self.waits: list[float] = []

    def memory(self) -> int:
        found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{self._process}/status").read_text())
        assert found is not None
        return int(found[1]) * 1024

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.03):
            self.waits.append(self._ask())
            self.most = max(self.most, self.memory())

    def _ask(self) -> float:
        """How long /livez took; 5 s where it did not answer."""
        began = time.monotonic()
        try:
            with socket.create_connection(self._address, timeout=5) as client:
                client.sendall(LINE + b"Connection: close\r\n\r\n")
                return time.monotonic() - began if client.recv(4096).startswith(b"HTTP/1.1 200") else 5.0
        except OSError:
            return 5.0

    @property
    def grown(self) -> int:
        return self.most - self.before

    def __str__(self) -> str:
        waits = sorted(self.waits)
        shown = ", ".join(f"{name} {waits[int(len(waits) * share)] * 1000:.1f} ms" for name, share in PARTS.items())
        longest = f"most {waits[-1] * 1000:.0f} ms"
        return f"memory +{self.grown / MEGABYTE:.0f} MB; /livez {len(waits)} times: {shown}, {longest}"


PARTS = {"half": 0.5, "p99": 0.99}


async def half_sent(url: str, until: float) -> None:
    """1,500 requests that never end, of which each sends a little now and then; closed ones are opened again."""
    opened: dict[int, Wire] = {}
    while time.monotonic() < until:
        for number in range(HALF_SENT):
            with suppress(OSError):
                client = opened.get(number)
                if client is None or client.writer.is_closing() or client.reader.at_eof():
                    opened[number] = client = await connect(url)
                    client.writer.write(LINE)
                client.writer.write(b"X-A: b\r\n")
        await asyncio.sleep(0.2)
    _close(opened.values())


async def endless_headers(url: str, until: float) -> None:
    """Headers without an end, as fast as they are taken."""

    async def flood(part: bytes) -> None:
        while time.monotonic() < until:
            with suppress(OSError, TimeoutError):
                client = await connect(url)
                client.writer.write(LINE)
                async with asyncio.timeout(max(0.1, until - time.monotonic())):
                    while not client.writer.is_closing():
                        await client.send(part)
                client.close()

    parts = [b"X-%d: %s\r\n" % (number, b"a" * 100) for number in range(300)]
    await asyncio.gather(*(flood(b"".join(parts)) for _ in range(5)), *(flood(b"a" * 65_536) for _ in range(5)))


async def unfinished_logins(url: str, until: float) -> None:
    """150 logins of 3 MB that stop before their end, and 300 that send a byte now and then."""
    large = [await connect(url) for _ in range(150)]
    for client in large:
        with suppress(OSError):
            client.writer.write(
                request("POST", "/login", FORM, f"Content-Length: {3 * MEGABYTE}") + b"a" * (3 * MEGABYTE - 1)
            )
    slow = [await connect(url) for _ in range(300)]
    for client in slow:
        client.writer.write(request("POST", "/login", FORM, "Content-Length: 16000"))
    while time.monotonic() < until:
        for client in slow:
            with suppress(OSError):
                client.writer.write(b"a")
        await asyncio.sleep(0.3)
    _close([*large, *slow])


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
    _close(uploads)


async def unread_answers(url: str, until: float) -> None:
    """300 clients that ask for the largest page again and again, and read nothing."""
    clients = [await connect(url, receives=4096) for _ in range(300)]
    while time.monotonic() < until:
        for client in clients:
            with suppress(OSError):
                client.writer.write(request("GET", "/openapi.json") * 4)
        await asyncio.sleep(0.5)
    _close(clients)


def _close(clients: object) -> None:
    for client in list(clients):  # type: ignore[call-overload]  # any collection of connections
        client.close()


@pytest.fixture
def descriptors() -> Iterator[None]:
    """Enough for all connections of an attack."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
async def node(database_url: str, tmp_path: Path, descriptors: None) -> AsyncIterator[Node]:
    with closing(Nodes(tmp_path, DETENT_DATABASE_URL=database_url)) as nodes:
        started = await nodes.start("serve")
        yield started
        assert "Traceback" not in started.text


@pytest.mark.parametrize("attack", [half_sent, endless_headers, unfinished_logins, unfinished_uploads, unread_answers])
async def test_an_attacked_node_answers_probes_and_does_not_grow(node: Node, attack: Attack) -> None:
    with Watch(node) as watch:
        await attack(node.url, time.monotonic() + SECONDS)
    assert node.process.poll() is None
    assert watch.grown < MOST_GROWTH, watch
    assert sorted(watch.waits)[int(len(watch.waits) * 0.99)] < MOST_WAIT, watch
    assert 5.0 not in watch.waits, watch
