"""A process that requests /livez from a node continuously and measures the node's memory, until its standard input
ends.

    python -m chaos.livez_watch PORT PID

Every 20 ms it asks over a new connection, and over one that it keeps. A node that stands still for a second has 50 late
answers and not one: new connections do not wait for each other, and an answer over the kept one counts for each 20 ms
that it took. It asks a bare server in another process as often: its answers show what the machine itself costs. It
prints one JSON document.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import re
import socket
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import uvicorn
import uvloop

PAUSE = 0.02
NO_ANSWER = 5.0
CLOSE = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
KEEP_ALIVE = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Asker:
    """Asks one server; how long each answer took, and what was wrong with those that were not 200."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._kept: Streams | None = None
        self._asking: set[asyncio.Task[None]] = set()
        self._is_asking_kept = False
        self.fresh: list[float] = []
        self.kept: list[float] = []
        self.wrong: list[str] = []

    def ask(self) -> None:
        """Over a new connection, and over the kept one unless that has still to answer."""
        self._start(self._ask_once())
        if not self._is_asking_kept:
            self._is_asking_kept = True
            self._start(self._ask_again())

    def _start(self, asking: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(asking)
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def finish(self) -> None:
        await asyncio.gather(*self._asking)

    async def _ask_once(self) -> None:
        self.fresh.append(await self._timed(self._answered_once()))

    async def _ask_again(self) -> None:
        wait = await self._timed(self._answered_over_kept())
        if wait >= NO_ANSWER:
            self._forget()
        self._is_asking_kept = False
        while wait > 0:
            self.kept.append(wait)
            wait -= PAUSE

    async def _timed(self, asking: Coroutine[Any, Any, int]) -> float:
        began = time.monotonic()
        try:
            async with asyncio.timeout(NO_ANSWER):
                status = await asking
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            self.wrong.append(type(error).__name__)
            return NO_ANSWER
        if status != 200:
            self.wrong.append(str(status))
        return time.monotonic() - began

    async def _answered_once(self) -> int:
        streams = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            return (await _answer(streams, CLOSE))[0]
        finally:
            streams[1].transport.abort()

    async def _answered_over_kept(self) -> int:
        """Like any client, it asks once more where the server has closed a connection that it kept."""
        if self._kept is not None:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                return await self._over(self._kept)
            self._forget()
        self._kept = await asyncio.open_connection("127.0.0.1", self._port)
        return await self._over(self._kept)

    async def _over(self, streams: Streams) -> int:
        status, keeps = await _answer(streams, KEEP_ALIVE)
        if not keeps:
            self._forget()
        return status

    def _forget(self) -> None:
        if self._kept is not None:
            self._kept[1].transport.abort()
            self._kept = None


async def _answer(streams: Streams, question: bytes) -> tuple[int, bool]:
    """The status, and whether the server keeps the connection."""
    reader, writer = streams
    writer.write(question)
    head = await reader.readuntil(b"\r\n\r\n")
    length = LENGTH.search(head)
    await reader.readexactly(int(length[1]) if length else 0)
    return int(head.split(b" ", 2)[1]), b"connection: close" not in head.lower()


def memory(process: int) -> int:
    """None of a process that has ended."""
    with contextlib.suppress(OSError):
        found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
        return int(found[1]) * 1024 if found else 0
    return 0


def serve_bare(sock: socket.socket) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-type", b"application/json"), (b"content-length", b"15")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b'{"status":"ok"}'})

    config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", ws="none")
    uvloop.run(uvicorn.Server(config).serve(sockets=[sock]))


async def watch(port: int, bare_port: int, process: int) -> dict[str, Any]:
    node, bare = Asker(port), Asker(bare_port)
    over = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    before = most = memory(process)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    due = time.monotonic()
    while not over.done():
        node.ask()
        bare.ask()
        most = max(most, memory(process))
        due = max(due + PAUSE, time.monotonic())
        await asyncio.sleep(due - time.monotonic())
    await asyncio.gather(node.finish(), bare.finish())
    waits = {"fresh": node.fresh, "kept": node.kept, "bare_fresh": bare.fresh, "bare_kept": bare.kept}
    return {**waits, "wrong": node.wrong, "grown": most - before}


def main(port: int, process: int) -> None:
    sock = socket.create_server(("127.0.0.1", 0), backlog=1024)
    bare = multiprocessing.get_context("fork").Process(target=serve_bare, args=(sock,), daemon=True)
    bare.start()
    found = uvloop.run(watch(port, sock.getsockname()[1], process))
    sys.stdout.write(json.dumps(found))
    bare.terminate()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
