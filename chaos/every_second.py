"""A job every second for a minute, then a one-off on the idle node: does everything start, once, and on time?"""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta

from chaos.harness import Scene, milliseconds, percentile, perform
from tests.support.ledger import instant
from tests.support.sink import http_target
from tests.support.waiting import until

TICKS = 60
LATEST = 0.1


async def script(scene: Scene) -> None:
    client = (await scene.nodes.start("serve")).client
    job = client.create_job({"name": "second", "schedule": "* * * * * *", "target": http_target(scene.sink)})
    first = instant(job["next_run_at"])
    ticks = [first + timedelta(seconds=number) for number in range(TICKS)]
    await until(lambda: {call.scheduled_at for call in scene.sink.calls} >= {ticks[-1]}, TICKS + 30, "the last tick")
    client.delete_job("second")

    calls = [call for call in scene.sink.calls if call.scheduled_at <= ticks[-1]]
    scene.expect("ticks", len({call.scheduled_at for call in calls} & set(ticks)), TICKS)
    scene.expect("calls", len(calls), TICKS)
    scene.expect("distinct keys", len({call.key for call in calls}), TICKS)
    scene.expect("ticks missing", len(set(ticks) - {call.scheduled_at for call in calls}), 0)
    lateness = [call.lateness for call in calls]
    scene.note("start lateness, earliest", milliseconds(min(lateness)))
    scene.note("start lateness, p50", milliseconds(percentile(lateness, 0.5)))
    scene.limit("start lateness, p99", percentile(lateness, 0.99), LATEST)
    scene.note("start lateness, latest", milliseconds(max(lateness)))
    scene.expect("calls before their time", sum(late < 0 for late in lateness), 0)
    await one_off(scene)


async def one_off(scene: Scene) -> None:
    client = scene.nodes.started[0].client
    at = (datetime.now(UTC) + timedelta(seconds=1)).isoformat(timespec="milliseconds")
    client.create_job({"name": "soon", "schedule": {"at": at}, "target": http_target(scene.sink)})
    (call,) = await until(lambda: scene.sink.of("soon"), 30, "the one-off")
    scene.expect("the one-off came before its time", call.lateness < 0, False)
    scene.limit("the one-off's lateness on an idle node", call.lateness, LATEST)


if __name__ == "__main__":
    sys.exit(perform("every second for a minute", script))
