"""Missed deadlines on every page that shows them, and deadlines in the job form."""

from __future__ import annotations

from typing import Any

import pytest

from detent.dashboard.problems import AlarmCount
from detent.domain.registration import read_document
from detent.jobs import JobOperations
from tests.dashboard.pages import Pages

MARKED = "<script>alert('x')</script>\"'><img src=x onerror=alert(1)>"
SHOWN = "&lt;script&gt;alert"
JOB: dict[str, Any] = {
    "name": f"job {MARKED}",
    "schedule": "every 1h",
    "target": {"type": "http", "url": "http://127.0.0.1:9/"},
    "expect_finish_within": 1800,
    "notify_url": "http://127.0.0.1:9/%3Cscript%3E",
}
OPEN = (
    "INSERT INTO incidents (tenant, job, kind, within, tick, misses, opened_at)"
    " SELECT tenant, job, 'finish', interval '30 min', date_trunc('hour', now()) - interval '3 hours', 2, now()"
    " FROM jobs RETURNING incident"
)
TROUBLE = "INSERT INTO notices (incident, event, ended_at, error) VALUES ($1, 'missed', now(), $2)"
CLOSE = "UPDATE incidents SET closed_at = now(), closed = 'recovered'"
BADGE = '<span class="badge"><span aria-hidden="true">1</span>'


@pytest.fixture
async def missed(pages: Pages, sql: Any) -> str:
    """The page of a job with an open incident, whose notification failed."""
    (job,) = await JobOperations(pages.store).registration.add([read_document(JOB)])
    await sql.execute(TROUBLE, await sql.fetchval(OPEN), f"it said {MARKED}")
    return f"/jobs/{job.id}"


async def test_an_open_incident_is_shown_on_every_page_until_it_closes(pages: Pages, missed: str, sql: Any) -> None:
    for path in ("/", "/cluster/problems", missed):
        text = (await pages.get(path)).text
        assert SHOWN in text, path
        assert "<script>alert" not in text, path
        assert "<img" not in text, path
    problems = (await pages.get("/cluster/problems")).text
    assert "succeed within 30 min" in problems
    assert f"it said {SHOWN}" in problems
    assert f'href="{missed}/edit"' in problems
    assert "did not succeed within 30 min of its tick" in (await pages.get("/")).text
    assert "(reported after 2 consecutive misses)" in (await pages.get(missed)).text
    await sql.execute(CLOSE)
    assert "missed deadline is unresolved" not in (await pages.get("/cluster/problems")).text
    assert "did not succeed" not in (await pages.get("/")).text
    assert "recovered" in (await pages.get(missed)).text


async def test_every_page_shows_the_number_of_urgent_problems_and_updates_it(pages: Pages, missed: str) -> None:
    others = 1  # without a node there is no leader
    badge = BADGE.replace(">1<", f">{1 + others}<")
    for path in ("/", "/jobs", missed, f"{missed}/edit", "/runs", "/timeline", "/dead-letters", "/cluster"):
        assert badge in (await pages.get(path)).text, path
        if not path.endswith("/edit"):
            sent = await pages.stream(path)
            assert 'hx-target="#alarms"' in sent, path
            assert badge in sent, path
            assert "<script" not in sent


async def test_the_number_is_computed_once_for_all_visitors(pages: Pages, missed: str) -> None:
    class Counting(AlarmCount):
        counted = 0

        async def _count(self, page: Any) -> str:
            self.counted += 1
            return "3"

    time = 0.0
    alarms = Counting(lambda: time)
    page: Any = type("Page", (), {"tenant": 1})()
    assert [await alarms.of(page) for _ in range(50)] == ["3"] * 50
    assert alarms.counted == 1
    time = 3.0
    await alarms.of(page)
    assert alarms.counted == 2
    alarms.reset()
    await alarms.of(page)
    assert alarms.counted == 3


async def test_very_many_incidents_are_counted_up_to_a_limit_and_the_newest_shown(
    pages: Pages, missed: str, sql: Any
) -> None:
    await sql.execute(
        "INSERT INTO incidents (tenant, job, kind, within, tick, misses)"
        " SELECT tenant, job, 'start', interval '1 s', now(), 1 FROM jobs, generate_series(1, 1200)"
    )
    text = (await pages.get("/cluster/problems")).text
    assert "1,000 or more missed deadlines are unresolved" in text
    assert "The newest 20" in text
    assert text.count('id="incident-') == 20
    assert "1,001+" in text


async def test_a_tenant_sees_no_incident_of_another(guarded: Pages, sql: Any) -> None:
    await JobOperations(guarded.store).registration.add([read_document({**JOB, "name": "secret-job"})])
    await sql.execute(OPEN)
    await guarded.store.tenants.add("acme")
    number = await guarded.store.tenants.number("acme")
    assert number is not None
    key = await guarded.store.keys.add("admin", tenant=number)
    await guarded.post("/login", key=key.key, next="/")
    for path in ("/", "/cluster/problems"):
        shown = await guarded.get(path)
        assert shown.status == 200
        assert "secret-job" not in shown.text
        assert "missed deadline" not in shown.text


async def test_the_builder_takes_deadlines_and_the_job_shows_them(pages: Pages) -> None:
    token = (await pages.get("/")).csrf
    fields = {"kind": "every", "every": "1h", "target": "http", "url": "http://127.0.0.1:9/", "name": "report"}
    more = {
        "expect_start_within": "5m", "expect_finish_within": "3600", "notify_after": "3",
        "notify_url": "https://hooks.example.com/", "notify_format": "slack",
    }  # fmt: skip
    made = await pages.post("/jobs", csrf=token, **fields, **more)
    assert made.status == 204, made.text
    (job,), _ = await pages.store.jobs.list()
    assert (job.expect_start_within, job.expect_finish_within, job.notify_after) == (300, 3600, 3)
    assert (job.notify_url, job.notify_format) == ("https://hooks.example.com/", "slack")
    text = (await pages.get(made.headers["HX-Redirect"])).text
    assert "Each run must start within 5 min and succeed within 1 h of its tick" in text
    assert "https://hooks.example.com/" in text
    assert 'value="300"' in (await pages.get(f"{made.headers['HX-Redirect']}/edit")).text
    for field, value in (("expect_start_within", "soon"), ("expect_finish_within", "1"), ("notify_url", "ftp://x")):
        wrong = await pages.post("/jobs", csrf=token, **{**fields, **more, "name": "other", field: value})
        assert f'data-at="/{field}"' in wrong.text, wrong.text
