"""A test process that starts one kind of server and waits to be killed: `python -m tests.system.starts_servers KIND`.

It prints its folder and the processes that must not outlive it, as JSON, when all of them serve. Also a test for
pytest (`pytest starts_servers.py`), which waits the same way with the server of its fixture.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path

from tests.support import guardian, servers
from tests.support.pgbouncer import running_pgbouncer
from tests.support.postgres import Postgres, running_postgres

FOLDER = "DETENT_TEST_ANNOUNCE"


def announce() -> None:
    """All that carries our path; what starts later is not waited for."""
    folders = [os.fsencode(folder) for folder in guardian.folders()]
    said = {"folders": [str(folder) for folder in guardian.folders()], "processes": guardian.belonging(folders)}
    text = json.dumps({**said, "pid": os.getpid()})
    if FOLDER in os.environ:
        Path(os.environ[FOLDER], "announced").write_text(text)
    else:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()


@asynccontextmanager
async def postgres() -> AsyncIterator[None]:
    with running_postgres():
        yield


@asynccontextmanager
async def pgbouncer() -> AsyncIterator[None]:
    with running_postgres() as server, running_pgbouncer(server.server.url):
        yield


def service(kind: type[servers.Server]) -> Callable[[], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def started() -> AsyncIterator[None]:
        with servers.running(kind):
            yield

    return started


@contextmanager
def folder() -> Iterator[Path]:
    place = guardian.protect() / "folder"
    place.mkdir()
    place.chmod(0o711)
    yield place


@asynccontextmanager
async def node() -> AsyncIterator[None]:
    """`detent serve` with the PostgreSQL that it brings: the server daemonises, and is not a child of this process."""
    from tests.support.processes import Nodes

    with folder() as place:
        await Nodes(place, DETENT_DATA_DIR=str(place / "data")).start("serve")
        yield


@asynccontextmanager
async def fleet() -> AsyncIterator[None]:
    from tests.support.fleet.recorder import Recorder
    from tests.support.fleet.servers import Server

    with folder() as place:
        server = Server(place, "primary")
        await server.create()
        await server.start()
        Recorder(place)
        yield


@asynccontextmanager
async def chromium() -> AsyncIterator[None]:
    from playwright.async_api import async_playwright

    from tests.support.browsing import require_chromium

    async with async_playwright() as playwright:
        await playwright.chromium.launch(executable_path=require_chromium(), args=["--no-sandbox"])
        yield


KINDS: dict[str, Callable[[], AbstractAsyncContextManager[None]]] = {
    "postgres": postgres,
    "pgbouncer": pgbouncer,
    "etcd": service(servers.Etcd),
    "redis": service(servers.Redis),
    "zookeeper": service(servers.ZooKeeper),
    "node": node,
    "fleet": fleet,
    "chromium": chromium,
}


async def start(kind: str) -> None:
    async with KINDS[kind]():
        announce()
        await asyncio.Event().wait()


def test_waits_to_be_killed(postgres: Postgres) -> None:
    announce()
    time.sleep(300)


if __name__ == "__main__":
    guardian.protect()
    asyncio.run(start(sys.argv[1]))
