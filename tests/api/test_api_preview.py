"""POST /schedules/preview: the same answer as `detent cron explain`, over HTTP."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from detent.domain.schedule.explain import explain_text
from tests.api.api_client import ApiClient

PATH = "/api/v1/schedules/preview"
WINTER = "2027-03-27T00:00:00Z"


async def test_a_preview_is_what_explain_says(api: ApiClient) -> None:
    body = {"schedule": "30 2 * * *", "timezone": "Europe/Berlin", "count": 3, "from": WINTER, "dst_gap": "shift"}
    answer = await api.good("POST", PATH, json=body)
    since = datetime(2027, 3, 27, tzinfo=UTC)
    assert answer == explain_text("30 2 * * *", "Europe/Berlin", 3, since, dst_gap="shift")
    assert answer["ticks"][0] == {"at": "2027-03-27T01:30:00Z", "local": answer["ticks"][0]["local"], "dst": None}
    assert answer["ticks"][1]["dst"] == "moved"
    assert "does not exist on 2027-03-28" in answer["warnings"][0]
    assert answer.keys() == {"description", "timezone", "ticks", "skipped", "clock_changes", "warnings"}


async def test_a_skipped_time_is_reported_with_its_reason(api: ApiClient) -> None:
    body = {"schedule": "30 2 * * *", "timezone": "Europe/Berlin", "count": 3, "from": WINTER, "dst_gap": "skip"}
    answer = await api.good("POST", PATH, json=body)
    assert answer["skipped"][0]["local"].startswith("2027-03-28T02:30")
    assert len(answer["ticks"]) == 3


async def test_without_a_time_it_is_the_databases_now(api: ApiClient, sql: Any) -> None:
    answer = await api.good("POST", PATH, json={"schedule": "every 10m"})
    now = await sql.fetchval("SELECT now()")
    assert len(answer["ticks"]) == 10
    first = datetime.fromisoformat(answer["ticks"][0]["at"])
    assert abs((first - now).total_seconds() - 600) < 120


@pytest.mark.parametrize(
    "schedule",
    [
        "0 14 ? * MON#1",
        "RRULE:FREQ=MONTHLY;BYDAY=-1FR",
        "H 3 * * *",
        {"every": "90m", "anchor": "2026-01-01T00:00:00Z"},
        {"at": "2031-01-01T00:00:00Z"},
        "2031-01-01T00:00:00Z",
    ],
)
async def test_every_kind_of_schedule_can_be_previewed(api: ApiClient, schedule: Any) -> None:
    answer = await api.good("POST", PATH, json={"schedule": schedule, "count": 2})
    assert answer["description"]
    assert 1 <= len(answer["ticks"]) <= 2


async def test_a_preview_has_at_most_a_thousand_ticks(api: ApiClient) -> None:
    answer = await api.good("POST", PATH, json={"schedule": "* * * * *", "count": 1000})
    assert len(answer["ticks"]) == 1000


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "too many": ({"schedule": "@daily", "count": 1001}, "/count"),
    "none": ({"schedule": "@daily", "count": 0}, "/count"),
    "bad cron": ({"schedule": "61 * * * *"}, "/schedule"),
    "bad cron, explicit": ({"schedule": {"cron": "61 * * * *"}}, "/schedule/cron"),
    "no schedule": ({"timezone": "UTC"}, "/schedule"),
    "bad zone": ({"schedule": "@daily", "timezone": "Mars/Olympus"}, "/timezone"),
    "no zone in the time": ({"schedule": "@daily", "from": "2027-01-01T00:00:00"}, "/from"),
    "a time out of bounds": ({"schedule": "@daily", "from": "9500-01-01T00:00:00Z"}, "/from"),
    "ends before it starts": (
        {"schedule": "@daily", "starts_at": "2031-01-01T00:00:00Z", "ends_at": "2030-01-01T00:00:00Z"},
        "/ends_at",
    ),
    "an unknown field": ({"schedule": "@daily", "calender": "x"}, "/calender"),
    "NUL": ({"schedule": "\0"}, "/schedule"),
    "NUL in the zone": ({"schedule": "@daily", "timezone": "\0"}, "/timezone"),
}


@pytest.mark.parametrize("what", BAD)
async def test_a_bad_preview_is_refused_where_it_is_wrong(api: ApiClient, what: str) -> None:
    body, pointer = BAD[what]
    problem = await api.problem("POST", PATH, 422, json=body)
    assert problem["pointer"] == pointer
