"""Pages of a database of their own, asked for over a real socket; a cluster of real processes, and a real browser."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.dashboard.pages import Pages, serving
from tests.support.browsing import Browser, running_browser
from tests.support.processes import Nodes
from tests.support.sink import Sink


@pytest.fixture
async def pages(database_url: str) -> AsyncIterator[Pages]:
    """A server on loopback."""
    async with serving(database_url) as served:
        yield served


@pytest.fixture
async def guarded(database_url: str) -> AsyncIterator[Pages]:
    """A server that others can reach, and that asks for keys."""
    async with serving(database_url, host="0.0.0.0") as served:
        yield served


@pytest.fixture
async def sql(database_url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(database_url, server_settings={"search_path": "detent"})
    yield connection
    await connection.close()


@pytest.fixture
def cluster(database_url: str) -> Iterator[Nodes]:
    """Starts processes on the database of the test."""
    with tempfile.TemporaryDirectory(prefix="detent-test-", ignore_cleanup_errors=True) as name:
        settings = {"DETENT_DATA_DIR": f"{name}/data", "DETENT_LEASE_TTL_SECONDS": "6"}
        with closing(Nodes(Path(name), **settings, DETENT_DATABASE_URL=database_url)) as started:
            yield started
        for node, text in started.logs:
            assert "Traceback" not in text, f"{node} met an error:\n{text}"


@pytest.fixture
def sink() -> Iterator[Sink]:
    with Sink() as running:
        yield running


@pytest.fixture
def browse() -> Callable[..., AbstractAsyncContextManager[Browser]]:
    @asynccontextmanager
    async def browsing(url: str, **options: Any) -> AsyncIterator[Browser]:
        async with running_browser(url, **options) as browser:
            yield browser
        browser.check()

    return browsing
