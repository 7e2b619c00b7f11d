"""The database goes away under a running node and comes back: the node waits, and then nothing is missing."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from ledger import check_calls, check_ledger, create_ticking, database_now, none_open, pause_all, succeeded_after
from processes import Nodes
from sink import Sink, http_target

from detent.store.db import connect
from detent.store.embedded import EmbeddedServer
from waiting import until

Way = Callable[[str], dict[str, str]]


@pytest.fixture
async def server(folder: Path) -> AsyncIterator[EmbeddedServer]:
    options = {"fsync": "off", "full_page_writes": "off", "shared_buffers": "16MB"}
    running = EmbeddedServer(folder / "server", options=options, system_dir=folder / "system")
    await running.start()
    yield running
    await running.stop()


async def go_down(server: EmbeddedServer, how: str) -> None:
    if how == "fast":
        await server.stop()
        return
    cluster = server.place / "postgres"
    process = int((cluster / "postmaster.pid").read_text().split()[0])
    os.kill(process, signal.SIGQUIT)
    await until(lambda: not (cluster / "postmaster.pid").exists(), what="the server to end")


async def come_back(server: EmbeddedServer, how: str) -> None:
    if how == "crash":
        await server.stop()  # lets go of a server that is no longer there
    await server.start()


@pytest.mark.parametrize("how", ["fast", "crash"])
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
    assert node.client.ready()["status"] == "ready"

    look = await connect(server.url, "detent")
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
