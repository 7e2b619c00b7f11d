"""What happens to ticks whose run before is not over: four policies, against a target that writes down its calls.

Ticks come when the test says so, and runs end when it says so: nothing here depends on how fast this machine is.
"""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import pytest

from detent.domain.identity import RunKey
from detent.domain.job import HttpTarget, JobSpec
from detent.domain.registration import WAITING_LANES
from detent.domain.run import Call, Cancelled, Failed, Outcome, Succeeded
from detent.jobs import JobOperations
from detent.jobs.explanation import explain
from detent.store import Store
from tests.support import factories
from tests.support.waiting import until

HTTP = {"type": "http", "url": "http://127.0.0.1:9/"}
POLICIES = ("SKIP", "ALLOW", "QUEUE", "REPLACE")
LANES = {"SKIP": 1, "ALLOW": 2, **WAITING_LANES}
Fate = tuple[str, str | None]
RAN: Fate = ("succeeded", None)
SKIPPED: Fate = ("skipped", "overlap")
STOPPED: Fate = ("cancelled", "cancelled while it ran")
REPLACED: Fate = ("cancelled", "replaced")


class Recording:
    """A target whose runs end at once, or when they are let go; the first tick may fail at its first try."""

    def __init__(self, *, hold: bool = False, fail_first: bool = False) -> None:
        self.order: list[datetime] = []
        self.now: set[datetime] = set()
        self.most = 0
        self._fail_first = fail_first
        self._open = asyncio.Event()
        if not hold:
            self._open.set()

    def let_go(self) -> None:
        self._open.set()

    async def __call__(self, call: Call) -> Outcome:
        self.order.append(call.scheduled_at)
        self.now.add(call.scheduled_at)
        self.most = max(self.most, len(self.now))
        try:
            await self._open.wait()
        finally:
            self.now.discard(call.scheduled_at)
        if self._fail_first and call.scheduled_at == self.order[0] and call.attempt == 1:
            return Failed("not yet")
        return Succeeded()


class Scene:
    """A job that ticks when it is told to."""

    def __init__(self, look: Any, session: Any, job: int) -> None:
        self._look = look
        self._session = session
        self.job = job
        self.ticks: list[datetime] = []

    async def tick(self) -> datetime:
        """Let the job tick now, and wait until that tick is a run or is skipped."""
        at: datetime = await self._look.fetchval(
            "UPDATE cursors SET generation = generation + 1, next_tick = t, fire_at = t"
            " FROM (SELECT date_trunc('milliseconds', now()) AS t) AS now WHERE job = $1 RETURNING t",
            self.job,
        )
        self._session.scheduler.jobs_changed({self.job})

        async def fired() -> Any:
            return await self._look.fetchval("SELECT last_tick = $2 FROM cursors WHERE job = $1", self.job, at)

        await until(fired, 25, "the fire")  # the hint may be lost: then a sweep finds it
        self.ticks.append(at)
        return at

    def wake_worker(self) -> None:
        self._session.worker.reconciler.loop.wake()

    async def fates(self) -> list[tuple[str, str | None]]:
        rows = await self._look.fetch("SELECT * FROM runs WHERE job = $1 ORDER BY scheduled_at", self.job)
        assert [row["scheduled_at"] for row in rows] == self.ticks, "each tick is accounted for once"
        return [(row["status"], row["reason"]) for row in rows]

    async def until_fates(self, expected: list[tuple[str, str | None]]) -> None:
        async def there() -> bool:
            return await self.fates() == expected

        try:
            await until(there)
        except AssertionError:
            assert await self.fates() == expected  # says what is there instead


@pytest.fixture
async def scene_of(look: Any, start: Any) -> Any:
    async def make(policy: str, target: Recording, **fields: Any) -> Scene:
        definition = {"schedule": "every 1h", "target": HTTP, "concurrent_policy": policy, **fields}
        job = await factories.add_job(look, None, definition=definition, lanes=LANES[policy])
        return Scene(look, await start(target), job)

    return make


