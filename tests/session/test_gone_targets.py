"""A target that answers 410 Gone: its job is paused, unless it was changed since the call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from detent.contract.job import Job
from detent.domain.job import HttpTarget, JobSpec
from detent.domain.run import GoneTarget
from detent.domain.target_access import PRIVATE_TOO
from detent.jobs import JobOperations
from detent.jobs.automatic import GONE_REASON
from detent.store import Store
from detent.targets.http import HttpTargetRunner
from detent.targets.policies import FixedPolicy
from tests.support.waiting import until
from tests.targets.target_helpers import Received, Sink, answer


@pytest.fixture
async def sink() -> AsyncIterator[Sink]:
    async with Sink() as server:
        server.answer = answer("410 Gone")
        yield server


@pytest.fixture
async def runner() -> AsyncIterator[HttpTargetRunner]:
    made = HttpTargetRunner(FixedPolicy(PRIVATE_TOO))
    yield made
    await made.close()


async def added(store: Store, sink: Sink, **fields: Any) -> Job:
    spec = JobSpec(**{"schedule": "every 1s", "target": HttpTarget(url=sink.url), "name": "gone", **fields})
    (job,) = await JobOperations(store).registration.add([spec])
    return job


async def paused(store: Store, job: Job) -> Job:
    async def check() -> Job | None:
        found = await store.jobs.get(job.id)
        return found if found is not None and found.status == "paused" else None

    return await until(check, 20, "the job to be paused")


async def test_the_job_is_paused_with_its_reason_and_the_run_is_dead_without_a_retry(
    store: Store, look: Any, start: Any, sink: Sink, runner: HttpTargetRunner
) -> None:
    job = await added(store, sink, max_retries=5)
    await start(runner)
    found = await paused(store, job)
    assert (found.paused_reason, found.paused_by) == ("the target answered 410 Gone", "detent")
    runs = await look.fetch("SELECT status, reason, attempt FROM run_history WHERE status = 2")
    assert {tuple(run) for run in runs} == {(2, "not retryable", 1)}
    events = await look.fetch("SELECT actor_kind, after FROM audit_events WHERE action = 'job.pause'")
    assert [event["actor_kind"] for event in events] == ["detent"]
    assert "410 Gone" in events[0]["after"]
    tick = await look.fetchval("SELECT max(scheduled_at) FROM run_history") + timedelta(seconds=5)
    story = await JobOperations(store).explainer.story(job.id, tick.isoformat())
    assert "the target answered 410 Gone" in str(story)


async def test_runs_of_a_task_wait_until_it_is_resumed_and_more_can_be_enqueued(
    store: Store, look: Any, start: Any, sink: Sink, runner: HttpTargetRunner
) -> None:
    job = await added(store, sink, schedule=None)
    await start(runner)
    await look.fetch("SELECT * FROM enqueue('gone')")
    await paused(store, job)
    await look.fetch("SELECT * FROM enqueue('gone')")
    assert await look.fetchval("SELECT count(*) FROM backlog") == 1
    sink.answer = answer("200 OK")
    await JobOperations(store).lifecycle.resume(job.id)
    await until(lambda: look.fetchval("SELECT count(*) = 1 FROM run_history WHERE status = 1"), 20)


async def test_a_late_410_does_not_pause_a_job_that_was_edited_since(
    store: Store, look: Any, start: Any, sink: Sink, runner: HttpTargetRunner
) -> None:
    called, go = asyncio.Event(), asyncio.Event()

    async def held(request: Received, writer: asyncio.StreamWriter) -> None:
        called.set()
        await go.wait()
        await answer("410 Gone")(request, writer)

    sink.answer = held
    job = await added(store, sink, schedule=None)
    await start(runner)
    await look.fetch("SELECT * FROM enqueue('gone')")
    await called.wait()
    await JobOperations(store).registration.patch(job.id, {"target": HttpTarget(url=sink.url + "/new")})
    go.set()
    await until(lambda: look.fetchval("SELECT count(*) = 1 FROM run_history WHERE status = 2"), 20)
    sink.answer = answer("200 OK")
    await look.fetch("SELECT * FROM enqueue('gone')")
    await until(lambda: look.fetchval("SELECT count(*) = 1 FROM run_history WHERE status = 1"), 20)
    found = await store.jobs.get(job.id)
    assert found is not None
    assert (found.status, found.paused_reason) == ("active", None)


async def test_only_a_job_that_is_as_it_was_called_is_paused_and_only_once(store: Store, look: Any, sink: Sink) -> None:
    job = await added(store, sink)
    operations = JobOperations(store)
    number = await look.fetchval("SELECT job FROM jobs")
    called = await look.fetchval("SELECT clock_timestamp()")
    assert await operations.automatic.pause_gone([GoneTarget(number, 2, called)]) == []
    assert await operations.automatic.pause_gone([GoneTarget(number, 1, called)]) == [job.id]
    assert await operations.automatic.pause_gone([GoneTarget(number, 1, called)]) == []
    assert await look.fetchval("SELECT count(*) FROM audit_events WHERE action = 'job.pause'") == 1
    await operations.lifecycle.resume(job.id)
    assert await operations.automatic.pause_gone([GoneTarget(number, 1, called)]) == []
    later = await look.fetchval("SELECT clock_timestamp()")
    assert await operations.automatic.pause_gone([GoneTarget(number, 1, later)]) == [job.id]
    found = await store.jobs.get(job.id)
    assert found is not None
    assert found.paused_reason == GONE_REASON


async def test_a_job_that_is_changed_while_it_is_about_to_be_paused_stays_active(
    store: Store, look: Any, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the search and the pause, an operator edits the job, or pauses and resumes it."""
    job = await added(store, sink)
    operations = JobOperations(store)
    number = await look.fetchval("SELECT job FROM jobs")
    search = store.jobs.gone

    async def edit() -> None:
        await operations.registration.patch(job.id, {"priority": 7})

    async def resume() -> None:
        await operations.lifecycle.pause(job.id)
        await operations.lifecycle.resume(job.id)

    for revision, change in ((1, edit), (2, resume)):
        called = await look.fetchval("SELECT clock_timestamp()") - timedelta(milliseconds=1)

        async def raced(targets: Any, change: Any = change) -> Any:
            rows = await search(targets)
            assert rows
            await change()
            return rows

        monkeypatch.setattr(store.jobs, "gone", raced)
        await operations.automatic.pause_gone([GoneTarget(number, revision, called)])
        assert await look.fetchval("SELECT status FROM jobs") == "active"
