"""kill -9 at every step of the life of a run: the next tick of a fixed delay still counts from its end."""

from __future__ import annotations

import signal
from datetime import timedelta
from typing import Any

import pytest

from tests.support.processes import Nodes
from tests.support.sink import Sink, http_target
from tests.support.waiting import until

DELAY = timedelta(seconds=1)
# So many that the victim keeps some of them when the second node takes its half of the partitions.
JOBS = 16
# Before the fire is sent, after it has committed, before and after the end of a run is written.
STEPS = [
    "W5=exit@3",
    *(
        pytest.param(step, marks=pytest.mark.long)
        for step in ("S4=exit@3", "S5=exit@3", "S7=exit@3", "W3=exit@3", "W6=exit@3")
    ),
]


@pytest.mark.parametrize("failpoint", STEPS)
async def test_the_ticks_go_on_from_the_end_of_the_run_before(
    cluster: Nodes, look: Any, sink: Sink, failpoint: str
) -> None:
    victim = await cluster.start("serve", failpoints=failpoint)
    schedule = {"every": "1s", "after": "finish"}
    for number in range(JOBS):
        victim.client.create_job({"name": f"poll-{number}", "schedule": schedule, "target": http_target(sink)})
    await cluster.start("serve")
    assert await victim.ended() == -signal.SIGKILL
    killed = await look.fetchval("SELECT clock_timestamp()")

    async def all_go_on() -> bool:
        query = "SELECT count(*) FILTER (WHERE status = 1 AND scheduled_at > $1) AS runs FROM run_history GROUP BY job"
        counts = [row["runs"] for row in await look.fetch(query, killed)]
        return len(counts) == JOBS and min(counts) >= 2

    await until(all_go_on, 40, "two more runs of every job")
    waits = await look.fetch(
        "SELECT scheduled_at - lag(finished_at) OVER (PARTITION BY job ORDER BY scheduled_at) AS wait, status"
        " FROM run_history"
    )
    assert {row["status"] for row in waits} == {1}
    # A worker reports an end by its estimate of the server's clock, which is a little behind.
    assert all(row["wait"] is None or DELAY <= row["wait"] < DELAY + timedelta(seconds=2) for row in waits)
    assert await look.fetchval("SELECT count(*) = count(DISTINCT (job, scheduled_at)) FROM run_history")
