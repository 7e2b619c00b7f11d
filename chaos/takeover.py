"""Two `detent serve` on one database: kill -9 of the leader while fifty jobs run every second, then SIGTERM to its
successor."""

from __future__ import annotations

import asyncio
import signal
import sys
from datetime import UTC, datetime

from chaos.harness import Scene, looking_at, milliseconds, percentile, perform
from tests.support.ledger import Watched, check_calls, check_ledger, create_ticking, none_open, pause_all
from tests.support.processes import Node
from tests.support.sink import http_target
from tests.support.waiting import until

JOBS = 50
CALM_SECONDS = 10.0
AFTER_SECONDS = 12.0
LATEST_AFTER_A_KILL = 6.0 + 1.0


async def script(scene: Scene) -> None:
    leader = await scene.nodes.start("serve")
    await leader.says("partitions taken")
    target = http_target(scene.sink)
    jobs = [create_ticking(leader.client, f"job-{number}", target) for number in range(JOBS)]
    second = await scene.nodes.start("serve")
    await asyncio.sleep(CALM_SECONDS)
    figures_of(scene, "before:", datetime.min.replace(tzinfo=UTC))

    moment = datetime.now(UTC)
    await leader.kill()
    longest = await longest_lateness(scene, second, jobs, moment)
    scene.limit("after kill -9 of the leader: longest start lateness", longest, LATEST_AFTER_A_KILL)

    third = await scene.nodes.start("serve")
    moment = datetime.now(UTC)
    second.send(signal.SIGTERM)
    longest = await longest_lateness(scene, third, jobs, moment)
    scene.note("after SIGTERM of the leader: longest start lateness", milliseconds(longest))
    scene.expect("exit code of the node that was ended", await second.ended(), 0)
    await verdict(scene, third, jobs)


async def longest_lateness(scene: Scene, successor: Node, jobs: list[Watched], moment: datetime) -> float:
    """The largest lateness of the ticks since `moment`, measured some seconds after every job has been called again."""
    await successor.says("partitions taken")
    taken = datetime.now(UTC)

    def all_called() -> bool:
        return len({call.job for call in scene.sink.calls if call.scheduled_at > taken}) == len(jobs)

    await until(all_called, 60, "all jobs to be called by the successor")
    await asyncio.sleep(AFTER_SECONDS)
    return max(call.lateness for call in scene.sink.calls if call.scheduled_at >= moment)


def figures_of(scene: Scene, said: str, since: datetime) -> None:
    lateness = [call.lateness for call in scene.sink.calls if call.scheduled_at >= since]
    for share in (0.5, 0.99, 1.0):
        scene.note(f"{said} start lateness, p{share * 100:g}", milliseconds(percentile(lateness, share)))


async def verdict(scene: Scene, node: Node, jobs: list[Watched]) -> None:
    jobs = pause_all(node.client, jobs)
    async with looking_at(scene.data) as look:
        await scene.judge("every run ends after the pause", none_open(look))
        await scene.judge("every tick has one run, none lost, none doubled", check_ledger(look, jobs, "succeeded"))
        await scene.judge("one result per key, tokens rise", check_calls(look, scene.sink, jobs))
        scene.note("runs", await look.fetchval("SELECT count(*) FROM run_history WHERE status = 1"))
        scene.note("attempts lost", await look.fetchval("SELECT count(*) FROM attempts WHERE outcome = 'lost'"))
    keys = scene.sink.by_key()
    scene.note("calls repeated under the same key", len(scene.sink.calls) - len(keys))
    scene.expect("effects of the deduplicating target", len(scene.sink.effects), len(keys))


if __name__ == "__main__":
    sys.exit(perform("take-over under load", script))
