"""The node's API and dashboard as an ASGI application, to mount in another one.

Requests come in on the loop of the web application and are answered on the node's loop, where its connections are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

from starlette.responses import PlainTextResponse
from starlette.routing import Router
from starlette.types import ASGIApp, Receive, Scope, Send

from detent.contrib.asgi.base_path import BasePath
from detent.node.frontend import MakeApi

NOT_RUNNING = (
    "The detent node of this application does not run: pass its lifespan to the application, as in "
    "FastAPI(lifespan=node.lifespan).\n"
)
Lifespan = Callable[[Any], AbstractAsyncContextManager[None]]


class MountedFrontend:
    """An ASGI application. It needs a running node: while the lifespan of its `EmbeddedNode` is entered."""

    def __init__(self, lifespan: Lifespan) -> None:
        self._lifespan = lifespan
        self._served: ServedApi | None = None

    async def open(self, stack: AsyncExitStack, make_api: MakeApi) -> None:
        self._served = ServedApi(make_api)
        stack.push_async_callback(self._close, self._served)

    async def _close(self, served: ServedApi) -> None:
        self._served = None
        await served.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":  # it is the whole application of a server
            await Router(lifespan=self._lifespan)(scope, receive, send)
        elif scope["type"] == "http":
            answer: ASGIApp = self._served or PlainTextResponse(NOT_RUNNING, 503)
            await answer(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1000})


class ServedApi:
    """Passes requests of other loops on to the node's. The API is made for the first one."""

    def __init__(self, make_api: MakeApi) -> None:
        self._loop = asyncio.get_running_loop()
        self._make_api = make_api
        self._making = asyncio.Lock()
        self._api: ASGIApp | None = None
        self._close_api: Callable[[], Awaitable[None]] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        here = asyncio.get_running_loop()
        answer = self._answer(scope, _from(here, receive), _from(here, send))
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(answer, self._loop))

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._making:
            if self._api is None:
                app = await self._make_api()
                self._api, self._close_api = BasePath(app), app.state.close
        await self._api(scope, receive, send)

    async def close(self) -> None:
        if self._close_api is not None:
            await self._close_api()


def _from(loop: asyncio.AbstractEventLoop, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """The same call for another loop: it is carried out on this one."""

    async def called(*arguments: Any) -> Any:
        return await call(*arguments)

    async def calling(*arguments: Any) -> Any:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(called(*arguments), loop))

    return calling
