"""Rolling upgrades: a new node with an app starts while nodes of an older version are in the cluster."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from detent import Detent
from detent.domain.job_schedule import hash_key_of
from detent.domain.schedule import Schedule
from detent.errors import Conflict
from detent.jobs import JobOperations
from detent.node.apps import register_jobs
from detent.store import Store
from tests.store.moving import NODE, database_time, spec
from tests.support.factories import add_node, add_schedule

OLDER = "59 23 31 12 *"
HASHED = spec(name="report", schedule="H H H * *")


@pytest.fixture(autouse=True)
async def older_node(look: Any) -> None:
    await add_node(look, NODE)
    await look.execute("UPDATE nodes SET knows = 28, version = '0.19.0'")


def app_of(schedule: str) -> Detent:
    app = Detent()
    app.name = "shop"

    @app.job(cron=schedule)
    def report() -> None: ...

    @app.job(cron="@daily")
    def mail() -> None: ...

    return app


async def test_an_existing_job_that_an_older_node_cannot_read_does_not_keep_a_new_node_from_starting(
    verbs: Store, look: Any
) -> None:
    jobs = JobOperations(verbs)
    await jobs.registration.add([spec(name="report", schedule="17 3 * * *")])
    with capture_logs() as logged:
        await register_jobs(verbs, jobs, app_of("H 3 * * *"))
    assert await schedules(look) == {"report": "17 3 * * *", "mail": "@daily"}
    (warning,) = [line for line in logged if line["log_level"] == "warning"]
    assert (warning["event"], warning["job"]) == ("job not registered yet; it continues as it is", "report")

    await look.execute("UPDATE nodes SET evicted = true")
    await register_jobs(verbs, jobs, app_of("H 3 * * *"))
    assert await schedules(look) == {"report": "H 3 * * *", "mail": "@daily"}


async def test_a_new_job_that_an_older_node_cannot_read_is_refused(verbs: Store, look: Any) -> None:
    with pytest.raises(Conflict, match=r"'report' has H in its schedule.*upgrade all nodes"):
        await register_jobs(verbs, JobOperations(verbs), app_of("H 3 * * *"))
    assert await schedules(look) == {}


async def schedules(look: Any) -> dict[str, str]:
    query = "SELECT name, coalesce(definition -> 'schedule' ->> 'cron', definition ->> 'schedule') FROM jobs"
    return dict(await look.fetch(query))


async def hashed_by_an_older_node(verbs: Store, look: Any) -> UUID:
    """A job with H whose times were computed from its number."""
    await look.execute("UPDATE nodes SET evicted = true")
    (job,) = await JobOperations(verbs).registration.add([HASHED])
    stored = json.loads(await look.fetchval("SELECT stored FROM schedules JOIN cursors USING (schedule)"))
    number = await add_schedule(look, Schedule.from_stored({**stored, "cron": OLDER}))
    tick = Schedule.parse(OLDER).next_after(await database_time(look))
    await look.execute("UPDATE cursors SET schedule = $1, next_tick = $2, fire_at = $2", number, tick)
    return job.id


async def times(look: Any) -> tuple[str, datetime]:
    query = "SELECT stored ->> 'cron', next_tick FROM cursors JOIN schedules USING (schedule)"
    return tuple(await look.fetchrow(query))


@pytest.mark.parametrize("way", ["alone", "in a batch"])
async def test_times_that_an_older_node_hashed_are_corrected_by_the_next_registration(
    verbs: Store, look: Any, way: str
) -> None:
    jobs = JobOperations(verbs)
    await hashed_by_an_older_node(verbs, look)

    async def upsert() -> str:
        if way == "alone":
            return (await jobs.registration.upsert(HASHED))[1]
        return (await jobs.batches.upsert([HASHED]))[0].change

    assert await upsert() == "updated"
    by_name = Schedule.parse(HASHED.schedule, hash_key=hash_key_of(1, "report"))
    expected = (by_name.to_stored()["cron"], by_name.next_after(await database_time(look)))
    assert await times(look) == expected and expected[0] != OLDER
    assert await upsert() == "unchanged"


async def test_until_then_a_pause_changes_no_times(verbs: Store, look: Any) -> None:
    lifecycle = JobOperations(verbs).lifecycle
    job = await hashed_by_an_older_node(verbs, look)
    before = await times(look)
    await lifecycle.pause(job)
    await lifecycle.resume(job)
    assert await times(look) == before
