"""A target that answers with everything it got, as a debugging endpoint would: /ok, /fail with status 500, or /hang
without an end."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import NamedTuple

from aiohttp import web


class Received(NamedTuple):
    headers: dict[str, str]
    body: bytes
    mode: str


class Echo:
    def __init__(self) -> None:
        self.calls: list[Received] = []
        self.url = ""

    async def __aenter__(self) -> Echo:
        application = web.Application()
        application.router.add_route("*", "/{mode}", self._take)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    def of(self, job: str) -> list[Received]:
        return [call for call in self.calls if call.headers.get("Detent-Job") == job]

    async def _take(self, request: web.Request) -> web.Response:
        body = await request.read()
        mode = request.match_info["mode"]
        self.calls.append(Received(dict(request.headers), body, mode))
        if mode == "hang":
            await asyncio.Event().wait()
        lines = [f"{name}: {value}" for name, value in request.headers.items()]
        status = 500 if mode == "fail" else 200
        return web.Response(status=status, body="\n".join(lines).encode() + b"\n\n" + body)
