"""A process that is stopped in the middle, and replies that are lost: late writes are refused, nothing is stranded."""

from __future__ import annotations

import signal
from datetime import timedelta
from typing import Any

import pytest

from tests.support.ledger import (
    Watched,
    attempts_of,
    check_calls,
    check_ledger,
    create_all_ticking,
    database_now,
    none_open,
    pause_all,
    succeeded_after,
)
from tests.support.processes import Node, Nodes
from tests.support.sink import Sink, http_target
from tests.support.waiting import until


async def some_jobs(node: Node, look: Any, sink: Sink) -> list[Watched]:
    """So many that a node which shares them with another surely has some of its own."""
    return await create_all_ticking(node.client, look, {f"job-{n}": http_target(sink) for n in range(24)})


async def books_are_in_order(look: Any, node: Node, sink: Sink, jobs: list[Watched]) -> None:
    await succeeded_after(look, await database_now(look), jobs)
    jobs = pause_all(node.client, jobs)
    await none_open(look)
    await check_ledger(look, jobs, "succeeded")
    await check_calls(look, sink, jobs, ordered=False)


@pytest.mark.parametrize("failpoint", ["S4=stop@3", "W3=stop@3", pytest.param("S2=stop@6", marks=pytest.mark.long)])
async def test_a_node_that_was_stopped_too_long_is_refused_and_joins_again(
    cluster: Nodes, look: Any, sink: Sink, failpoint: str
) -> None:
    sleeper = await cluster.start("serve", failpoints=failpoint)
    jobs = await some_jobs(sleeper, look, sink)
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
    late = await attempts_of(look, "lost") + await attempts_of(look, "stale")
    assert late or not failpoint.startswith("W")
    for row in late:
        assert await final_token(look, row) > row["token"]


async def final_token(look: Any, row: Any) -> int:
    token: int = await look.fetchval(
        "SELECT token FROM run_history WHERE job = $1 AND scheduled_at = $2 AND serial = $3",
        row["job"],
        row["scheduled_at"],
        row["serial"],
    )
    return token


async def test_a_late_result_is_refused_while_the_successor_is_at_work(cluster: Nodes, look: Any, sink: Sink) -> None:
    sleeper = await cluster.start("serve", failpoints="W4=stop")
    at = (await database_now(look) + timedelta(seconds=1)).isoformat(timespec="milliseconds")
    sleeper.client.create_job({"name": "slow", "schedule": {"at": at}, "target": http_target(sink, "hang-again")})
    await sleeper.stopped()
    run = sink.calls[0].run_id
    successor = await cluster.start("serve")
    await until(lambda: len(sink.calls) == 2, 20, "the successor's call")
    sleeper.send(signal.SIGCONT)
    await sleeper.says("joined", 2)
    (stale,) = await until(lambda: attempts_of(look, "stale"), what="the refusal on record")
    assert successor.client.get_run(run)["status"] == "running"

    sink.release()
    await until(lambda: successor.client.get_run(run)["status"] == "succeeded", what="the successor's result")
    first, second = (call.token for call in sink.calls)
    assert stale["token"] == first < second == await final_token(look, stale)
    assert len(sink.effects) == 1


@pytest.mark.parametrize("failpoint", ["S5=drop@3", "W5=drop@3", pytest.param("S6=error@3", marks=pytest.mark.long)])
async def test_a_reply_that_is_lost_strands_nothing(cluster: Nodes, look: Any, sink: Sink, failpoint: str) -> None:
    node = await cluster.start("serve", failpoints=failpoint)
    jobs = await some_jobs(node, look, sink)
    if failpoint.startswith("S"):
        await node.says("run adopted")
    else:
        await node.says("settle failed, retrying")
    await books_are_in_order(look, node, sink, jobs)
    assert await look.fetchval("SELECT count(*) FROM attempts") == 0
    assert all(len(calls) == 1 for calls in sink.by_run().values())


@pytest.mark.long
async def test_a_claim_whose_reply_is_lost_is_adopted(cluster: Nodes, look: Any, sink: Sink) -> None:
    api, _ = await cluster.start("api"), await cluster.start("scheduler")
    jobs = await some_jobs(api, look, sink)
    await until(lambda: look.fetchval("SELECT count(*) FROM live_runs WHERE owner IS NULL"), what="runs in the queue")
    worker = await cluster.start("worker", failpoints="W2=drop")
    await worker.says("run adopted")
    await books_are_in_order(look, api, sink, jobs)
    assert all(len(calls) == 1 for calls in sink.by_run().values())
