"""A target that accepts runs and reports their end later, as its test says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, NamedTuple

import aiohttp
from aiohttp import web


class AcceptedCall(NamedTuple):
    """A call as it arrived, with what it said about the callback."""

    run_id: str
    job: str
    token: int
    attempt: int
    url: str
    credential: str


class CallbackAnswer(NamedTuple):
    status: int
    document: Any


Respond = Callable[[AcceptedCall], Awaitable[web.Response]]


async def accepts(_call: AcceptedCall) -> web.Response:
    return web.Response(status=202, text="accepted")


class CallbackTarget:
    """Answers on this loop. `respond` says what it answers, and may wait or report before it does."""

    def __init__(self, respond: Respond = accepts) -> None:
        self.respond = respond
        self.calls: list[AcceptedCall] = []
        self.url = ""

    async def __aenter__(self) -> CallbackTarget:
        application = web.Application()
        application.router.add_route("*", "/{rest:.*}", self._handle)
        self._runner = web.AppRunner(application, access_log=None, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, backlog=4096)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/"
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=50))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()
        await self._runner.cleanup()

    def target(self, **callback: Any) -> dict[str, Any]:
        return {"type": "http", "url": self.url, "callback": callback}

    def calls_of(self, run_id: str) -> list[AcceptedCall]:
        return [call for call in self.calls if call.run_id == run_id]

    async def _handle(self, request: web.Request) -> web.Response:
        headers = request.headers
        call = AcceptedCall(
            headers["Detent-Run-Id"],
            headers["Detent-Job"],
            int(headers["Detent-Token"]),
            int(headers["Detent-Attempt"]),
            headers.get("Detent-Callback-Url", ""),
            headers.get("Detent-Callback-Token", ""),
        )
        self.calls.append(call)
        return await self.respond(call)

    async def report(
        self, call: AcceptedCall, verb: str, *, credential: str | None = "", token: int | None = None, **body: Any
    ) -> CallbackAnswer:
        """`credential`: another than that of the call; None: none at all."""
        bearer = call.credential if credential == "" else credential
        headers = {} if bearer is None else {"Authorization": f"Bearer {bearer}"}
        given = {"token": call.token if token is None else token, **body}
        async with self._session.post(f"{call.url}/{verb}", json=given, headers=headers) as response:
            return CallbackAnswer(response.status, await response.json(content_type=None))

    async def succeeds(self, call: AcceptedCall, result: Any = None) -> CallbackAnswer:
        return await self.report(call, "complete", result=result)

    async def fails(self, call: AcceptedCall, error: str = "broken", **more: Any) -> CallbackAnswer:
        return await self.report(call, "fail", error=error, **more)

    async def first_call(self) -> AcceptedCall:
        async with asyncio.timeout(10):
            while not self.calls:
                await asyncio.sleep(0.01)
        return self.calls[0]
