"""kill -9 at every step of a tick's life: another node takes over, and nothing is lost, doubled or left open."""

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

from detent.client import Client

# Where a node that also works for its scheduler dies, and at which hit: after some ticks went well.
STEPS = ["S1=exit@6", "S2=exit@6", *(f"S{n}=exit@3" for n in range(3, 8)), *(f"W{n}=exit@4" for n in (3, 4, 5, 6))]
LOSING = ("S5", "S6", "W3", "W4")


def three_jobs(client: Client, sink: Sink) -> list[Watched]:
    return [create_ticking(client, f"job-{n}", http_target(sink), payload={"number": n}) for n in range(3)]


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
    jobs = three_jobs(victim.client, sink)
    successor = await cluster.start("serve")
    assert await victim.ended() == -signal.SIGKILL
    await goes_on(look, successor, sink, jobs)
    lost = await attempts_of(look, "lost")
    assert bool(lost) or failpoint[:2] not in LOSING
    assert {row["node"] for row in lost} <= {int(victim.identities[0], 16)}
