"""Queues and many jobs at once, as programs ask for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from detent import AsyncClient, Client
from detent.api.app import create_app
from detent.errors import UsageError
from detent.node.server import ApiServer
from detent.settings.settings import Settings
from detent.store import Database, Store
from detent.telemetry.health import Check
from detent.telemetry.metrics import Metrics

JOB = {"schedule": "every 1h", "target": {"type": "http", "url": "http://127.0.0.1:9/"}}


async def ready() -> dict[str, Check]:
    return {}


@pytest.fixture
async def address(database_url: str) -> AsyncIterator[str]:
    database = Database(database_url)
    await database.open()
    app = create_app(Store(database), settings=Settings(), readiness=ready, metrics=Metrics())
    async with ApiServer(app, "127.0.0.1", 0) as server:
        yield server.url
    await database.close()


async def test_jobs_that_a_search_finds_are_changed_chunk_by_chunk_in_both_clients(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("detent.client.bulk.CHUNK", 2)

    def changed() -> None:
        with Client(address) as client:
            client.create_jobs([JOB | {"name": f"many-{n}", "tags": ["many"]} for n in range(5)])
            counted = client.change_jobs("pause", "tag:many", dry_run=True)
            assert (counted.matched, counted.changed, len(counted.sample)) == (5, 0, 5)
            done = client.change_jobs("pause", "tag:many", reason="why")
            assert (done.matched, done.changed, done.next_cursor) == (5, 5, None)
            assert {job.paused_reason for job in client.list_jobs(tag="many")} == {"why"}
            with pytest.raises(UsageError):
                client.change_jobs("pause", "tagg:many")

    await asyncio.to_thread(changed)
    async with AsyncClient(address) as asked:
        assert (await asked.change_jobs("delete", "tag:many")).changed == 5


async def test_queues_are_listed_and_limited_in_both_clients(address: str) -> None:
    def limited() -> None:
        with Client(address) as client:
            queue = client.limit_queue("mail/letters", max_concurrent=2)
            assert (queue.max_concurrent, queue.rate_per_second) == (2, None)
            assert "mail/letters" in {queue.name for queue in client.list_queues()}

    await asyncio.to_thread(limited)
    async with AsyncClient(address) as asked:
        await asked.limit_queue("mail/letters")
        assert "mail/letters" not in {queue.name async for queue in asked.list_queues()}
