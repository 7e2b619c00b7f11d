"""The real application behind a real socket."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from detent.api.app import create_app
from detent.node.server import ApiServer
from detent.settings.settings import Settings
from detent.store import Database, Store
from detent.telemetry.health import Check
from detent.telemetry.metrics import Metrics
from tests.api.api_client import ApiClient
from tests.support.postgres import as_tested


@dataclasses.dataclass
class Readiness:
    """What the node would say of itself."""

    checks: dict[str, bool]
    metrics: Metrics = dataclasses.field(default_factory=Metrics)

    async def __call__(self) -> dict[str, Check]:
        return {name: Check(ok, "As the test says.") for name, ok in self.checks.items()}


@asynccontextmanager
async def serving(url: str, readiness: Readiness, **settings: Any) -> AsyncIterator[ApiClient]:
    database = Database(as_tested(url))
    await database.open()
    store = Store(database)
    chosen = Settings(**settings)
    app = create_app(store, settings=chosen, readiness=readiness, metrics=readiness.metrics)
    try:
        async with ApiServer(app, "127.0.0.1", 0, settings=chosen) as server, aiohttp.ClientSession() as session:
            yield ApiClient(server.url, session, store)
    finally:
        await database.close()
