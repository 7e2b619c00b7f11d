"""A served dashboard per test, a cluster of real processes, and a real browser."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from tests.dashboard.pages import Pages, serving
from tests.support.browsing import Browser, running_browser
from tests.support.processes import Nodes, unexpected_tracebacks
from tests.support.sink import Sink


@pytest.fixture
async def pages(database_url: str) -> AsyncIterator[Pages]:
    """A server of a cluster without keys, which needs none."""
    async with serving(database_url) as served:
        yield served


@pytest.fixture
async def guarded(database_url: str) -> AsyncIterator[Pages]:
    """A server that requires keys."""
    async with serving(database_url, require_keys=True) as served:
        yield served


@pytest.fixture
def cluster(database_url: str) -> Iterator[Nodes]:
    """Starts processes on the database of the test."""
    with tempfile.TemporaryDirectory(prefix="detent-test-", ignore_cleanup_errors=True) as name:
        settings = {"DETENT_DATA_DIR": f"{name}/data", "DETENT_LEASE_TTL_SECONDS": "6"}
        with closing(Nodes(Path(name), **settings, DETENT_DATABASE_URL=database_url)) as started:
            yield started
        for node, text in started.logs:
            assert not unexpected_tracebacks(text), f"{node} met an error:\n{text}"


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