@pytest.mark.parametrize("policy", POLICIES)
async def test_a_job_that_is_over_before_its_next_tick_runs_every_time(scene_of: Any, policy: str) -> None:
    target = Recording()
    scene = await scene_of(policy, target)
    for number in range(1, 4):
        await scene.tick()
        await scene.until_fates([RAN] * number)
    assert target.order == scene.ticks
    assert target.most == 1


async def test_under_skip_ticks_that_meet_a_run_are_skipped(scene_of: Any) -> None:
    target = Recording(hold=True)
    scene = await scene_of("SKIP", target)
    for _ in range(4):
        await scene.tick()
    await scene.until_fates([("running", None), SKIPPED, SKIPPED, SKIPPED])
    target.let_go()
    await scene.until_fates([RAN, SKIPPED, SKIPPED, SKIPPED])
    assert target.most == 1


async def test_under_allow_as_many_run_at_once_as_there_are_lanes(scene_of: Any) -> None:
    target = Recording(hold=True)
    scene = await scene_of("ALLOW", target)
    for _ in range(4):
        await scene.tick()
    await until(lambda: len(target.now) == 2)
    await scene.until_fates([("running", None), ("running", None), SKIPPED, SKIPPED])
    target.let_go()
    await scene.until_fates([RAN, RAN, SKIPPED, SKIPPED])
    assert target.most == 2


async def test_under_queue_one_waits_and_runs_when_the_one_before_is_over(scene_of: Any) -> None:
    target = Recording(hold=True)
    scene = await scene_of("QUEUE", target)
    for _ in range(4):
        await scene.tick()
    await scene.until_fates([("running", None), ("pending", None), SKIPPED, SKIPPED])
    assert target.order == scene.ticks[:1]
    target.let_go()
    await scene.until_fates([RAN, RAN, SKIPPED, SKIPPED])
    assert target.order == scene.ticks[:2]
    assert target.most == 1


async def test_under_replace_each_tick_takes_the_place_of_the_run_before_once_that_has_ended(scene_of: Any) -> None:
    target = Recording(hold=True)
    scene = await scene_of("REPLACE", target)
    for _ in range(3):
        at = await scene.tick()
        await until(lambda at=at: target.now == {at}, what="the newest run alone")
    await scene.until_fates([REPLACED, REPLACED, ("running", None)])
    target.let_go()
    await scene.until_fates([REPLACED, REPLACED, RAN])
    assert target.order == scene.ticks
    assert target.most == 1


async def test_a_run_that_a_tick_replaced_is_explained_with_that_tick(look: Any, start: Any, store: Store) -> None:
    target = Recording(hold=True)
    operations = JobOperations(store)
    spec = JobSpec(schedule="every 1s", target=HttpTarget(url=HTTP["url"]), concurrent_policy="REPLACE", name="report")
    (job,) = await operations.registration.add([spec])
    await start(target)

    async def two_were_replaced() -> bool:
        return bool(await look.fetchval("SELECT count(*) >= 2 FROM run_history WHERE reason = 'replaced'"))

    await until(two_were_replaced, 25)
    first, second, *_ = target.order
    story = await operations.explainer.story(job.id, first.isoformat())
    sentences = " ".join(explain(story.facts))
    assert "because a later tick replaced it (concurrent_policy REPLACE)." in sentences
    assert f"The tick that replaced it is {second:%Y-%m-%d %H:%M:%S}" in sentences


async def test_under_replace_a_tick_that_finds_one_waiting_is_skipped(scene_of: Any) -> None:
    """While the run before has not confirmed its end, which here it does not do before it is let go."""

    class Stubborn(Recording):
        async def __call__(self, call: Call) -> Outcome:
            inner = asyncio.ensure_future(super().__call__(call))
            try:
                return await asyncio.shield(inner)
            except asyncio.CancelledError:
                await inner
                return Cancelled()

    target = Stubborn(hold=True)
    scene = await scene_of("REPLACE", target)
    for _ in range(3):
        await scene.tick()
    await scene.until_fates([("running", "cancelling"), ("pending", None), SKIPPED])
    target.let_go()
    await until(lambda: len(target.order) == 2)
    await scene.until_fates([(await scene.fates())[0], RAN, SKIPPED])
    assert target.most == 1


