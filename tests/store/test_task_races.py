"""On-demand runs that move while another statement wants them. tests/interleavings has every order of these."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, cast

from detent.domain.identity import RunKey, decode_run_id
from detent.domain.run import Claim
from detent.store import Store, sql
from detent.store.connection import Connection
from detent.store.live_runs import cancel_runs
from detent.store.tasks import enqueue, trigger
from tests.support.ends import failed_run
from tests.support.factories import add_job, add_live_run, add_node, add_task

NODE = 1
NO_TIME = timedelta(0)


async def test_a_trigger_that_had_to_wait_for_its_job_gets_a_free_lane(look: Any) -> None:
    """Its transaction began before the run was due."""
    job = await add_job(look)
    async with look.transaction():
        await look.execute("SELECT pg_sleep(0.01)")
        started = await trigger(look, job, None)
    assert started is not None
    _, waits = started
    assert not waits
    assert await look.fetchval("SELECT lane FROM live_runs") == 0


async def test_on_demand_runs_take_no_more_lanes_than_their_job_has_after_an_edit(look: Any, verbs: Store) -> None:
    job = await add_job(look, lanes=3, crowded=True)
    await add_node(look, NODE)
    await add_live_run(look, job, lane=5, owner=NODE)
    await enqueue(look, job, "[{}, {}, {}]")
    await verbs.tasks.release_laned(await verbs.tasks.heads(None))
    lanes = [row["lane"] for row in await look.fetch("SELECT lane FROM live_runs ORDER BY lane")]
    assert lanes == [1, 2, 5], "the run in a lane that the job no longer has counts"


async def test_a_cancel_finds_a_run_that_returns_to_the_backlog_meanwhile(verbs: Store, look: Any) -> None:
    claim = await claimed(verbs, look)

    async def fail() -> None:
        failure = failed_run(claim, claim.scheduled_at, claim.scheduled_at, "failed", "no", NO_TIME)
        assert not await verbs.live_runs.retry(NODE, [failure])

    connection = cast("Connection", Interrupted(look, sql.run.CANCEL.text, fail))
    assert await cancel_runs(connection, [claim.key]) == {claim.key: None}
    assert await look.fetchval("SELECT count(*) FROM backlog") == 0
    assert [row["status"] for row in await look.fetch("SELECT status FROM run_history")] == [3]


async def test_a_cancel_of_a_run_that_has_ended_finds_nothing(verbs: Store, look: Any) -> None:
    claim = await claimed(verbs, look)
    assert await verbs.live_runs.cancel([claim.key]) == {claim.key: NODE}
    await look.execute("DELETE FROM live_runs")
    assert await verbs.live_runs.cancel([claim.key, RunKey(claim.job, claim.scheduled_at)]) == {}


async def claimed(verbs: Store, look: Any) -> Claim:
    """A run of a task that the node has claimed."""
    await add_node(look, NODE)
    job = await add_task(look, name="mail")
    (run,) = await enqueue(look, job, "[{}]")
    (claim,) = (await verbs.tasks.claim(NODE, 1, await verbs.tasks.heads(None), 10)).runs
    assert claim.key == decode_run_id(run.id)
    return claim


class Interrupted:
    """A connection on which something else happens just before this statement is sent for the first time."""

    def __init__(self, connection: Any, text: str, event: Callable[[], Awaitable[None]]) -> None:
        self._connection = connection
        self._text = text
        self._event: Callable[[], Awaitable[None]] | None = event

    async def fetch(self, text: str, *arguments: object) -> list[Any]:
        if text == self._text and self._event is not None:
            event, self._event = self._event, None
            await event()
        rows: list[Any] = await self._connection.fetch(text, *arguments)
        return rows
