"""The program of the manual that reaches the broker and the API only: it executes every run that it is offered."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from detent import AsyncClient
from detent.api.app import create_app
from detent.domain.job import JobSpec, PythonTarget
from detent.jobs import JobOperations
from detent.node.server import ApiServer
from detent.settings.settings import Settings
from detent.store import Store
from detent.store.queues import RunLimits
from detent.telemetry.metrics import Metrics
from tests.docs.docs_pages import blocks_of
from tests.session.test_session import soon
from tests.transports.nodes.conftest import Apart

PAGE = "docs/howto/transports.md"
QUEUE = "images"
RESIZE = PythonTarget(function="resize")


async def _ready() -> dict[str, Any]:
    return {}


@pytest.fixture
async def client(store: Store, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AsyncClient]:
    app = create_app(store, settings=Settings(), readiness=_ready, metrics=Metrics())
    async with ApiServer(app, "127.0.0.1", 0) as server:
        monkeypatch.setenv("DETENT_API_URL", server.url)
        async with AsyncClient() as client:
            yield client


@pytest.fixture
async def program(apart: Apart, client: AsyncClient, store: Store, cluster_of: str) -> AsyncIterator[None]:
    """It runs, for a queue that has a job and a task."""
    later = JobSpec(schedule="every 1h", target=RESIZE, queue=QUEUE, name="resize")
    await JobOperations(store).registration.add([later, JobSpec(target=RESIZE, queue=QUEUE, name="shrink")])
    (found,) = [queue async for queue in client.list_queues() if queue.name == QUEUE]
    assert {each.needs for each in found.channels} == {"python:resize", "task:python:resize"}
    (block,) = [block for block in blocks_of(PAGE) if block.language == "python"]
    names: dict[str, Any] = {}
    exec(block.text, names)
    pulling = asyncio.create_task(names["pull"](apart.address, cluster_of, [each.channel for each in found.channels]))
    yield
    pulling.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await pulling  # one that has failed fails the test


async def due_now(look: Any, name: str) -> None:
    await look.execute(
        "UPDATE cursors SET next_tick = $1, fire_at = $1 FROM jobs WHERE jobs.job = cursors.job AND name = $2",
        await soon(look, 0.0), name,
    )  # fmt: skip


@pytest.mark.parametrize("limited", [False, True])
async def test_the_program_of_the_manual_executes_ticks_and_on_demand_runs_also_under_limits(
    apart: Apart, look: Any, client: AsyncClient, store: Store, program: None, limited: bool
) -> None:
    if limited:
        await store.queues.limit(QUEUE, RunLimits(5, None), tenant=1)
    await due_now(look, "resize")
    await apart.scheduler()
    await apart.ended(1)
    await client.enqueue_many("shrink", [{} for _ in range(25)])
    await apart.ended(26)
    assert await look.fetchval("SELECT count(*) FROM live_runs WHERE owner IS NULL") == 0
