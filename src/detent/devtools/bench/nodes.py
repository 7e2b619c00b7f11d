"""Real `detent serve` processes on a temporary database, for measurements of a cluster."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from detent.errors import Unavailable
from detent.node.database import prepare_database
from detent.store.embedded import EmbeddedServer

LISTENING = re.compile(rb"listening on (http://\S+)")


class ServeProcess:
    """One node process, ended by kill -9."""

    def __init__(self, process: asyncio.subprocess.Process, url: str, rest: asyncio.Task[None]) -> None:
        self._process = process
        self._rest = rest
        self.url = url

    @property
    def pid(self) -> int:
        return self._process.pid

    @classmethod
    async def start(cls, database_url: str) -> ServeProcess:
        environ = {name: value for name, value in os.environ.items() if not name.startswith("DETENT_")}
        environ |= {"DETENT_DATABASE_URL": database_url, "DETENT_LOG_LEVEL": "warning"}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "detent", "serve", "--port", "0"), env=environ, stderr=asyncio.subprocess.PIPE
        )
        assert process.stderr is not None
        said = b""
        while (found := LISTENING.search(said)) is None:
            line = await process.stderr.readline()
            if not line:
                raise Unavailable(f"A node did not start: {said.decode(errors='replace').strip()}")
            said += line
        return cls(process, found[1].decode(), asyncio.create_task(_read_on(process.stderr)))

    async def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        await self._rest


async def _read_on(stream: asyncio.StreamReader) -> None:
    """A full pipe that is not read would block the process."""
    while await stream.read(65_536):
        pass


@asynccontextmanager
async def throw_away_database(options: Mapping[str, str] | None = None) -> AsyncIterator[EmbeddedServer]:
    """The embedded PostgreSQL with fsync on, migrated, in a temporary folder; `options` are settings of the server."""
    with tempfile.TemporaryDirectory(prefix="detent-bench-", ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o755)  # noqa: PTH101, S103 - the server's user has to get through when root measures
        async with EmbeddedServer(Path(folder), options=options) as server:
            await prepare_database(server.url, "detent", migrate=True)
            yield server
