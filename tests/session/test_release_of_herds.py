"""Staggered release: runs of one tick start over a few seconds, higher priority first; others are not delayed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from detent.domain.job import HttpTarget, JobSpec
from detent.domain.run import Call, Outcome, Succeeded
from detent.domain.schedule.stagger import WINDOW_MS, stagger, stagger_start
from detent.jobs import JobOperations
from detent.store import Store
from detent.telemetry.metrics import Metrics
from tests.support.waiting import until

HTTP = HttpTarget(url="http://127.0.0.1:9/")
HERD = 24


async def test_a_herd_is_released_by_priority_under_its_own_tick_and_a_neighbour_is_not_delayed(
    look: Any, store: Store, start: Any
) -> None:
    calls: list[Call] = []

    async def target(call: Call) -> Outcome:
        calls.append(call)
        return Succeeded()

    herd = [
        JobSpec(name=f"p{priority}-{n}", schedule="0 0 1 1 *", target=HTTP, priority=priority, release="staggered")
        for n in range(HERD // 2)
        for priority in (10, 0)
    ]
    exact = JobSpec(name="exact", schedule="0 0 1 1 *", target=HTTP)
    jobs = JobOperations(store)
    await jobs.registration.add([*herd, exact])
    tick = await look.fetchval("SELECT date_trunc('second', now()) + interval '2 seconds'")
    delay = "fire_at - next_tick"
    await look.execute(f"UPDATE cursors SET next_tick = $1::timestamptz, fire_at = $1::timestamptz + ({delay})", tick)
    planned = {
        row["name"]: row["delay"]
        for row in await look.fetch(f"SELECT name, {delay} AS delay FROM cursors JOIN jobs USING (job)")
    }
    metrics = Metrics()
    await start(target, metrics=metrics)
    await until(lambda: len(calls) == HERD + 1, 40, "all runs")
    assert {call.scheduled_at for call in calls} == {tick}
    assert planned["exact"] == timedelta(0)
    first, second = ([delay for name, delay in planned.items() if name.startswith(part)] for part in ("p10", "p0"))
    assert max(first) < min(second) and max(second) < timedelta(milliseconds=WINDOW_MS)
    assert len({*first, *second}) == HERD, "each has its own moment"
    rows = await until(lambda: _ended(look), 20, "the ends")
    late = [row["started_at"] - tick - planned[row["name"]] for row in rows]
    assert min(late) >= timedelta(0), "none is early"
    await until(lambda: metrics.lateness.count == HERD + 1, 20, "the metric")
    late_seconds = sum(late, timedelta()).total_seconds()
    assert abs(metrics.lateness.total - late_seconds) < HERD / 1000, "the delay is not lateness"


async def _ended(look: Any) -> list[Any]:
    rows: list[Any] = await look.fetch("SELECT j.name, h.started_at FROM run_history h JOIN jobs j USING (job)")
    return rows if len(rows) == HERD + 1 else []


def test_the_delay_follows_from_number_and_priority_and_spreads_evenly() -> None:
    for priority, low, high in (
        (100, 0, 3_000),
        (10, 0, 3_000),
        (5, 1_500, 4_500),
        (0, 3_000, 6_000),
        (-9, 3_000, 6_000),
    ):
        delays = [stagger(job, stagger_start(priority)) // timedelta(milliseconds=1) for job in range(1_000, 1_300)]
        assert low <= min(delays) and max(delays) < high <= WINDOW_MS
        counts = [sum(low + part * 300 <= delay < low + (part + 1) * 300 for delay in delays) for part in range(10)]
        assert max(counts) <= 32, "300 jobs, ten tenths of the range"
