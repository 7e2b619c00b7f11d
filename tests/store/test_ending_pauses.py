"""Pauses that end by themselves, of jobs that cannot be resumed."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from detent.jobs import JobOperations, automatic
from detent.store import Store
from tests.store.moving import HOUR, database_time, spec


async def test_a_job_that_cannot_be_resumed_is_tried_less_and_less_often_and_the_others_are_resumed(
    verbs: Store, look: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = JobOperations(verbs)
    broken, good = await jobs.registration.add([spec(name="broken"), spec(name="good")])
    for job in (broken, good):
        await jobs.lifecycle.pause(job.id, until=await database_time(look) + HOUR)
    await look.execute("UPDATE jobs SET paused_until = now()")
    await look.execute(
        "UPDATE jobs SET definition = jsonb_set(definition, '{timezone}', '\"Mars/Olympus\"') WHERE name = 'broken'"
    )
    clock = [100.0]
    monkeypatch.setattr(automatic, "monotonic", lambda: clock[0])
    with capture_logs() as logged:
        waits = [await jobs.automatic.end_pauses()]
        assert await look.fetchval("SELECT status FROM jobs WHERE name = 'good'") == "active"
        for _ in range(9):
            clock[0] += waits[-1] or 0
            waits.append(await jobs.automatic.end_pauses())
            assert await jobs.automatic.end_pauses() == waits[-1]  # it is not tried before
    assert waits == [0.5, 1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert [(line["event"], line["job"]) for line in logged] == [("job not changed", str(broken.id))] * 10
    await look.execute("UPDATE jobs SET definition = jsonb_set(definition, '{timezone}', '\"UTC\"')")
    clock[0] += 60
    await jobs.automatic.end_pauses()
    assert await look.fetchval("SELECT count(*) FROM jobs WHERE status = 'active'") == 2
