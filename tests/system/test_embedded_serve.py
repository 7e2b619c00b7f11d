"""`detent serve` with its own PostgreSQL: one command that can be interrupted, killed and started again."""

from __future__ import annotations

import os
import signal
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from detent.errors import DetentError
from detent.store.db import connect
from tests.support.ledger import (
    check_calls,
    check_ledger,
    create_ticking,
    database_now,
    none_open,
    pause_all,
    succeeded_after,
)
from tests.support.processes import Node, Nodes, command_line, is_alive
from tests.support.sink import Sink, http_target
from tests.support.waiting import until

FOUND_DEAD = "the embedded PostgreSQL has ended unexpectedly"
STARTED_AGAIN = "the embedded PostgreSQL was started again"


def postmaster(data: Path) -> int:
    return int((data / "postgres" / "postmaster.pid").read_text().split()[0])


@asynccontextmanager
async def looking_at(data: Path) -> AsyncIterator[Any]:
    connection = await connect(f"postgresql://detent@/detent?host={data / 'socket'}&port=5432", "detent")
    try:
        yield connection
    finally:
        await connection.close()


async def runs_again(node: Node, job: str) -> None:
    """Wait until the job has succeeded at a tick that is still to come."""
    now = datetime.now(UTC)

    def newest() -> bool:
        runs = node.client.list_runs(job, status=["succeeded"]).page(1)["items"]
        return bool(runs) and datetime.fromisoformat(runs[0]["scheduled_at"]) > now

    await until(newest, 30, f"{job} to run")


async def test_an_interrupt_ends_everything_and_the_next_start_finds_its_data(
    nodes: Nodes, folder: Path, sink: Sink
) -> None:
    data = folder / "data"
    first = await nodes.start("serve", "--data-dir", str(data))
    job = create_ticking(first.client, "kept", http_target(sink))
    await runs_again(first, "kept")
    server = postmaster(data)
    os.killpg(first.process.pid, signal.SIGINT)
    assert await first.ended() == 0
    assert not is_alive(server)
    ran = {call.run_id for call in sink.calls}

    second = await nodes.start("serve", "--data-dir", str(data))
    assert postmaster(data) != server
    assert second.client.get_job("kept")["id"] == job.id
    await runs_again(second, "kept")
    listed = {run["id"] for run in second.client.list_runs("kept").page(500)["items"]}
    assert ran <= listed


async def test_several_share_the_server_and_the_last_one_out_stops_it(nodes: Nodes, folder: Path, sink: Sink) -> None:
    data = folder / "data"
    first = await nodes.start("serve", "--data-dir", str(data))
    create_ticking(first.client, "shared", http_target(sink))
    server = postmaster(data)
    second = await nodes.start("serve", "--data-dir", str(data))
    first.send(signal.SIGTERM)
    assert await first.ended() == 0
    await runs_again(second, "shared")

    third = await nodes.start("serve", "--data-dir", str(data))
    await second.kill()
    await runs_again(third, "shared")
    assert postmaster(data) == server
    assert is_alive(server)
    third.send(signal.SIGTERM)
    assert await third.ended() == 0
    assert not is_alive(server)


@pytest.mark.long
async def test_after_a_kill_with_runs_in_flight_every_tick_is_accounted_for(
    nodes: Nodes, folder: Path, sink: Sink
) -> None:
    data = folder / "data"
    victim = await nodes.start("serve", "--data-dir", str(data))
    jobs = [create_ticking(victim.client, f"slow-{n}", http_target(sink, "slow/0.7")) for n in range(3)]
    await until(lambda: len(sink.answered) > 3 and len(sink.calls) > len(sink.answered), 30, "runs in flight")
    await victim.kill()

    async with looking_at(data) as look:
        in_flight = await look.fetchval("SELECT count(*) FROM live_runs WHERE owner IS NOT NULL")
        assert in_flight > 0
        successor = await nodes.start("serve", "--data-dir", str(data))
        await succeeded_after(look, await database_now(look), jobs)
        jobs = pause_all(successor.client, jobs)
        await none_open(look)
        await check_ledger(look, jobs, "succeeded")
        await check_calls(look, sink, jobs)
        assert await look.fetchval("SELECT count(*) FROM attempts WHERE outcome = 'lost'") == in_flight


