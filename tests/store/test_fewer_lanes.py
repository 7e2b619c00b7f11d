"""After an edit that allows fewer concurrent runs, a job starts none until enough of the present runs have ended."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from detent.domain.identity import RunKey
from detent.domain.job import HttpTarget, JobSpec
from detent.errors import Conflict
from detent.jobs import JobOperations
from detent.store import Store
from detent.store.catchups import Release
from detent.store.cursors import Exceptional
from detent.store.tasks import trigger
from tests.support.factories import LONG_AGO, add_live_run, add_node
from tests.support.ticks import advance_of
from tests.support.waiting import until

NODE = 11
HOUR = timedelta(hours=1)
EDITS: dict[str, tuple[dict[str, Any], int]] = {
    "SKIP": ({"concurrent_policy": "SKIP"}, 1),
    "QUEUE": ({"concurrent_policy": "QUEUE"}, 1),
    "REPLACE": ({"concurrent_policy": "REPLACE"}, 1),
    "ALLOW 2": ({"max_concurrent": 2}, 2),
}


def spec(**fields: Any) -> JobSpec:
    return JobSpec(schedule="every 1h", target=HttpTarget(url="http://127.0.0.1:9/"), **fields)


@pytest.fixture(autouse=True)
async def node(look: Any) -> int:
    return await add_node(look, NODE)


class Scene:
    """A job with runs in lanes 2, 3 and so on, edited so that it no longer has these lanes."""

    def __init__(self, look: Any, verbs: Store) -> None:
        self.look = look
        self.verbs = verbs
        self.id = UUID(int=0)
        self.job = 0

    async def make(self) -> None:
        (made,) = await JobOperations(self.verbs).registration.add([spec(concurrent_policy="ALLOW", max_concurrent=10)])
        self.id = UUID(str(made.id))
        self.job = await self.look.fetchval("SELECT job FROM jobs WHERE id = $1", self.id)

    async def set(self, policy: str, lanes: tuple[int, ...]) -> None:
        await self.make()
        for lane in lanes:
            await add_live_run(self.look, self.job, LONG_AGO + lane * HOUR, lane=lane, owner=NODE)
        await JobOperations(self.verbs).registration.patch(self.id, EDITS[policy][0])

    async def fire(self) -> list[Exceptional]:
        """Fire the next tick with the fast statement, and with the careful one if that is refused."""
        row = await self.look.fetchrow(
            "UPDATE cursors SET next_tick = t, fire_at = t FROM (SELECT date_trunc('milliseconds', now()) AS t) n"
            " WHERE job = $1 RETURNING t, generation",
            self.job,
        )
        advance = advance_of(self.job, row["t"], row["generation"], row["t"] + HOUR, None)
        found = await self.verbs.cursors.fire(NODE, 1, True, [advance])
        if found == [Exceptional(self.job, None, "refused")]:
            (cursor,) = await self.verbs.cursors.load([self.job])
            assert cursor.bounded, "otherwise the scheduler would use the fast statement for ever"
            found = await self.verbs.cursors.fire(NODE, 1, True, [advance], careful=True)
        return found

    async def lanes(self) -> list[int]:
        rows = await self.look.fetch("SELECT lane FROM live_runs WHERE job = $1 ORDER BY lane", self.job)
        return [row["lane"] for row in rows]

    async def end(self, lane: int) -> None:
        await self.look.execute("DELETE FROM live_runs WHERE job = $1 AND lane = $2", self.job, lane)


@pytest.fixture
def scene(look: Any, verbs: Store) -> Scene:
    return Scene(look, verbs)


async def test_a_tick_does_not_start_while_a_run_is_in_a_removed_lane(scene: Scene) -> None:
    await scene.set("SKIP", (2,))
    assert await scene.fire() == [Exceptional(scene.job, None, "overlap")]
    assert await scene.lanes() == [2]
    await scene.end(2)
    assert await scene.fire() == []
    assert await scene.lanes() == [0]
    await scene.end(0)
    (cursor,) = await scene.verbs.cursors.load([scene.job])
    assert not cursor.bounded, "the fast statement fires it again"


@pytest.mark.parametrize(("policy", "lane"), [("QUEUE", -1), ("REPLACE", -2)])
async def test_a_tick_waits_for_a_run_in_a_removed_lane(scene: Scene, policy: str, lane: int) -> None:
    await scene.set(policy, (2, 4))
    assert await scene.fire() == [Exceptional(scene.job, lane, None)]
    for left in (2, 4):
        await scene.verbs.live_runs.promote()
        assert lane in await scene.lanes(), f"it was promoted although lane {left} is in use"
        await scene.end(left)
    assert await scene.verbs.live_runs.promote()
    assert await scene.lanes() == [0]


async def test_runs_to_be_replaced_are_asked_to_stop_in_every_lane(scene: Scene) -> None:
    await scene.set("REPLACE", (2, 4))
    await scene.fire()
    await scene.verbs.live_runs.promote()
    rows = await scene.look.fetch("SELECT lane FROM live_runs WHERE cancel ORDER BY lane")
    assert [row["lane"] for row in rows] == [2, 4]


async def test_runs_are_counted_where_fewer_may_run_at_once(scene: Scene) -> None:
    await scene.set("ALLOW 2", (4, 5, 7))
    for lane in (4, 5):
        assert await scene.fire() == [Exceptional(scene.job, None, "overlap")]
        await scene.end(lane)
    assert await scene.fire() == []
    assert await scene.lanes() == [0, 7]
    assert await scene.fire() == [Exceptional(scene.job, None, "overlap")]
    await scene.end(7)
    assert await scene.fire() == [Exceptional(scene.job, 1, None)]


@pytest.mark.parametrize("policy", EDITS)
async def test_a_trigger_starts_no_more_than_may_run_at_once(scene: Scene, policy: str) -> None:
    most = EDITS[policy][1]
    await scene.set(policy, tuple(range(3, 3 + most)))
    await JobOperations(scene.verbs).lifecycle.trigger(scene.id)
    assert [lane for lane in await scene.lanes() if 0 <= lane < 3] == []
    await scene.look.execute("DELETE FROM live_runs WHERE job = $1", scene.job)
    await JobOperations(scene.verbs).lifecycle.trigger(scene.id)
    assert [lane for lane in await scene.lanes() if 0 <= lane < 3] != []


@pytest.mark.parametrize("policy", ["SKIP", "ALLOW 2"])
async def test_a_rerun_and_a_redrive_start_no_more_than_may_run_at_once(scene: Scene, policy: str) -> None:
    most = EDITS[policy][1]
    await scene.set(policy, tuple(range(3, 3 + most)))
    await scene.look.execute(
        "INSERT INTO run_history (job, scheduled_at, token, finished_at, serial, revision, attempt, status, reason)"
        " VALUES ($1, $2, 1, now(), 0, 1, 1, 2, 'lost')",
        scene.job,
        LONG_AGO,
    )
    key = RunKey(scene.job, LONG_AGO)
    with pytest.raises(Conflict):
        await JobOperations(scene.verbs).runs.retry(key)
    assert (await scene.verbs.reruns.redrive([key])).waiting == [key]
    await scene.end(3)
    assert (await scene.verbs.reruns.redrive([key])).runs == [key]


@pytest.mark.parametrize("policy", EDITS)
async def test_missed_ticks_start_no_more_than_may_run_at_once(scene: Scene, policy: str) -> None:
    """A job with several lanes keeps one of them for live ticks."""
    most = max(EDITS[policy][1] - 1, 1)
    await scene.set(policy, tuple(range(3, 3 + most)))
    now: datetime = await scene.look.fetchval("SELECT date_trunc('milliseconds', now())")
    tick = now - HOUR
    row = await scene.look.fetchrow(
        "UPDATE cursors SET next_tick = t, fire_at = t FROM (SELECT $2::timestamptz + interval '1 hour' AS t) n"
        " WHERE job = $1 RETURNING generation, schedule",
        scene.job,
        now,
    )
    number = await scene.look.fetchval(
        "INSERT INTO catchups (job, partition, kind, schedule, since, until, next_tick, left_over)"
        " VALUES ($1, 0, 'missed', $2, $3, $3, $3, 1) RETURNING catchup",
        scene.job,
        row["schedule"],
        tick,
    )
    release = [Release(number, tick, row["generation"], None)]
    assert await scene.verbs.catchups.release(NODE, 1, [scene.job], release) == {number: "lane"}
    await scene.look.execute("DELETE FROM live_runs WHERE job = $1", scene.job)
    assert await scene.verbs.catchups.release(NODE, 1, [scene.job], release) == {number: "released"}


async def test_a_run_that_waits_takes_a_free_lane_of_a_job_that_has_several_now(look: Any, verbs: Store) -> None:
    (made,) = await JobOperations(verbs).registration.add([spec(concurrent_policy="QUEUE")])
    number = UUID(str(made.id))
    job = await look.fetchval("SELECT job FROM jobs WHERE id = $1", number)
    await add_live_run(look, job, owner=NODE)
    await add_live_run(look, job, LONG_AGO + HOUR, lane=-1)
    await JobOperations(verbs).registration.patch(number, {"concurrent_policy": "ALLOW", "max_concurrent": 3})
    assert await verbs.live_runs.promote()
    rows = await look.fetch("SELECT lane FROM live_runs ORDER BY lane")
    assert [row["lane"] for row in rows] == [0, 1]


async def test_a_trigger_in_progress_during_the_edit_counts(scene: Scene, another: Any) -> None:
    """The edit waits for the trigger, whose run is not in the edit's snapshot."""
    await scene.make()
    async with another.transaction():
        assert await trigger(another, scene.job, None)
        edit = asyncio.create_task(
            JobOperations(scene.verbs).registration.patch(scene.id, {"concurrent_policy": "SKIP"})
        )
        await until(
            lambda: scene.look.fetchval("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"),
            what="the edit to wait",
        )
    await edit
    assert await scene.fire() == [Exceptional(scene.job, None, "overlap")]
