"""The servers the peers work on: one PostgreSQL with detent's own durable settings, one Redis that keeps its log.

Every cell gets a database of its own. PostgreSQL's `plan_cache_mode` is left at its default for the peers: detent's
choice suits detent's statements. Redis writes its log once a second, its usual setting and kinder to Celery than
PostgreSQL's flush at every commit is to everybody else.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg

from detent.devtools.bench.processes import children_seconds
from detent.store.embedded import EmbeddedServer


class Stores:
    def __init__(self, postgres: str, admin: str, postmaster: int, redis: str) -> None:
        self._postgres = postgres
        self._admin = admin
        self._postmaster = postmaster
        self._redis = redis
        self._cells = 0

    @asynccontextmanager
    async def fresh(self, kind: str) -> AsyncIterator[str]:
        """The address of an empty store, which is gone afterwards."""
        if kind == "redis":
            await self._say_redis("FLUSHALL")
            yield f"{self._redis}/0"
            return
        self._cells += 1
        name = f"cell_{self._cells}"
        await self._say_postgres(f"CREATE DATABASE {name} OWNER detent", "CHECKPOINT")
        yield self._postgres.replace("/detent?", f"/{name}?", 1)
        await self._say_postgres(f"DROP DATABASE {name} WITH (FORCE)", "CHECKPOINT")

    async def checkpoint(self) -> None:
        """No measurement pays for pages that the one before it has changed."""
        await self._say_postgres("CHECKPOINT")

    def cpu_seconds(self, kind: str) -> float | None:
        """What the server has used by now."""
        return children_seconds(self._postmaster) if kind == "postgres" else None

    async def settle(self, kind: str, url: str) -> None:
        """After filling: no peer's statements are planned as if its tables were empty."""
        if kind == "postgres":
            await self._say_postgres("VACUUM (ANALYZE)", url=url)

    async def _say_postgres(self, *statements: str, url: str | None = None) -> None:
        connection = await asyncpg.connect(url or self._admin)
        for statement in statements:
            await connection.execute(statement)
        await connection.close()

    async def _say_redis(self, command: str) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(self._redis.rpartition(":")[2]))
        writer.write(f"{command}\r\n".encode())
        answer = await reader.readline()
        writer.close()
        if not answer.startswith(b"+OK"):
            raise SystemExit(f"Redis answered {answer!r} to {command}.")


@asynccontextmanager
async def stores(*, with_redis: bool) -> AsyncIterator[Stores]:
    with tempfile.TemporaryDirectory(prefix="detent-peers-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)  # the server's user has to get through when root measures
        async with EmbeddedServer(Path(folder), options={"plan_cache_mode": "auto"}) as server:
            if not with_redis:
                yield Stores(server.url, server.admin_url, server.postmaster, "")
                return
            async with _redis(Path(folder)) as address:
                yield Stores(server.url, server.admin_url, server.postmaster, address)


@asynccontextmanager
async def _redis(folder: Path) -> AsyncIterator[str]:
    binary = await _redis_server()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        *(binary, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""),
        *("--appendonly", "yes", "--appendfsync", "everysec"),
        stdout=asyncio.subprocess.DEVNULL,
    )
    try:
        while True:
            try:
                (await asyncio.open_connection("127.0.0.1", port))[1].close()
                break
            except OSError:
                await asyncio.sleep(0.05)
        yield f"redis://127.0.0.1:{port}"
    finally:
        process.terminate()
        await process.wait()


async def _redis_server() -> str:
    found = shutil.which("redis-server")
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        install = await asyncio.create_subprocess_exec("apt-get", "install", "-y", "-q", "redis-server")
        await install.wait()
        found = shutil.which("redis-server")
    if found is None:
        raise SystemExit("There is no redis-server: install it (apt-get install redis-server), or give --no-redis.")
    return found
