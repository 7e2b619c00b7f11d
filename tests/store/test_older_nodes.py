"""Rolling upgrades: a new node with an app starts while nodes of an older version are in the cluster."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from detent import Detent
from detent.errors import Conflict
from detent.jobs import JobOperations
from detent.node.apps import register_jobs
from detent.store import Store
from tests.store.moving import NODE, spec
from tests.support.factories import add_node


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
