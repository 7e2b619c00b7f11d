"""The end of a process: what runs is finished, what waits is handed back, and everything is left for others."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import pytest

from tests.support.ledger import ALLOWED
from tests.support.processes import Node, Nodes
from tests.support.sink import Sink, http_target
from tests.support.waiting import until

SIGNALS = [signal.SIGTERM, signal.SIGINT]


def trigger(node: Node, sink: Sink, runs: int) -> list[str]:
    """Runs that hang until the sink is released; their ids."""
    target = http_target(sink, "hang")
    node.client.create_job({"name": "long", "schedule": {"every": "1h"}, "target": target, **ALLOWED})
    return [node.client.trigger_job("long")["id"] for _ in range(runs)]


def end(node: Node, number: signal.Signals) -> None:
    """As a supervisor does; and an interrupt goes to the whole group, as a terminal sends it."""
    if number is signal.SIGINT:
        os.killpg(node.process.pid, number)
    else:
        node.send(number)


async def all_succeed(look: Any, runs: int) -> None:
    await until(lambda: look.fetchval("SELECT count(*) = $1 FROM run_history WHERE status = 1", runs), 30)


@pytest.mark.parametrize("number", SIGNALS)
async def test_runs_in_flight_are_finished_and_those_that_wait_are_handed_back(
    cluster: Nodes, look: Any, sink: Sink, number: signal.Signals
) -> None:
    node = await cluster.start("serve", concurrency="2")
    ids = trigger(node, sink, 5)
    # Two run, two wait in the node's memory, one in the queue.
    await until(lambda: len(sink.calls) == 2)
    await until(lambda: look.fetchval("SELECT count(*) = 4 FROM live_runs WHERE owner IS NOT NULL"))
    end(node, number)
    await node.says("waiting for runs to finish")
    await until(lambda: look.fetchval("SELECT count(*) = 0 FROM partitions WHERE holder IS NOT NULL"))
    sink.release()
    assert await node.ended() == 0

    assert len(sink.calls) == 2
    assert await look.fetchval("SELECT count(*) FROM run_history WHERE status = 1") == 2
    left = await look.fetch("SELECT owner, attempt, crashes, started_at FROM live_runs")
    assert [tuple(row) for row in left] == [(None, 1, 0, None)] * 3
    assert await look.fetchval("SELECT count(*) FROM nodes") == 0

    await cluster.start("serve")
    await all_succeed(look, 5)
    assert sorted(call.run_id for call in sink.calls) == sorted(ids)
    assert await look.fetchval("SELECT count(*) FROM attempts") == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)])
async def test_a_second_signal_ends_at_once_and_the_runs_are_rescued(
    cluster: Nodes, look: Any, sink: Sink, number: signal.Signals
) -> None:
    node = await cluster.start("serve", "--drain-seconds", "3600")
    trigger(node, sink, 2)
    await until(lambda: len(sink.calls) == 2)
    end(node, number)
    await node.says("waiting for runs to finish")
    end(node, number)
    assert await node.ended() == 0
    sink.release()
    await cluster.start("serve")
    await all_succeed(look, 2)
    assert {len(calls) for calls in sink.by_key().values()} == {2}
    assert len(sink.effects) == 2


async def test_runs_unfinished_at_the_drain_timeout_go_to_another_node(cluster: Nodes, look: Any, sink: Sink) -> None:
    node = await cluster.start("serve", "--drain-seconds", "0.2")
    (run,) = trigger(node, sink, 1)
    await until(lambda: len(sink.calls) == 1)
    successor = await cluster.start("serve")
    node.send(signal.SIGTERM)
    assert await node.ended() == 0
    await until(lambda: len(sink.calls) == 2)
    sink.release()
    await all_succeed(look, 1)
    attempts = successor.client.get_run(run)["attempts"]
    assert next(attempt["outcome"] for attempt in attempts if attempt["attempt"] == 1) == "lost"


async def test_an_idle_node_hands_its_partitions_to_the_next_one(cluster: Nodes, look: Any) -> None:
    first, second = await cluster.start("serve"), await cluster.start("serve")
    first.send(signal.SIGTERM)
    assert await first.ended() == 0
    await second.says("partitions taken")
    holders = await look.fetch("SELECT DISTINCT to_hex(holder) AS holder FROM partitions")
    assert [row["holder"].zfill(16) for row in holders] == second.identities


async def test_partitions_do_not_wait_for_the_runs_of_a_node_that_ends(cluster: Nodes, look: Any, sink: Sink) -> None:
    # With such a long lease no node would notice in time without a hint.
    first = await cluster.start("serve", lease_ttl_seconds="60")
    second = await cluster.start("scheduler", lease_ttl_seconds="60")
    await until(lambda: look.fetchval("SELECT count(DISTINCT holder) = 2 FROM partitions"), 20)
    trigger(first, sink, 1)
    await until(lambda: len(sink.calls) == 1)
    first.send(signal.SIGTERM)
    await first.says("waiting for runs to finish")
    (number,) = second.identities
    await until(lambda: look.fetchval("SELECT bool_and(holder = $1) FROM partitions", int(number, 16)), 20)
    sink.release()
    assert await first.ended() == 0
    await all_succeed(look, 1)


async def test_every_role_ends_cleanly_when_it_has_nothing_to_do(cluster: Nodes, look: Any) -> None:
    started = await asyncio.gather(*(cluster.start(role) for role in ("api", "scheduler", "worker")))
    for node in started:
        node.send(signal.SIGTERM)
    assert [await node.ended() for node in started] == [0, 0, 0]
    assert await look.fetchval("SELECT count(*) FROM nodes") == 0


async def test_a_drained_process_that_has_to_join_again_takes_nothing(cluster: Nodes, look: Any, sink: Sink) -> None:
    node = await cluster.start("serve")
    await look.execute("UPDATE nodes SET draining = true")
    await node.says("draining")
    await look.execute("UPDATE nodes SET evicted = true")
    await node.says("joined", 2)
    await until(lambda: look.fetchval("SELECT count(*) = 1 AND bool_and(draining) FROM nodes WHERE NOT evicted"))
    trigger(node, sink, 1)
    other = await cluster.start("serve")
    await until(lambda: sink.calls)
    mine, theirs = node.identities[-1], other.identities[-1]
    assert (int(mine, 16), int(theirs, 16)) == (
        await look.fetchval("SELECT node FROM nodes WHERE draining"),
        await look.fetchval("SELECT owner FROM live_runs"),
    )
    sink.release()
