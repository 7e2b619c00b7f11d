"""Schedules that cost much: refused after a number of steps, with a sentence, and never on the loop that fires."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from detent.domain.schedule import Schedule, ScheduleError
from detent.domain.schedule.explain import explain_text
from detent.domain.schedule.steps import BATCH_STEPS, QUESTION_STEPS, STEPS_PER_ROW, CostlySchedule, Steps
from detent.runtime import arithmetic
from detent.runtime.arithmetic import compute
from tests.api.api_client import HTTP, ApiClient
from tests.api.api_server import Readiness, serving
from tests.support.waiting import until

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
PREVIEW = "/api/v1/schedules/preview"
BATCH = "/api/v1/jobs/batch"
# Every second Sunday, if it is no Sunday.
NEVER = "DTSTART:20260104T000000\nRRULE:FREQ=HOURLY;INTERVAL=336;BYDAY=MO,TU,WE,TH,FR,SA"
# Every second day, if it is the 29th of February and a Monday: about twice in a century.
RARE = "DTSTART:20260105T000000\nRRULE:FREQ=DAILY;INTERVAL=2;BYMONTH=2;BYMONTHDAY=29;BYDAY=MO"
FAR = {"schedule": "FREQ=HOURLY;INTERVAL=9973", "count": 1000}

# What people write, and the costliest of it.
USUAL = {
    "*/5 * * * *": 5,
    "0 9 * * MON-FRI": 5,
    "0 0 29 2 *": 500,
    "every 15m": 5,
    "FREQ=DAILY;BYHOUR=9": 200,
    "FREQ=WEEKLY;BYDAY=MO,WE,FR;BYHOUR=9": 200,
    "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1;BYHOUR=17": 200,
    "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29;BYDAY=MO": 3_000,
    "FREQ=DAILY;INTERVAL=10;BYMONTH=2;BYMONTHDAY=29": 8_000,
    "FREQ=HOURLY;INTERVAL=9973": 1_000,
    "DTSTART:20260101T000000\nRRULE:FREQ=DAILY;COUNT=10000": 11_000,
}


@pytest.fixture
async def api(database_url: str) -> AsyncIterator[ApiClient]:
    async with serving(database_url, Readiness({"database": True})) as client:
        yield client


def cost(text: str) -> int:
    steps = Steps(QUESTION_STEPS)
    Schedule.parse(text, anchor=NOW, steps=steps).next_after(NOW)
    return steps.spent


@pytest.mark.parametrize(("text", "most"), USUAL.items(), ids=[text[-40:] for text in USUAL])
def test_schedules_in_use_cost_a_part_of_the_budget_and_always_the_same(text: str, most: int) -> None:
    first = cost(text)
    assert 0 < first <= most < QUESTION_STEPS
    # Also when caches know the answer: whether a request is refused must not depend on earlier ones.
    assert cost(text) == first


def test_a_rule_whose_day_almost_never_comes_is_refused_after_a_number_of_steps() -> None:
    steps = Steps(5_000, "find its next tick")
    with pytest.raises(CostlySchedule) as caught:
        Schedule.parse(RARE, steps=steps).next_after(NOW)
    assert caught.value.message.startswith("This schedule needs more than 5,000 steps to find its next tick: use fewer")
    assert steps.spent == 5_001
    assert caught.value.pointer == "/schedule"


def test_rules_with_a_thousand_dates_and_every_ordinal_stay_within_the_budget() -> None:
    ordinals = ",".join(f"{number}{day}" for number in range(-53, 54) if number for day in ("MO", "TU", "SU"))
    dates = ",".join(f"{20270101 + index}T000000" for index in range(28))
    for text in (f"FREQ=YEARLY;BYDAY={ordinals}", f"FREQ=MONTHLY;BYDAY={ordinals}", f"FREQ=DAILY\nEXDATE:{dates}"):
        assert cost(text) < QUESTION_STEPS / 3


@pytest.mark.parametrize("weekdays", ["30 2 1#5", "31 4 *", "31 2,4,6,9,11 5L"])
def test_an_impossible_cron_expression_is_refused_after_28_years_and_not_after_400(weekdays: str) -> None:
    with pytest.raises(ScheduleError):
        Schedule.parse(f"0 0 {weekdays}", day_match="and")


def test_a_preview_of_rare_ticks_is_refused_where_a_few_of_them_are_not() -> None:
    with pytest.raises(CostlySchedule, match=r"30,000 steps to list its next 1000 ticks: .* ask for fewer ticks"):
        explain_text("0 0 29 2 *", "Europe/Berlin", 1000, NOW)
    assert len(explain_text("0 0 29 2 *", "Europe/Berlin", 50, NOW)["ticks"]) == 50
    assert len(explain_text("0 0 1 1 *", "UTC", 200, NOW)["ticks"]) == 200


async def test_a_costly_preview_is_answered_with_a_sentence(api: ApiClient) -> None:
    problem = await api.problem("POST", PREVIEW, 422, json=FAR)
    assert problem["type"] == "/problems/costly-schedule"
    assert "needs more than 30,000 steps to list its next 1000 ticks" in problem["detail"]
    assert problem["pointer"] == "/schedule"


async def test_a_costly_schedule_is_neither_registered_nor_put_nor_patched(api: ApiClient) -> None:
    await api.create(name="job")
    body = {"schedule": NEVER, "target": HTTP}
    for method, path in (("POST", "/api/v1/jobs"), ("PUT", "/api/v1/jobs/by-name/job")):
        problem = await api.problem(method, path, 422, json=body)
        assert problem["type"] == "/problems/costly-schedule"
        assert "to find its next tick" in problem["detail"]
    problem = await api.problem("PATCH", "/api/v1/jobs/job", 422, json={"schedule": body["schedule"]})
    assert problem["type"] == "/problems/costly-schedule"


def batch_of(rule: str, count: int) -> list[dict[str, Any]]:
    """`count` different rules: none is found in a cache of the one before."""
    rows = [f"{rule};BYMINUTE={number % 60};BYSECOND={number // 60}" for number in range(count)]
    return [{"name": f"n{number}", "schedule": row, "target": HTTP} for number, row in enumerate(rows)]


async def test_the_rows_of_a_batch_beyond_its_steps_are_refused_one_by_one(api: ApiClient) -> None:
    rows = batch_of(RARE, 100)
    problem = await api.problem("POST", BATCH, 422, json=rows)
    limit = BATCH_STEPS + STEPS_PER_ROW * 100
    refused = [error["pointer"] for error in problem["errors"]]
    assert f"need more than {limit:,} steps together" in problem["errors"][0]["detail"]
    affordable = limit // cost(rows[0]["schedule"])
    assert 5 < affordable < 20
    assert refused == [f"/{number}/schedule" for number in range(100 - len(refused), 100)]
    assert 100 - len(refused) in (affordable - 1, affordable)
    good = await api.good("POST", BATCH, json=rows[:3])
    assert good["created"] == 3


async def test_rows_of_usual_schedules_with_keys_of_the_day_are_below_the_steps_of_a_batch(api: ApiClient) -> None:
    rows = [
        {
            "name": f"n{number}",
            "schedule": f"{number % 60} {number // 60} * * *",
            "idempotency_key_template": "{{job}}-{{date}}",
            "target": HTTP,
        }
        for number in range(110)
    ]
    assert (await api.good("POST", BATCH, json=rows))["created"] == 110


async def test_a_backfill_whose_ticks_cost_too_much_to_count_is_refused(api: ApiClient) -> None:
    positions = ",".join(str(number) for number in range(1, 300))
    hours, minutes = ",".join(map(str, range(24))), "0,15,30,45"
    rule = f"FREQ=WEEKLY;BYDAY=MO,TU,WE,TH;BYHOUR={hours};BYMINUTE={minutes};BYSETPOS={positions}"
    await api.create(name="dense", schedule=rule)
    body = {"from": "1971-01-01T00:00:00Z", "dry_run": True}
    problem = await api.problem("POST", "/api/v1/jobs/dense/backfill", 422, json=body)
    assert problem["type"] == "/problems/costly-schedule"
    assert "to count the ticks of this range" in problem["detail"]


async def test_schedules_are_computed_by_one_thread_and_not_by_the_loops() -> None:
    found = await asyncio.gather(*(compute(threading.current_thread) for _ in range(20)))
    assert len(set(found)) == 1
    assert found[0] is not threading.current_thread()


ATTACKS: dict[str, list[tuple[str, Any]]] = {
    "twelve previews": [(PREVIEW, {"schedule": "0 0 1 1 *", "timezone": "Europe/Berlin", "count": 240})] * 12,
    "a hundred rules in a batch": [(BATCH, batch_of(NEVER, 100))],
    "five batches": [(BATCH, batch_of(RARE, 100))] * 5,
}


@pytest.mark.parametrize("attack", ATTACKS)
async def test_other_requests_are_answered_while_costly_schedules_wait_for_their_thread(
    api: ApiClient, attack: str
) -> None:
    """The API runs on this loop, as a node's does. How late its answers are is measured by `chaos/floods.py`."""
    release = threading.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(compute(release.wait))
        costly = [group.create_task(api.ask("POST", path, json=body)) for path, body in ATTACKS[attack]]
        try:
            await until(lambda: arithmetic._THREAD._work_queue.qsize() > 0, 10, "a costly request to reach the thread")
            for path in ("/livez", "/api/v1/jobs"):
                assert (await api.ask("GET", path)).status == 200
            await api.create(name="usual")
            assert not any(task.done() for task in costly)
        finally:
            release.set()
    assert {task.result().status for task in costly} <= {200, 422}
