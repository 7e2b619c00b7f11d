"""A tick that was asked to be skipped is not the next run, and is shown as skipped."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.api_client import HTTP, ApiClient
from tests.api.test_api_life import in_hours, text

JOB = "/api/v1/jobs/report"


@pytest.mark.parametrize("schedule", ["0 * * * *", {"every": "1h"}, "RRULE:FREQ=HOURLY;BYMINUTE=0"])
async def test_the_next_run_is_the_next_tick_that_is_not_skipped(api: ApiClient, schedule: Any) -> None:
    await api.good("POST", "/api/v1/jobs", 201, json={"name": "report", "target": HTTP, "schedule": schedule})
    preview = {"schedule": schedule, "job": "report", "count": 4}
    ticks = (await api.good("POST", "/api/v1/schedules/preview", json=preview))["ticks"]
    first, second, third, _ = [tick["at"] for tick in ticks]
    assert [tick.get("skipped", False) for tick in ticks] == [False] * 4
    for at in (first, second):
        await api.good("POST", f"{JOB}/skip", json={"at": at})
    job = await api.good("GET", JOB)
    assert (job["next_run_at"], job["skipped_ticks"]) == (third, [first, second])
    (listed,) = (await api.good("GET", "/api/v1/jobs"))["items"]
    assert (listed["next_run_at"], listed["skipped_ticks"]) == (third, [first, second])
    marked = (await api.good("POST", "/api/v1/schedules/preview", json=preview))["ticks"]
    assert [(tick["at"], tick.get("skipped", False)) for tick in marked[:3]] == [
        (first, True),
        (second, True),
        (third, False),
    ]
    await api.good("DELETE", f"{JOB}/skip?at={first}", 204)
    job = await api.good("GET", JOB)
    assert (job["next_run_at"], job["skipped_ticks"]) == (first, [second])


async def test_a_one_off_whose_only_tick_is_skipped_has_no_next_run(api: ApiClient) -> None:
    at = text(in_hours(3))
    await api.good("POST", "/api/v1/jobs", 201, json={"name": "report", "target": HTTP, "schedule": {"at": at}})
    await api.good("POST", f"{JOB}/skip", json={"at": at})
    job = await api.good("GET", JOB)
    assert (job["next_run_at"], job["skipped_ticks"], job["status"]) == (None, [at], "active")


async def test_a_preview_without_a_job_marks_nothing(api: ApiClient) -> None:
    answer = await api.good("POST", "/api/v1/schedules/preview", json={"schedule": "@daily", "count": 2})
    assert [tick.get("skipped", False) for tick in answer["ticks"]] == [False, False]
