"""Backfills, and the missed ticks that a job still has to run, over HTTP."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from detent.domain.identity import first_token
from tests.api.api_client import ApiClient
from tests.support.factories import add_node

HOUR = timedelta(hours=1)
START = datetime(2020, 3, 1, tzinfo=UTC)


def text(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


def stretch(hours: int, **rest: Any) -> dict[str, Any]:
    return {"from": text(START), "to": text(START + hours * HOUR), **rest}


async def number(sql: Any, name: str = "a") -> int:
    found: int = await sql.fetchval("SELECT job FROM jobs WHERE name = $1", name)
    return found


async def ran(sql: Any, at: datetime, status: int = 1, **columns: Any) -> None:
    values = {"token": first_token(1), "attempt": 1, **columns} if status < 4 else columns
    names = ["job", "scheduled_at", "finished_at", "serial", "revision", "status", *values]
    places = ", ".join(f"${n}" for n in range(1, len(names) + 1))
    await sql.execute(
        f"INSERT INTO run_history ({', '.join(names)}) VALUES ({places})",
        await number(sql), at, at, 0, 1, status, *values.values(),
    )  # fmt: skip


async def test_a_dry_run_counts_and_lists_and_does_nothing(api: ApiClient, sql: Any) -> None:
    await api.create(name="a", schedule="0 * * * *")
    answer = await api.good("POST", "/api/v1/jobs/a/backfill", 200, json=stretch(5, dry_run=True))
    assert answer == {
        "dry_run": True,
        "ticks": 6,
        "left_out": 0,
        "first": text(START),
        "last": text(START + 5 * HOUR),
        "items": [text(START + number * HOUR) for number in range(6)],
    }
    assert await sql.fetchval("SELECT count(*) FROM catchups") == 0


async def test_the_newest_come_first_where_that_is_asked_for(api: ApiClient) -> None:
    await api.create(name="a", schedule="0 * * * *")
    answer = await api.good("POST", "/api/v1/jobs/a/backfill", 200, json=stretch(2, dry_run=True, order="newest"))
    assert answer["items"] == [text(START + number * HOUR) for number in (2, 1, 0)]


async def test_ticks_that_ran_are_left_out_and_those_that_did_not_are_not(api: ApiClient, sql: Any) -> None:
    await api.create(name="a", schedule="0 * * * *")
    for hours, status in ((0, 1), (1, 2), (2, 3), (3, 4), (4, 5)):
        await ran(sql, START + hours * HOUR, status)
    await ran(sql, START + HOUR / 2)
    answer = await api.good("POST", "/api/v1/jobs/a/backfill", 200, json=stretch(5, dry_run=True))
    assert (answer["ticks"], answer["left_out"]) == (3, 3), "a run between the ticks is not a tick"
    assert answer["items"] == [text(START + number * HOUR) for number in (3, 4, 5)]
    again = await api.good("POST", "/api/v1/jobs/a/backfill", 200, json=stretch(5, dry_run=True, reprocess=True))
    assert (again["ticks"], again["left_out"]) == (6, 0)


async def test_ticks_that_ran_at_either_end_are_not_in_the_range(api: ApiClient, sql: Any) -> None:
    await api.create(name="a", schedule="0 * * * *")
    for hours in (0, 1, 3, 5):
        await ran(sql, START + hours * HOUR)
    answer = await api.good("POST", "/api/v1/jobs/a/backfill", 200, json=stretch(5))
    assert (answer["ticks"], answer["left_out"]) == (2, 4)
    (item,) = (await api.good("GET", "/api/v1/jobs/a/catchup"))["items"]
    assert (item["first"], item["last"], item["left"]) == (text(START + 2 * HOUR), text(START + 4 * HOUR), 3)


async def test_a_backfill_is_outstanding_until_it_is_released_or_dropped(api: ApiClient, sql: Any) -> None:
    await api.create(name="a", schedule="0 * * * *")
    answer = await api.good("POST", "/api/v1/jobs/a/backfill", 200, json=stretch(5, concurrency=3, order="newest"))
    assert (answer["ticks"], answer["dry_run"], answer["items"]) == (6, False, [])
    state = await api.good("GET", "/api/v1/jobs/a/catchup")
    (item,) = state["items"]
    assert (state["left"], item["kind"], item["order"], item["concurrency"]) == (6, "backfill", "newest", 3)
    assert (item["first"], item["last"], item["next"]) == (
        text(START),
        text(START + 5 * HOUR),
        text(START + 5 * HOUR),
    )
    assert await api.good("POST", "/api/v1/jobs/a/catchup/drop") == {"dropped": 6}
    assert (await api.good("GET", "/api/v1/jobs/a/catchup"))["items"] == []
    assert await sql.fetchval("SELECT count(*) FROM run_history") == 0, "those ticks were not expected"


async def test_dropped_missed_ticks_are_in_the_ledger(api: ApiClient, sql: Any) -> None:
    await api.create(name="a", schedule="0 * * * *")
    await sql.execute(
        "INSERT INTO catchups (job, partition, kind, schedule, since, until, next_tick, left_over)"
        " SELECT job, partition, 'missed', schedule, $2, $3, $2, 30 FROM cursors WHERE job = $1",
        await number(sql),
        START,
        START + 29 * HOUR,
    )
    left_out = await api.good("POST", "/api/v1/jobs/a/backfill", 200, json=stretch(40, dry_run=True))
    assert (left_out["ticks"], left_out["left_out"]) == (11, 30), "what is to be made up for is going to run"
    assert await api.good("POST", "/api/v1/jobs/a/catchup/drop") == {"dropped": 30}
    page = await api.good("GET", "/api/v1/jobs/a/runs")
    assert [(run["status"], run["reason"], run["ticks"]) for run in page["items"]] == [
        ("missed", "dropped", 6),
        ("missed", "dropped", 24),
    ]


async def test_what_is_due_and_has_not_fired_is_not_the_past_yet(api: ApiClient, sql: Any) -> None:
    await api.create(name="a", schedule="0 * * * *")
    await sql.execute(
        "UPDATE cursors SET next_tick = $2, fire_at = $2 WHERE job = $1", await number(sql), START + 3 * HOUR
    )
    answer = await api.good("POST", "/api/v1/jobs/a/backfill", 200, json=stretch(5, dry_run=True))
    assert answer["last"] == text(START + 2 * HOUR)


async def test_a_stretch_without_ticks_begins_nothing(api: ApiClient, sql: Any) -> None:
    await api.create(name="a", schedule="0 0 29 2 *")
    answer = await api.good("POST", "/api/v1/jobs/a/backfill", 200, json=stretch(5))
    assert (answer["ticks"], answer["first"]) == (0, None)
    assert await sql.fetchval("SELECT count(*) FROM catchups") == 0


async def test_an_interval_counts_from_its_anchor_also_before_the_job_was_made(api: ApiClient) -> None:
    await api.create(name="a", schedule={"every": "2h", "anchor": "2026-01-01T01:00:00Z"})
    answer = await api.good("POST", "/api/v1/jobs/a/backfill", 200, json=stretch(5, dry_run=True))
    assert answer["items"] == [text(START + number * HOUR) for number in (1, 3, 5)]


@pytest.mark.parametrize(
    ("body", "pointer", "words"),
    [
        ({"from": "2020-03-01T00:00:00Z", "to": "2999-01-01T00:00:00Z"}, "/to", "in the future"),
        ({"from": "2020-03-02T00:00:00Z", "to": "2020-03-01T00:00:00Z"}, "/from", "swap"),
        ({"from": "0001-01-01T00:00:00Z", "to": "2020-03-01T00:00:00Z"}, "/from", "1970 to 9000"),
        ({"from": "2020-03-01T00:00:00"}, "/from", "such as"),
        ({"to": "2020-03-01T00:00:00Z"}, "/from", "from"),
        ({"from": "2020-03-01T00:00:00Z", "order": "any"}, "/order", "newest"),
        ({"from": "2020-03-01T00:00:00Z", "concurrency": 0}, "/concurrency", "1"),
        ({"from": "2020-03-01T00:00:00Z", "rate": 1}, "/rate", "rate"),
    ],
)
async def test_what_is_wrong_is_reported(api: ApiClient, body: Any, pointer: str, words: str) -> None:
    await api.create(name="a", schedule="0 * * * *")
    problem = await api.problem("POST", "/api/v1/jobs/a/backfill", 422, json=body)
    assert problem.get("pointer", "") == pointer
    assert words in problem["detail"]


async def test_more_than_a_hundred_thousand_ticks_are_too_many_at_once(api: ApiClient) -> None:
    await api.create(name="a", schedule="every 1s")
    problem = await api.problem("POST", "/api/v1/jobs/a/backfill", 422, json=stretch(30))
    # One more where the job was made on a whole second: then both ends of the stretch are ticks.
    assert "108,000 ticks" in problem["detail"] or "108,001 ticks" in problem["detail"]


async def test_a_paused_job_is_not_backfilled_and_a_deleted_one_is_not_there(api: ApiClient) -> None:
    await api.create(name="a", schedule="0 * * * *")
    await api.good("POST", "/api/v1/jobs/a/pause")
    problem = await api.problem("POST", "/api/v1/jobs/a/backfill", 409, json=stretch(5))
    assert "resume it first" in problem["detail"]
    await api.good("POST", "/api/v1/jobs/a/backfill", 200, json=stretch(5, dry_run=True))
    for method, path in (("POST", "backfill"), ("GET", "catchup"), ("POST", "catchup/drop")):
        await api.problem(method, f"/api/v1/jobs/nobody/{path}", 404, json=stretch(1) if path == "backfill" else None)


async def test_a_backfill_that_is_sent_twice_under_one_key_is_made_once(api: ApiClient, sql: Any) -> None:
    await api.create(name="a", schedule="0 * * * *")
    headers = {"Idempotency-Key": "twice"}
    answers = [await api.ask("POST", "/api/v1/jobs/a/backfill", json=stretch(5), headers=headers) for _ in range(2)]
    assert [answer.status for answer in answers] == [200, 200]
    assert await sql.fetchval("SELECT count(*) FROM catchups") == 1


async def test_a_job_that_is_edited_while_it_is_backfilled_keeps_the_ticks_it_was_asked_for(
    api: ApiClient, sql: Any
) -> None:
    await add_node(sql, 7)
    await api.create(name="a", schedule="0 * * * *")
    await api.good("POST", "/api/v1/jobs/a/backfill", 200, json=stretch(5))
    before = await sql.fetchval("SELECT schedule FROM catchups")
    await api.good("PATCH", "/api/v1/jobs/a", 200, json={"schedule": "30 * * * *", "priority": 9})
    (due,) = await api.store.catchups.due({await sql.fetchval("SELECT partition FROM catchups"): 0}, 10)
    assert (due.schedule, due.generation) == (before, await sql.fetchval("SELECT generation FROM cursors"))
