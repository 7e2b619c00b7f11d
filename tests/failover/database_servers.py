"""PostgreSQL servers that follow each other, and sessions that are opened again as a process would."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from detent.cluster.admission import AdmissionCheck
from detent.domain.run import Call, Outcome, Succeeded
from detent.errors import DetentError
from detent.node.session import Session
from detent.settings.settings import Settings
from detent.store import Database, Store
from detent.store import embedded_host as host
from detent.store.db import connect
from detent.store.limits import REQUEST_LIMITS
from detent.store.migrate import migrate
from tests.support.fleet.servers import DATABASE, USER, Server
from tests.support.postgres import chosen_binaries

FAST = {"fsync": "off", "full_page_writes": "off", "shared_buffers": "32MB", "autovacuum": "off"}
TTL = 1.5
Target = Callable[[Call], Awaitable[Outcome]]


async def no_op(_call: Call) -> Outcome:
    return Succeeded()


class QuickServer(Server):
    """Its files are copied from a server that has been shut down, which takes a moment where initdb takes seconds."""

    def copy_files(self, of: Server, **options: str) -> None:
        self.account, self.binaries, self.version = of.account, of.binaries, of.version
        subprocess.run(["cp", "-a", of.data, self.data], check=True)
        self._configure({**FAST, **options})


class Base(Server):
    """A server with an empty, migrated database, made once for all tests of a process."""

    async def make(self) -> None:
        self.account = await host.account_for(self.data)
        self.binaries, self.version = await host.binaries_for(self.account, chosen_binaries(), self.folder)
        self.data.mkdir(mode=0o700)
        host.give(self.account, self.data)
        quick = ("--no-sync", "--wal-segsize=1", "--auth=trust", "--encoding=UTF8", "--locale=C")
        await self._tool("initdb", "-D", self.data, "-U", USER, *quick)
        self._configure(FAST)
        with (self.data / "pg_hba.conf").open("a") as file:
            file.write("host replication all 127.0.0.1/32 trust\n")
        await self.start()
        await self.make_database()
        connection = await connect(self.url, "detent", REQUEST_LIMITS)
        await migrate(connection)
        await connection.close()
        await self.stop()


class Servers:
    """The servers of one test, in one folder."""

    def __init__(self, folder: Path, base: Base) -> None:
        self._folder = folder
        self._base = base
        self._made: list[Server] = []

    async def primary(self, name: str = "primary", **variables: str) -> Server:
        """A server with an empty, migrated database."""
        server = QuickServer(self._folder, name, **variables)
        server.copy_files(self._base)
        return await self._start(server)

    async def standby(self, of: Server, name: str = "standby") -> Server:
        server = QuickServer(self._folder, name)
        server.copy_files(self._base, primary_conninfo=of._replication(of.port, name))
        (server.data / "standby.signal").touch()
        return await self._start(server)

    async def base_backup(self, of: Server, name: str) -> Server:
        """A standby of a server that works."""
        server = QuickServer(self._folder, name)
        await server.copy(of, of.port, **FAST)
        return await self._start(server)

    async def _start(self, server: Server) -> Server:
        self._made.append(server)
        await server.start()
        return server

    def close(self) -> None:
        for server in self._made:
            server.close()


def url_of(*servers: Server) -> str:
    """One URL that names all of them."""
    hosts = ",".join(f"127.0.0.1:{server.port}" for server in servers)
    return f"postgresql://{USER}@{hosts}/{DATABASE}?target_session_attrs=read-write"


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    database = Database(url, ttl=TTL)
    await database.open()
    try:
        yield Store(database)
    finally:
        await database.close()


class Process:
    """What a `detent serve` does without its API: it joins, and joins again when its membership is lost."""

    def __init__(self, store: Store, target: Target = no_op, ttl: float = TTL, **settings: Any) -> None:
        self._settings = Settings(lease_ttl_seconds=ttl, concurrency=10, **settings)
        self._store = store
        self._target = target
        self._stopped = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.guard = AdmissionCheck(store, self._settings.clock_step_limit_seconds)
        self.sessions: list[Session] = []
        self.refusals: list[str] = []

    async def __aenter__(self) -> Process:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stopped.set()
        if self._task is not None:
            await self._task

    @property
    def session(self) -> Session | None:
        """The present one."""
        return next((session for session in self.sessions[-1:] if not session.membership.lost.is_set()), None)

    async def _run(self) -> None:
        while not self._stopped.is_set():
            session = Session(
                self._store, self._settings, ("scheduler", "worker"), {"http": self._target}, [], guard=self.guard
            )
            try:
                await session.open()
            except DetentError as error:
                self.refusals.append(str(error))
                await self._pause(0.1)
                continue
            self.sessions.append(session)
            await self._until_over(session)

    async def _until_over(self, session: Session) -> None:
        ends = [asyncio.create_task(event.wait()) for event in (self._stopped, session.membership.lost)]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for task in ends:
            task.cancel()
        await (session.abandon() if session.membership.lost.is_set() else session.close(0))

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopped.wait(), seconds)