async def test_after_a_kill_of_the_database_too_nothing_that_was_promised_is_gone(
    nodes: Nodes, folder: Path, sink: Sink
) -> None:
    data = folder / "data"
    victim = await nodes.start("serve", "--data-dir", str(data))
    job = create_ticking(victim.client, "crash", http_target(sink))
    await until(lambda: len(sink.calls) >= 2, 30, "runs")
    os.kill(postmaster(data), signal.SIGKILL)
    await victim.kill()

    successor = await nodes.start("serve", "--data-dir", str(data))
    async with looking_at(data) as look:
        await succeeded_after(look, await database_now(look), [job])
        (job,) = pause_all(successor.client, [job])
        await none_open(look)
        await check_ledger(look, [job], "succeeded")
        await check_calls(look, sink, [job])


# --- the server dies, and detent does not ---


async def kill_postmaster(data: Path) -> int:
    """Its number; its children find out by themselves and end too."""
    server = postmaster(data)
    os.kill(server, signal.SIGKILL)
    await until(lambda: not is_alive(server), what="the postmaster to be gone")
    return server


def restarted(data: Path, before: int) -> bool:
    try:
        return postmaster(data) != before and is_alive(postmaster(data))
    except (OSError, ValueError, IndexError):
        return False  # it is being written


async def test_a_killed_postgres_is_started_again_and_every_tick_is_accounted_for(
    nodes: Nodes, folder: Path, sink: Sink
) -> None:
    data = folder / "data"
    node = await nodes.start("serve", "--data-dir", str(data))
    job = create_ticking(node.client, "goes-on", http_target(sink))
    await until(lambda: len(sink.calls) >= 2, 30, "runs")
    before = await kill_postmaster(data)
    await until(lambda: restarted(data, before), 30, "the server to be started again")
    await until(lambda: is_ready(node), 30, "the node to be ready again")
    async with looking_when_up(data) as look:
        await succeeded_after(look, await database_now(look), [job])
        (job,) = pause_all(node.client, [job])
        await none_open(look)
        await check_ledger(look, [job], "succeeded")
        await check_calls(look, sink, [job])
    code, out, said = await command_line(folder, node.url, "audit", "--since", "1h")
    assert code == 0, (out, said)
    assert "DETENT_DATABASE_URL" not in node.text
    node.send(signal.SIGTERM)
    assert await node.ended() == 0
    assert not is_alive(int(node.events(STARTED_AGAIN)[0]["server"]))


async def test_of_several_that_share_a_killed_postgres_one_starts_it_again(
    nodes: Nodes, folder: Path, sink: Sink
) -> None:
    data = folder / "data"
    several = [await nodes.start("serve", "--data-dir", str(data)) for _ in range(3)]
    create_ticking(several[0].client, "shared", http_target(sink))
    await until(lambda: len(sink.calls) >= 2, 30, "runs")
    before = await kill_postmaster(data)
    for node in several:
        await node.says(FOUND_DEAD)
    await until(lambda: restarted(data, before), 30, "the server to be started again")
    for node in several:
        await until(lambda node=node: is_ready(node), 30, "the node to be ready again")
    await runs_again(several[0], "shared")
    assert sum(len(node.events(STARTED_AGAIN)) for node in several) == 1


async def test_a_postgres_that_cannot_be_started_again_ends_detent_with_its_folder_and_its_log(
    nodes: Nodes, folder: Path
) -> None:
    data = folder / "data"
    node = await nodes.start("serve", "--data-dir", str(data))
    (data / "postgres" / "global" / "pg_control").rename(folder / "pg_control")
    await kill_postmaster(data)
    assert await node.ended() == 7
    last = node.text.strip().splitlines()[-1]
    assert str(data) in last and str(data / "postgres.log") in last
    assert "DETENT_DATABASE_URL" not in node.text


def is_ready(node: Node) -> bool:
    """What it was asked for while the server was down is in its log, so nothing else is."""
    try:
        with urllib.request.urlopen(f"{node.url}/readyz", timeout=10) as answer:
            return answer.status == 200
    except urllib.error.HTTPError:
        return False


@asynccontextmanager
async def looking_when_up(data: Path) -> AsyncIterator[Any]:
    async def up() -> bool:
        try:
            async with looking_at(data):
                return True
        except DetentError:
            return False

    await until(up, 30, "the server to take connections")
    async with looking_at(data) as look:
        yield look
