"""The database goes away under a running node and comes back: the node waits, and then nothing is missing."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from detent.store.db import connect
from detent.store.doctor import CONNECTIONS_PER_NODE
from detent.store.embedded import EmbeddedServer
from detent.store.limits import REQUEST_LIMITS
from tests.support.ledger import (
    check_calls,
    check_ledger,
    create_ticking,
    database_now,
    none_open,
    pause_all,
    succeeded_after,
)
from tests.support.processes import Node, Nodes
from tests.support.sink import Sink, http_target
from tests.support.waiting import until

Way = Callable[[str], dict[str, Any]]


CONNECTIONS = 40


@pytest.fixture
async def server(folder: Path) -> AsyncIterator[EmbeddedServer]:
    options = {"fsync": "off", "full_page_writes": "off", "shared_buffers": "16MB", "max_connections": str(CONNECTIONS)}
    running = EmbeddedServer(folder / "server", options=options, system_dir=folder / "system")
    await running.start()
    yield running
    await running.stop()


async def go_down(server: EmbeddedServer, how: str) -> None:
    if how == "fast":
        await server.stop()
        return
    cluster = server.home / "postgres"
    process = int((cluster / "postmaster.pid").read_text().split()[0])
    os.kill(process, signal.SIGQUIT)
    await until(lambda: not (cluster / "postmaster.pid").exists(), what="the server to end")


async def come_back(server: EmbeddedServer, how: str) -> None:
    if how == "crash":
        await server.stop()  # lets go of a server that is no longer there
    await server.start()


@pytest.mark.parametrize("how", [pytest.param("fast", marks=pytest.mark.long), "crash"])
async def test_a_node_outlives_a_restart_of_its_database(
    nodes: Nodes, server: EmbeddedServer, way: Way, sink: Sink, how: str
) -> None:
    node = await nodes.start("serve", **way(server.url))
    jobs = [create_ticking(node.client, f"job-{n}", http_target(sink, "slow/0.3")) for n in range(2)]
    await until(lambda: len(sink.calls) > 3, 20)
    await go_down(server, how)
    await node.says("membership lost")
    await come_back(server, how)
    await node.says("joined", 2)
    assert node.client.readiness()["status"] == "ready"

    look = await connect(server.url, "detent", REQUEST_LIMITS)
    await succeeded_after(look, await database_now(look), jobs)
    jobs = pause_all(node.client, jobs)
    await none_open(look)
    await check_ledger(look, jobs, "succeeded")
    await check_calls(look, sink, jobs)
    await look.close()
    node.send(signal.SIGTERM)
    assert await node.ended() == 0


async def test_a_node_can_be_ended_while_its_database_is_away(nodes: Nodes, server: EmbeddedServer, way: Way) -> None:
    node = await nodes.start("serve", **way(server.url))
    await server.stop()
    await node.says("membership lost")
    node.send(signal.SIGTERM)
    assert await node.ended() == 0


def open_sockets(node: Node) -> int:
    folder = Path(f"/proc/{node.process.pid}/fd")
    return sum(link.readlink().name.startswith("socket:") for link in folder.iterdir() if link.is_symlink())


async def server_connections(look: Any) -> int:
    count: int = await look.fetchval(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'detent' AND pid <> pg_backend_pid()"
    )
    return count


@pytest.mark.long
async def test_restarts_under_load_lose_no_tick_and_leak_no_connection(
    nodes: Nodes, server: EmbeddedServer, way: Way, sink: Sink
) -> None:
    settings = way(server.url)
    members = [await nodes.start("serve", **settings) for _ in range(2)]
    client = members[0].client
    jobs = [create_ticking(client, f"job-{n}", http_target(sink, "slow/0.3")) for n in range(10)]
    await until(lambda: len(sink.calls) > 30, 20)
    sockets = [open_sockets(node) for node in members]
    for how in ("fast", "crash", "fast", "crash"):
        await go_down(server, how)
        await come_back(server, how)
        look = await connect(server.url, "detent", REQUEST_LIMITS)
        await succeeded_after(look, await database_now(look), jobs)
        # What a node may have open: its pools, its heartbeat, its listener (a pooler has fewer for all).
        assert await server_connections(look) <= CONNECTIONS_PER_NODE * len(members)
        await look.close()
    for node, before in zip(members, sockets, strict=True):
        assert open_sockets(node) <= before + CONNECTIONS_PER_NODE

    look = await connect(server.url, "detent", REQUEST_LIMITS)
    jobs = pause_all(client, jobs)
    await none_open(look)
    await check_ledger(look, jobs, "succeeded")
    await check_calls(look, sink, jobs)
    await look.close()


async def take_all_connections(url: str) -> list[Any]:
    """Take all connections, like a program whose pool has no limit."""
    taken: list[Any] = []
    while len(taken) <= CONNECTIONS:
        try:
            taken.append(await asyncpg.connect(url))
        except asyncpg.TooManyConnectionsError:
            return taken
    raise AssertionError("the server has more connections than it may")


@pytest.mark.long
async def test_a_node_stays_a_member_and_fires_while_others_hold_every_connection_there_is(
    nodes: Nodes, server: EmbeddedServer, way: Way, sink: Sink
) -> None:
    node = await nodes.start("serve", **way(server.url))
    jobs = [create_ticking(node.client, f"job-{n}", http_target(sink)) for n in range(2)]
    await until(lambda: len(sink.calls) > 3, 20)
    taken = await take_all_connections(server.url)
    try:
        before = len(sink.calls)
        await until(lambda: len(sink.calls) > before + 12, 30, "ticks for several times to live")
        assert len(node.identities) == 1
        assert not node.events("membership lost")
    finally:
        for connection in taken:
            await connection.close()
    look = await connect(server.url, "detent", REQUEST_LIMITS)
    jobs = pause_all(node.client, jobs)
    await none_open(look)
    await check_ledger(look, jobs, "succeeded")
    await look.close()
