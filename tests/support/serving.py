"""Small servers of a test's own, of which nothing is left when the block ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

Handle = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(handle: Handle) -> AsyncIterator[int]:
    """Answers every connection to a port, which is yielded, with `handle`. A connection that outlived its test would
    be reported by the garbage collector in the middle of another one."""
    under_way: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        under_way.add(task)
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                await handle(reader, writer)
        finally:
            under_way.discard(task)
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        left = list(under_way)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
