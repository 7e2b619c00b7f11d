"""Registration: jobs sent in batches over a real socket to a real `detent api`, and stored.

The database is the embedded PostgreSQL with fsync on, in a temporary folder, on the same machine as the server and this
client. A few batches are sent at once, so that the server reads one while the database writes another.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from detent.errors import Unavailable
from detent.node.database import prepare_database
from detent.runtime.clock import monotonic
from detent.store.embedded import EmbeddedServer

BATCH = 10_000
SCHEDULES = ("0 9 * * MON", "every 1h", "*/5 * * * *", "30 2 * * *")
LISTENING = re.compile(rb"listening on (http://\S+)")


@dataclass
class RegisterResult:
    jobs: int
    at_once: int
    seconds: float
    jobs_per_second: float


async def bench_register(jobs: int, at_once: int, progress: Callable[[int], None]) -> RegisterResult:
    with tempfile.TemporaryDirectory(prefix="detent-bench-", ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o755)  # noqa: PTH101, S103 - the server's user has to get through when root measures
        async with EmbeddedServer(Path(folder)) as server:
            await prepare_database(server.url, "detent", migrate=True)
            async with _serving(server.url) as address:
                return await _measure(address, jobs, at_once, progress)


@asynccontextmanager
async def _serving(database_url: str) -> AsyncIterator[str]:
    """A separate `detent api` process, which shares no interpreter with the client."""
    environ = {**os.environ, "DETENT_DATABASE_URL": database_url, "DETENT_LOG_LEVEL": "warning"}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "detent", "api", "--port", "0"), env=environ, stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    try:
        said = b""
        while (found := LISTENING.search(said)) is None:
            line = await process.stderr.readline()
            if not line:
                raise Unavailable(f"The server did not start: {said.decode(errors='replace').strip()}")
            said += line
        yield found[1].decode()
    finally:
        if process.returncode is None:
            process.terminate()
        await process.communicate()


async def _measure(address: str, jobs: int, at_once: int, progress: Callable[[int], None]) -> RegisterResult:
    batches = _batches(jobs)
    done = 0
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=300)) as session:

        async def send() -> None:
            nonlocal done
            for count, body in batches:
                headers = {"Content-Type": "application/x-ndjson"}
                async with session.post(f"{address}/api/v1/jobs/batch", data=body, headers=headers) as answer:
                    if answer.status != 200:
                        raise Unavailable(f"The server refused a batch: {(await answer.text())[:500]}")
                    await answer.read()
                done += count
                progress(done)

        began = monotonic()
        await asyncio.gather(*(send() for _ in range(at_once)))
        seconds = monotonic() - began
    return RegisterResult(jobs, at_once, seconds, jobs / seconds)


def _batches(jobs: int) -> Iterator[tuple[int, bytes]]:
    for first in range(0, jobs, BATCH):
        numbers = range(first, min(first + BATCH, jobs))
        yield len(numbers), b"\n".join(map(_line, numbers))


def _line(number: int) -> bytes:
    return (
        b'{"name":"bench-%d","schedule":"%s","timezone":"Europe/Berlin","payload":{"n":%d,"text":"hello"},'
        b'"target":{"type":"http","url":"https://example.org/hook/%d"}}'
        % (number, SCHEDULES[number % len(SCHEDULES)].encode(), number, number)
    )


def as_table(result: RegisterResult) -> list[tuple[str, str]]:
    return [
        ("jobs registered", f"{result.jobs:,}"),
        ("batches at once", str(result.at_once)),
        ("in", f"{result.seconds:.2f} s"),
        ("jobs per second", f"{result.jobs_per_second:,.0f}"),
    ]
