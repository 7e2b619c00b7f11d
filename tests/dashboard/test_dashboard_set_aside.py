"""A job that cannot be fired is shown as a problem."""

from __future__ import annotations

from typing import Any

from detent.domain.registration import read_document
from detent.jobs import JobOperations
from tests.dashboard.pages import Pages

JOB: dict[str, Any] = {
    "name": "silent",
    "schedule": "every 1h",
    "target": {"type": "http", "url": "http://127.0.0.1:9/"},
}
ASIDE = (
    "INSERT INTO set_aside (job, kind, tick, generation, why, node)"
    " SELECT job, 'tick', next_tick, generation, 'Schedule 7 cannot be read <b>.', 1 FROM cursors"
)


async def test_a_job_that_is_set_aside_is_a_problem_with_its_reason(pages: Pages, sql: Any) -> None:
    (job,) = await JobOperations(pages.store).registration.add([read_document(JOB)])
    assert "A job cannot be fired" not in (await pages.get("/cluster/problems")).text
    await sql.execute(ASIDE)
    text = (await pages.get("/cluster/problems")).text
    assert "A job cannot be fired" in text
    assert "silent: Schedule 7 cannot be read &lt;b&gt;." in text
    assert f'href="/jobs/{job.id}"' in text
    assert "silent: Schedule 7" in (await pages.get("/")).text
    await sql.execute("UPDATE cursors SET generation = generation + 1")
    assert "A job cannot be fired" not in (await pages.get("/cluster/problems")).text
