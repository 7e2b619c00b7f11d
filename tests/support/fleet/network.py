"""The link between a node and its database: a TCP proxy that can be cut like a wire, without a reset.

Cut one way or both ways, in one of two manners that networks have. `hold`: what was sent meanwhile arrives when the
link is whole again, as after a partition that the kernel rides out, and a statement may reach the server long after its
sender was given up for dead. `swallow`: it never arrives, and connections that were used meanwhile stay dead, as
behind a firewall that forgot them. New connections are accepted in either case and get no answer.

All links run in one thread with a loop of its own, so that what the harness does cannot slow them down.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from pathlib import Path
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
        self.left: int | None = None
        """How many more messages pass before the connection ends, if that is counted."""


class Connection:
    """What belongs to one connection, so that it can be ended at any moment."""

    def __init__(self) -> None:
        self.writers: list[asyncio.StreamWriter] = []
        self.tasks: list[asyncio.Task[object]] = []

    async def does(self, *work: Coroutine[Any, Any, object]) -> bool:
        """Until all of it is done; false when the connection was ended meanwhile."""
        tasks = [asyncio.create_task(item) for item in work]
        self.tasks += tasks
        await asyncio.wait(tasks)
        return not any(task.cancelled() for task in tasks)

    def abort(self) -> None:
        for task in self.tasks:
            task.cancel()
        for writer in self.writers:
            writer.transport.abort()


class Link:
    """From a port of its own to `target`, a port of this machine or a socket, as it is at the moment of connecting."""

    def __init__(self, target: int | Path) -> None:
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

    def end_after(self, messages: int) -> None:
        """The next request after so many ends its connection, without an answer."""
        self._ways[REQUESTS].left = messages

    def switch(self, target: int | Path) -> None:
        """From now on to another server; what is connected to the old one is reset."""
        self.target = target
        for connection in list(self._connections):
            connection.abort()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.abort()
        while self._connections:
            await asyncio.sleep(0.01)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection()
        connection.writers.append(writer)
        self._connections.add(connection)
        try:
            if await connection.does(self._ways[REQUESTS].whole.wait()):
                await self._join(connection, reader, writer)
        except OSError:
            pass
        finally:
            connection.abort()
            self._connections.discard(connection)

    async def _join(self, connection: Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await self._connect()
        connection.writers.append(server_writer)
        await connection.does(
            _pass_on(reader, server_writer, self._ways[REQUESTS]),
            _pass_on(server_reader, writer, self._ways[REPLIES]),
        )

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if isinstance(self.target, Path):
            return await asyncio.open_unix_connection(self.target)
        return await asyncio.open_connection("127.0.0.1", self.target)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Direction) -> None:
    """Until the sender is done; its end is passed on, or noticed. A way that has swallowed something stays dead."""
    dead = False
    try:
        while (data := await reader.read(CHUNK)) and way.left != 0:
            if way.left is not None:
                way.left -= 1
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

    def add(self, target: int | Path) -> Link:
        link = Link(target)
        self._run(link.open())
        self._links.append(link)
        return link

    def cut(self, link: Link, which: str, how: str) -> None:
        self._loop.call_soon_threadsafe(link.cut, which, how)

    def heal(self, link: Link) -> None:
        self._loop.call_soon_threadsafe(link.heal)

    def end_after(self, link: Link, messages: int) -> None:
        self._loop.call_soon_threadsafe(link.end_after, messages)

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
