"""The dashboard behind a real socket, for tests that read what it sends."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import aiohttp

from detent.api.app import create_app
from detent.dashboard.app import add_dashboard
from detent.node.server import ApiServer
from detent.settings.settings import Settings
from detent.store import Database, Store
from detent.telemetry.health import Check
from detent.telemetry.metrics import Metrics
from tests.support.postgres import as_tested

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


class Shown(NamedTuple):
    status: int
    headers: Any
    text: str

    @property
    def csrf(self) -> str:
        found = re.search(r'name="csrf" content="([0-9a-f]+)"', self.text)
        assert found is not None, self.text
        return found[1]


class Pages:
    def __init__(self, url: str, session: aiohttp.ClientSession, store: Store) -> None:
        self.url = url
        self.session = session
        self.store = store

    async def get(self, path: str, **options: Any) -> Shown:
        async with self.session.get(self.url + path, allow_redirects=False, **options) as response:
            return Shown(response.status, response.headers, await response.text())

    async def post(self, path: str, csrf: str | None = None, **fields: Any) -> Shown:
        """A change, as a page of the dashboard sends it; a field that is a list is sent once for each value."""
        headers = {"HX-Request": "true", **({} if csrf is None else {"X-CSRF-Token": csrf})}
        url = self.url + path
        pairs = [(name, str(each)) for name, value in fields.items() for each in _list(value)]
        async with self.session.post(url, data=pairs, headers=headers, allow_redirects=False) as response:
            return Shown(response.status, response.headers, await response.text())

    async def stream(self, path: str) -> str:
        """The first message of a page's stream, except heartbeats."""
        lines: list[str] = []
        beats = False
        async with self.session.get(f"{self.url}/live{path}") as response:
            assert response.status == 200
            assert response.headers["Content-Type"].startswith("text/event-stream")
            async for line in response.content:
                if line.startswith(b"event: "):
                    beats = line == b"event: beat\n"
                elif beats:
                    beats = line != b"\n"
                elif line.startswith(b"data: "):
                    lines.append(line[6:].decode())
                elif lines:
                    break
        return "".join(lines)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


async def _ready() -> dict[str, Check]:
    return {"database": Check(True, "Always ready.")}


@asynccontextmanager
async def serving(url: str, **settings: Any) -> AsyncIterator[Pages]:
    database = Database(as_tested(url))
    await database.open()
    store = Store(database)
    chosen = Settings(**{"port": 0, **settings})
    app = create_app(store, settings=chosen, readiness=_ready, metrics=Metrics())
    add_dashboard(app)
    jar = aiohttp.CookieJar(unsafe=True)  # the address of a test is a number
    try:
        async with (
            ApiServer(app, "127.0.0.1", chosen.port) as server,
            aiohttp.ClientSession(cookie_jar=jar, read_bufsize=1 << 20) as session,
        ):
            yield Pages(server.url, session, store)
    finally:
        await database.close()
