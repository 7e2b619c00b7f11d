"""Several lifespans as one: an application takes only one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

Lifespan = Callable[[Any], AbstractAsyncContextManager[Any]]


def combine(*lifespans: Lifespan) -> Lifespan:
    """Enters each in this order, and leaves them in the reverse order. What they yield as state is joined."""

    @asynccontextmanager
    async def combined(app: Any) -> AsyncIterator[dict[str, Any]]:
        state: dict[str, Any] = {}
        async with AsyncExitStack() as stack:
            for lifespan in lifespans:
                state |= await stack.enter_async_context(lifespan(app)) or {}
            yield state

    return combined
