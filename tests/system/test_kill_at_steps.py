"""kill -9 at every step of a tick's life: another node takes over, and nothing is lost, doubled or left open."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from detent.client import JsonClient
from tests.support.ledger import (
    Watched,
    attempts_of,
    check_calls,
    check_ledger,
    create_all_ticking,
    create_ticking,
    database_now,
    none_open,
    pause_all,
    succeeded_after,
)
from tests.support.processes import Node, Nodes
from tests.support.sink import Sink, http_target
from tests.support.waiting import until

# Where a node that also works for its scheduler dies, and at which hit: after some ticks went well.
STEPS = [
    *("S4=exit@3", "S5=exit@3", "W3=exit@4", "W5=exit@4", "S2=exit@6"),
    *(
        pytest.param(step, marks=pytest.mark.long)
        for step in ("S1=exit@6", "S3=exit@3", "S6=exit@3", "S7=exit@3", "W4=exit@4", "W6=exit@4")
    ),
]
LOSING = ("S5", "S6", "W3", "W4")


# Nodes share the partitions: of so many jobs each has some.
async def dozen_of_jobs(client: JsonClient, look: Any, sink: Sink) -> list[Watched]:
    return await create_all_ticking(client, look, {f"job-{n}": http_target(sink) for n in range(12)})


async def goes_on(look: Any, successor: Node, sink: Sink, jobs: list[Watched]) -> None:
    """The jobs succeed again; then they are paused, everything ends, and the books are in order."""
    await succeeded_after(look, await database_now(look), jobs)
    jobs = pause_all(successor.client, jobs)
    await none_open(look)
    await check_ledger(look, jobs, "succeeded")
    await check_calls(look, sink, jobs)


@pytest.mark.parametrize("failpoint", STEPS)
async def test_a_node_killed_at_a_step_is_replaced_by_another(
    cluster: Nodes, look: Any, sink: Sink, failpoint: str
) -> None:
    victim = await cluster.start("serve", failpoints=failpoint)
    jobs = await dozen_of_jobs(victim.client, look, sink)
    successor = await cluster.start("serve")
    assert await victim.ended() == -signal.SIGKILL
    await goes_on(look, successor, sink, jobs)
    lost = await attempts_of(look, "lost")
    assert bool(lost) or failpoint[:2] not in LOSING
    assert {row["node"] for row in lost} <= {int(victim.identities[0], 16)}


@pytest.mark.parametrize("failpoint", [pytest.param("W1=exit", marks=pytest.mark.long), "W2=exit"])
async def test_a_worker_killed_at_its_claim_leaves_the_runs_to_another(
    cluster: Nodes, look: Any, sink: Sink, failpoint: str
) -> None:
    api, _ = await cluster.start("api"), await cluster.start("scheduler")
    jobs = await dozen_of_jobs(api.client, look, sink)
    await until(lambda: look.fetchval("SELECT count(*) FROM live_runs WHERE owner IS NULL"), what="runs in the queue")
    victim = cluster.begin("worker", failpoints=failpoint)
    assert await victim.ended() == -signal.SIGKILL
    held = await look.fetchval("SELECT count(*) FROM live_runs WHERE owner IS NOT NULL")
    assert (held > 0) == (failpoint == "W2=exit")
    await cluster.start("worker")
    await goes_on(look, api, sink, jobs)
    assert len(await attempts_of(look, "lost")) == held
    assert all(len(calls) == 1 for calls in sink.by_run().values())


@pytest.mark.parametrize("failpoint", [pytest.param("R1=exit", marks=pytest.mark.long), "R2=exit"])
async def test_a_node_killed_while_it_rescues_is_itself_replaced(
    cluster: Nodes, look: Any, sink: Sink, failpoint: str
) -> None:
    first = await cluster.start("serve", failpoints="W3=exit@2")
    jobs = await dozen_of_jobs(first.client, look, sink)
    second = cluster.begin("serve", failpoints=failpoint)
    assert await first.ended() == -signal.SIGKILL
    assert await second.ended() == -signal.SIGKILL
    await goes_on(look, await cluster.start("serve"), sink, jobs)


async def test_a_node_that_is_started_again_goes_on_where_it_was_killed(cluster: Nodes, look: Any, sink: Sink) -> None:
    victim = await cluster.start("serve", failpoints="W4=exit@4")
    jobs = await dozen_of_jobs(victim.client, look, sink)
    assert await victim.ended() == -signal.SIGKILL
    await goes_on(look, await cluster.start("serve"), sink, jobs)
    # The effect was made but not recorded: it was asked for again under the same key, and applied once.
    assert any(len(calls) == 2 for calls in sink.by_key().values())
    assert len(sink.effects) == len(sink.by_run())


async def test_a_run_that_may_be_called_only_once_is_not_called_again(cluster: Nodes, look: Any, sink: Sink) -> None:
    victim = await cluster.start("serve", failpoints="W4=exit")
    job = create_ticking(victim.client, "once", http_target(sink), seconds=2, delivery="at_most_once")
    assert await victim.ended() == -signal.SIGKILL
    successor = await cluster.start("serve")
    await succeeded_after(look, await database_now(look), [job])
    (job,) = pause_all(successor.client, [job])
    await none_open(look)
    await check_ledger(look, [job], "succeeded", "dead")
    assert all(len(calls) == 1 for calls in sink.by_key().values())
    dead = successor.client.get_run(sink.calls[0].run_id)
    assert (dead["status"], dead["reason"]) == ("dead", "lost")
    assert [attempt["outcome"] for attempt in dead["attempts"]] == ["lost"]
