"""The link between a node and its database: a TCP proxy that can be cut like a wire, without a reset.

Cut one way or both ways, in one of two manners that networks have. `hold`: what was sent meanwhile arrives when the link
is whole again, as after a partition that the kernel rides out, and a statement may reach the server long after its
sender was given up for dead. `swallow`: it never arrives, and connections that were open stay open and dead for ever, as
behind a firewall that forgot them. New connections are accepted in either case and get no answer.

All links run in one thread with a loop of its own, so that what the harness does cannot slow them down.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

REQUESTS, REPLIES, BOTH = "requests", "replies", "both"
HOLD, SWALLOW = "hold", "swallow"
CHUNK = 65536
# A peer that is gone behind a dead link is found out by the other side's keepalives, which this machine answers.
KEEPALIVE_SECONDS = 5.0

Result = TypeVar("Result")


class Direction:
    """One way through the link: open, or shut in some manner."""

    def __init__(self) -> None:
        self.whole = asyncio.Event()
        self.whole.set()
        self.swallows = False


class Connection:
    """The two ways of one connection; once a byte was swallowed, that way stays dead."""

    def __init__(self) -> None:
        self.tasks: list[asyncio.Task[None]] = []
        self.writers: list[asyncio.StreamWriter] = []

    def abort(self) -> None:
        for task in self.tasks:
            task.cancel()
        for writer in self.writers:
            writer.transport.abort()


class Link:
    """From a port of its own to the port that `target` names at the moment of connecting."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = 0
        self._ways = {REQUESTS: Direction(), REPLIES: Direction()}
        self._connections: set[Connection] = set()
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def cut(self, which: str, how: str) -> None:
        for name, way in self._ways.items():
            if which in (name, BOTH):
                way.swallows = how == SWALLOW
                way.whole.clear()

    def heal(self) -> None:
        for way in self._ways.values():
            way.whole.set()

    def switch(self, target: int) -> None:
        """From now on to another server; what is connected to the old one is reset."""
        self.target = target
        for connection in list(self._connections):
            connection.abort()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection()
        connection.writers.append(writer)
        self._connections.add(connection)
        connection.tasks.append(asyncio.current_task())  # type: ignore[arg-type]  # a handler is a task
        try:
            await self._join(connection, reader, writer)
        except OSError:
            pass
        finally:
            connection.abort()
            self._connections.discard(connection)

    async def _join(
        self, connection: Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await self._ways[REQUESTS].whole.wait()
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self.target)
        connection.writers.append(server_writer)
        ways = [
            asyncio.create_task(_pass_on(reader, server_writer, self._ways[REQUESTS])),
            asyncio.create_task(_pass_on(server_reader, writer, self._ways[REPLIES])),
        ]
        connection.tasks += ways
        await asyncio.wait(ways)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Direction) -> None:
    """Until the sender is done; its end is passed on, or noticed. A way that has swallowed something never speaks again."""
    dead = False
    try:
        while data := await reader.read(CHUNK):
            if not way.whole.is_set():
                dead = dead or way.swallows
                if not dead:
                    await way.whole.wait()
            if not dead:
                writer.write(data)
                await writer.drain()
        if not way.whole.is_set() and not dead:
            await way.whole.wait()
    except OSError:
        pass
    if dead:
        await asyncio.sleep(KEEPALIVE_SECONDS)
    writer.close()


class Links:
    """All links of a run, in a thread of their own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)
        self._links: list[Link] = []
        self._thread.start()

    def add(self, target: int) -> Link:
        link = Link(target)
        self._run(link.open())
        self._links.append(link)
        return link

    def cut(self, link: Link, which: str, how: str) -> None:
        self._loop.call_soon_threadsafe(link.cut, which, how)

    def heal(self, link: Link) -> None:
        self._loop.call_soon_threadsafe(link.heal)

    def switch(self, link: Link, target: int) -> None:
        self._loop.call_soon_threadsafe(link.switch, target)

    def close(self) -> None:
        for link in self._links:
            self._run(link.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)
