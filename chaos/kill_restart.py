"""kill -9 of `detent serve` with runs in flight, and a restart after 10 s and after 70 s of down-time.

Ticks up to a minute late are merely late and run one by one; of older ones the latest runs and the others are recorded
as missed. Either way every tick must be accounted for, and nothing may stay open.
"""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime
from typing import Any

from chaos.harness import Scene, looking_at, milliseconds, perform
from tests.support.ledger import Watched, check_calls, check_ledger, create_ticking, none_open, pause_all, rows_of
from tests.support.processes import Node
from tests.support.sink import http_target
from tests.support.waiting import until

JOBS = 5
DOWN_SECONDS = (10.0, 70.0)
CLOSED_WITHIN = 15.0


async def script(scene: Scene) -> None:
    node = await scene.nodes.start("serve")
    target = http_target(scene.sink, "slow/0.8")
    jobs = [create_ticking(node.client, f"slow-{number}", target) for number in range(JOBS)]
    # Its late ticks, up to 60 of them, run one after another beside the ticks that go on coming: 0.1 s for each is done
    # after some 7 s, 0.3 s would take 26 s by arithmetic alone.
    quicker = http_target(scene.sink, "slow/0.1")
    alone = create_ticking(node.client, "one-at-a-time", quicker, concurrent_policy="SKIP")
    for down in DOWN_SECONDS:
        node = await kill_and_restart(scene, node, [*jobs, alone], down)
    jobs, (alone,) = pause_all(node.client, jobs), pause_all(node.client, [alone])
    async with looking_at(scene.data) as look:
        await scene.judge("every run ends after the pause", none_open(look))
        statuses = ("succeeded", "missed")
        await scene.judge("every tick has one row", check_ledger(look, jobs, *statuses))
        await scene.judge("... of the job without overlap too", check_ledger(look, [alone], "skipped", *statuses))
        await scene.judge("one result per key, tokens rise", check_calls(look, scene.sink, [*jobs, alone]))
        for outcome in ("lost", "stale"):
            scene.note(
                f"attempts {outcome}", await look.fetchval("SELECT count(*) FROM attempts WHERE outcome = $1", outcome)
            )
    keys = scene.sink.by_key()
    scene.note("calls", len(scene.sink.calls))
    scene.note("calls repeated under the same key", len(scene.sink.calls) - len(keys))
    scene.expect("effects of the deduplicating target", len(scene.sink.effects), len(keys))


async def kill_and_restart(scene: Scene, node: Node, jobs: list[Watched], down: float) -> Node:
    sink, said = scene.sink, f"down for {down:g} s:"
    await until(lambda: len(sink.calls) > len(sink.answered) + 2, 30, "runs in flight")
    killed = datetime.now(UTC)
    await node.kill()
    scene.note(f"{said} runs in flight", len(sink.calls) - len(sink.answered))
    await asyncio.sleep(down)
    began, before = datetime.now(UTC), len(sink.calls)
    node = await scene.nodes.start("serve")
    scene.note(f"{said} start until ready", milliseconds((datetime.now(UTC) - began).total_seconds()))
    await until(lambda: len(sink.calls) > before, 30, "the first call after the restart")
    resumed = datetime.fromtimestamp(sink.calls[before].at, UTC)
    scene.note(f"{said} start until the first call", milliseconds((resumed - began).total_seconds()))
    async with looking_at(scene.data) as look:
        closed = await old_runs_closed(look, resumed)
        scene.limit(f"{said} start until no older run is open", (closed - began).total_seconds(), CLOSED_WITHIN)
        await count_down_time(scene, look, jobs, killed, resumed, said)
    return node


async def old_runs_closed(look: Any, resumed: datetime) -> datetime:
    async def none_left() -> bool:
        live = "SELECT count(*) FROM live_runs WHERE scheduled_at < $1"
        behind = "SELECT count(*) FROM cursors WHERE next_tick < $1"
        return not await look.fetchval(live, resumed) and not await look.fetchval(behind, resumed)

    await until(none_left, 60, "the runs of before the restart to end")
    return datetime.now(UTC)


async def count_down_time(
    scene: Scene, look: Any, jobs: list[Watched], killed: datetime, resumed: datetime, said: str
) -> None:
    """Count the fates of the ticks that were due while no node ran."""
    counts = {"succeeded": 0, "missed": 0, "skipped": 0}
    for job in jobs:
        for row in await rows_of(look, job):
            if row["scheduled_at"] < resumed and (row["until"] or row["scheduled_at"]) >= killed:
                counts[row["status"]] = counts.get(row["status"], 0) + (row["ticks"] or 1)
    for status, count in counts.items():
        scene.note(f"{said} ticks {status}", count)
    due = sum((resumed - killed) // job.period for job in jobs)
    scene.expect(f"{said} at least as many as came due ({due})", sum(counts.values()) >= due, True)


if __name__ == "__main__":
    sys.exit(perform("kill -9 with runs in flight, and a restart", script))
