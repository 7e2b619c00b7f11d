"""A process that is stopped in the middle, and replies that are lost: late writes are refused, nothing is stranded."""

from __future__ import annotations

import signal
from typing import Any

import pytest
from ledger import (
    Watched,
    attempts_of,
    check_calls,
    check_ledger,
    create_ticking,
    database_now,
    none_open,
    pause_all,
    succeeded_after,
)
from processes import Node, Nodes
from sink import Sink, http_target

from waiting import until


def two_jobs(node: Node, sink: Sink) -> list[Watched]:
    return [create_ticking(node.client, f"job-{n}", http_target(sink)) for n in range(2)]


async def books_are_in_order(look: Any, node: Node, sink: Sink, jobs: list[Watched]) -> None:
    await succeeded_after(look, await database_now(look), jobs)
    jobs = pause_all(node.client, jobs)
    await none_open(look)
    await check_ledger(look, jobs, "succeeded")
    await check_calls(look, sink, jobs, ordered=False)


@pytest.mark.parametrize(
    "failpoint", [pytest.param("S2=stop@6", marks=pytest.mark.long), "S4=stop@3", "W3=stop@3", "W4=stop@3"]
)
async def test_a_node_that_was_stopped_too_long_is_refused_and_joins_again(
    cluster: Nodes, look: Any, sink: Sink, failpoint: str
) -> None:
    sleeper = await cluster.start("serve", failpoints=failpoint)
    jobs = two_jobs(sleeper, sink)
    successor = await cluster.start("serve")
    await sleeper.stopped()
    await successor.says("partitions taken")
    await succeeded_after(look, await database_now(look), jobs)
    sleeper.send(signal.SIGCONT)
    await sleeper.says("joined", 2)
    assert len(set(sleeper.identities)) == 2
    # It works again: with the other one gone, it does everything.
    successor.send(signal.SIGTERM)
    assert await successor.ended() == 0
    await books_are_in_order(look, sleeper, sink, jobs)
    await check_late_result(look, failpoint)


async def check_late_result(look: Any, failpoint: str) -> None:
    """What the sleeper had in hand was lost to it; a result it already had was refused, and is on record."""
    lost, stale = await attempts_of(look, "lost"), await attempts_of(look, "stale")
    if failpoint.startswith("W"):
        assert lost + stale
    if failpoint.startswith("W4"):
        assert stale
    for row in lost + stale:
        final = await look.fetchval(
            "SELECT token FROM run_history WHERE job = $1 AND scheduled_at = $2", row["job"], row["scheduled_at"]
        )
        assert final > row["token"]


@pytest.mark.parametrize("failpoint", ["S5=drop@3", "W5=drop@3", pytest.param("S6=error@3", marks=pytest.mark.long)])
async def test_a_reply_that_is_lost_strands_nothing(cluster: Nodes, look: Any, sink: Sink, failpoint: str) -> None:
    node = await cluster.start("serve", failpoints=failpoint)
    jobs = two_jobs(node, sink)
    if failpoint.startswith("S"):
        await node.says("runs adopted")
    else:
        await node.says("settle failed, trying again")
    await books_are_in_order(look, node, sink, jobs)
    assert await look.fetchval("SELECT count(*) FROM attempts") == 0
    assert all(len(calls) == 1 for calls in sink.by_run().values())


@pytest.mark.long
async def test_a_claim_whose_reply_is_lost_is_adopted(cluster: Nodes, look: Any, sink: Sink) -> None:
    api, _ = await cluster.start("api"), await cluster.start("scheduler")
    jobs = two_jobs(api, sink)
    await until(lambda: look.fetchval("SELECT count(*) FROM live_runs WHERE owner IS NULL"), what="runs in the queue")
    worker = await cluster.start("worker", failpoints="W2=drop")
    await worker.says("runs adopted")
    await books_are_in_order(look, api, sink, jobs)
    assert all(len(calls) == 1 for calls in sink.by_run().values())
