"""One job on one node, one disturbance, and then silence: nothing but the node itself can make its ticks go on.

In short: `python -m chaos.cluster idle-second …` does it with every disturbance we know, for longer, and with a bound.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest

from detent.client import JsonClient
from tests.support.processes import Node, Nodes
from tests.support.sink import Sink, http_target
from tests.support.waiting import until

FURTHER = 2
SECONDS = 60.0
# A statement of ours that waits is cancelled by the server after less than this.
LOCKED_SECONDS = 3.0
STOPPED_SECONDS = 2.2
CLIENTS, EACH = 5, 40

Disturb = Callable[[Node, Any], Awaitable[None]]


async def stop(node: Node, _look: Any) -> None:
    node.send(signal.SIGSTOP)
    await asyncio.sleep(STOPPED_SECONDS)
    node.send(signal.SIGCONT)


async def end_connections(_node: Node, look: Any) -> None:
    await look.fetch(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )


async def lock_the_node(_node: Node, look: Any) -> None:
    """Its fires and claims wait for their own row, until the server has enough of it."""
    async with look.transaction():
        await look.fetch("SELECT FROM nodes FOR UPDATE")
        await asyncio.sleep(LOCKED_SECONDS)


async def lock_the_cursor(_node: Node, look: Any) -> None:
    async with look.transaction():
        await look.fetch("SELECT FROM cursors FOR UPDATE")
        await asyncio.sleep(LOCKED_SECONDS)


async def change(node: Node, _look: Any) -> None:
    def at_once() -> None:
        node.client.pause_job("second")
        node.client.edit_job("second", {"payload": {"changed": True}})
        node.client.resume_job("second")

    await asyncio.to_thread(at_once)


async def register(node: Node, _look: Any) -> None:
    await asyncio.gather(*(asyncio.to_thread(_register, node.url, number) for number in range(CLIENTS)))


def _register(url: str, client_number: int) -> None:
    with JsonClient(url) as client:
        for number in range(EACH):
            name = f"later-{client_number}-{number}"
            schedule = {"at": "2099-01-01T00:00:00Z"}
            client.create_job({"name": name, "schedule": schedule, "target": {"type": "http", "url": "http://x/"}})


async def trigger(node: Node, _look: Any) -> None:
    for _ in range(2):
        with suppress(Exception):  # refused where the job may not have another run
            await asyncio.to_thread(node.client.trigger_job, "second")


DISTURBANCES: tuple[Disturb, ...] = (
    stop, end_connections, lock_the_node, lock_the_cursor, change, register, trigger,
)  # fmt: skip


@pytest.mark.parametrize(
    "policy", ["SKIP", *(pytest.param(policy, marks=pytest.mark.long) for policy in ("QUEUE", "REPLACE"))]
)
async def test_the_ticks_of_an_idle_node_go_on_after_each_disturbance(
    cluster: Nodes, sink: Sink, database_url: str, policy: str
) -> None:
    node = await cluster.start("serve")
    target = http_target(sink, "slow/0.2")
    job = {"name": "second", "schedule": "* * * * * *", "target": target, "concurrent_policy": policy}
    node.client.create_job(job)
    await further_ticks(sink, "the first ticks")
    for disturb in DISTURBANCES:
        look = await asyncpg.connect(database_url, server_settings={"search_path": "detent"})
        await disturb(node, look)
        await look.close()
        await further_ticks(sink, f"ticks after {disturb.__name__}")


async def further_ticks(sink: Sink, what: str) -> None:
    """Ticks that were not due before now, so that catching up does not count."""
    now = datetime.now(UTC)
    await until(lambda: len({c.scheduled_at for c in sink.calls if c.scheduled_at > now}) >= FURTHER, SECONDS, what)