# --- the run before waits for its next try ---


@pytest.mark.parametrize(
    ("policy", "meanwhile", "order"),
    [
        ("SKIP", [("retrying", None), SKIPPED, SKIPPED], [0]),
        ("ALLOW", [("retrying", None), RAN, RAN], [0, 1, 2]),
        ("QUEUE", [("retrying", None), ("pending", None), SKIPPED], [0]),
        ("REPLACE", [REPLACED, RAN, RAN], [0, 1, 2]),
    ],
)
async def test_a_run_that_waits_for_its_next_try_holds_its_lane(
    look: Any, scene_of: Any, policy: str, meanwhile: list[tuple[str, str | None]], order: list[int]
) -> None:
    target = Recording(fail_first=True)
    fields = {"retry_base_seconds": 3600 * 24, "retry_max_seconds": 3600 * 24, "retry_backoff": "fixed"}
    scene = await scene_of(policy, target, **fields)
    await scene.tick()
    await scene.until_fates([("retrying", None)])
    await look.execute("UPDATE live_runs SET not_before = now() + interval '1 day' WHERE job = $1", scene.job)
    for _ in range(2):
        await scene.tick()
        if policy in ("ALLOW", "REPLACE"):
            await until(lambda: not target.now and len(target.order) == len(scene.ticks))
            await scene.until_fates([*meanwhile[: len(scene.ticks)]])
    await scene.until_fates(meanwhile)
    assert target.order == [scene.ticks[number] for number in order]
    if policy == "REPLACE":
        return
    await look.execute("UPDATE live_runs SET not_before = now() WHERE job = $1 AND lane >= 0", scene.job)
    after = [RAN if fate in (("retrying", None), ("pending", None)) else fate for fate in meanwhile]
    await scene.until_fates(after)
    assert target.most == 1


@pytest.mark.parametrize("policy", ["SKIP", "QUEUE", "REPLACE"])
async def test_a_job_edited_to_one_run_at_a_time_starts_none_beside_those_of_before(
    look: Any, scene_of: Any, store: Any, policy: str
) -> None:
    """The first run is over, so that lane 0 is free, while the second one in lane 1 goes on."""
    target = Recording(hold=True)
    scene = await scene_of("ALLOW", target)
    await scene.tick()
    await scene.tick()
    await until(lambda: len(target.now) == 2)
    first = RunKey(scene.job, scene.ticks[0])
    await store.live_runs.cancel([first])
    scene.wake_worker()
    await until(lambda: len(target.now) == 1)
    await until(lambda: look.fetchval("SELECT count(*) = 1 FROM live_runs"), what="lane 0 to be free")
    job_id = await look.fetchval("SELECT id FROM jobs WHERE job = $1", scene.job)
    await JobOperations(store).registration.patch(job_id, {"concurrent_policy": policy, "schedule": "every 2h"})
    await scene.tick()
    if policy == "REPLACE":
        await scene.until_fates([STOPPED, REPLACED, ("running", None)])
    else:
        waits = SKIPPED if policy == "SKIP" else ("pending", None)
        await scene.until_fates([STOPPED, ("running", None), waits])
    target.let_go()
    ends: dict[str, list[Fate]] = {"SKIP": [RAN, SKIPPED], "QUEUE": [RAN, RAN], "REPLACE": [REPLACED, RAN]}
    await scene.until_fates([STOPPED, *ends[policy]])
    if policy != "REPLACE":
        assert set(target.order[:2]) == set(scene.ticks[:2])
    await scene.tick()
    await scene.until_fates([STOPPED, *ends[policy], RAN])
