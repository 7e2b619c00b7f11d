"""Schedules that cost much: refused after a number of steps, with a sentence, and never on the loop that fires."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from detent.domain.schedule import Schedule, ScheduleError
from detent.domain.schedule.explain import explain_text
from detent.domain.schedule.steps import BATCH_STEPS, QUESTION_STEPS, STEPS_PER_ROW, CostlySchedule, Steps
from detent.jobs.bulk import CONCURRENT_CHANGES
from detent.runtime import arithmetic
from detent.runtime.arithmetic import compute
from tests.api.api_client import HTTP, ApiClient
from tests.api.api_server import Readiness, serving
from tests.support import factories
from tests.support.waiting import until

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
PREVIEW = "/api/v1/schedules/preview"
BATCH = "/api/v1/jobs/batch"
UPSERT = f"{BATCH}?mode=upsert"
BULK = "/api/v1/bulk"
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
    dates = ",".join(f"{NOW + timedelta(days=index):%Y%m%d}T000000" for index in range(1_000))
    for text in (f"FREQ=YEARLY;BYDAY={ordinals}", f"FREQ=MONTHLY;BYDAY={ordinals}", f"FREQ=DAILY\nEXDATE:{dates}"):
        assert cost(text) < QUESTION_STEPS / 3


@pytest.mark.parametrize("days", ["30 2 1#5", "31 4 *", "31 2,4,6,9,11 5L"])
def test_a_cron_expression_that_matches_no_day_is_refused(days: str) -> None:
    with pytest.raises(ScheduleError, match="asks for a day that no year has"):
        Schedule.parse(f"0 0 {days}", day_match="and")


def test_a_rule_that_excludes_its_far_dates_is_refused_although_its_first_tick_is_near() -> None:
    """Its second tick is looked for by the loop that fires, through all the centuries whose dates are excluded."""
    rule = "DTSTART:20261116T090000\nRRULE:FREQ=MINUTELY;INTERVAL=9973;BYHOUR=9;BYMINUTE=0"
    assert cost(rule) < QUESTION_STEPS / 2
    ticks = Schedule.parse(rule).between(NOW, NOW + timedelta(days=365 * 100), 10)
    assert len(ticks) == 4
    dates = ",".join(f"{tick:%Y%m%dT%H%M%S}" for tick in ticks[1:])
    with pytest.raises(CostlySchedule):
        cost(f"{rule}\nEXDATE:{dates}")


def test_each_value_of_a_rule_costs_a_step_in_every_kind_of_year() -> None:
    spent = []
    for days in ("40", ",".join(map(str, range(1, 367)))):
        steps = Steps()
        with pytest.raises(ScheduleError, match="never comes"):
            Schedule.parse(f"FREQ=YEARLY;BYMONTH=2;BYWEEKNO=40;BYYEARDAY={days}", anchor=NOW, steps=steps)
        spent.append(steps.spent)
    assert spent[1] > spent[0] + 14 * 365


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


async def add_costly_jobs(api: ApiClient, count: int) -> list[dict[str, Any]]:
    """Jobs that were registered a few at a time, as a patient client may do."""
    rows = batch_of(RARE, count)
    for start in range(0, count, 3):
        await api.good("POST", BATCH, json=rows[start : start + 3])
    return rows


@pytest.mark.parametrize("action", ["resume", "delete"])
async def test_a_bulk_change_of_costly_jobs_is_made_in_smaller_chunks_and_to_all_of_them(
    api: ApiClient, action: str
) -> None:
    await add_costly_jobs(api, 30)
    await api.good("POST", BULK, json={"action": "pause", "filter": "name:*"})
    chunks: list[int] = []
    cursor = None
    while not chunks or cursor is not None:
        answer = await api.good("POST", BULK, json={"action": action, "filter": "name:*", "cursor": cursor})
        assert answer["changed"] == answer["matched"]
        chunks.append(answer["changed"])
        cursor = answer["next_cursor"]
    assert sum(chunks) == 30
    affordable = (BATCH_STEPS + STEPS_PER_ROW * 30) // cost(batch_of(RARE, 1)[0]["schedule"])
    assert chunks[0] <= affordable + CONCURRENT_CHANGES < 30
    assert (await api.good("POST", BULK, json={"action": action, "filter": "name:*"}))["matched"] == 0


async def test_a_batch_of_many_costly_pauses_is_refused_and_parts_of_it_are_not(api: ApiClient) -> None:
    rows = await add_costly_jobs(api, 30)
    await api.good("POST", BULK, json={"action": "pause", "filter": "name:*"})
    changed = [{**row, "schedule": "every 1h"} for row in rows]
    problem = await api.problem("POST", UPSERT, 422, json=changed)
    assert problem["type"] == "/problems/costly-schedule"
    assert problem["detail"].endswith("needs more than 65,000 steps: send the batch in parts.")
    assert (await api.good("POST", UPSERT, json=changed[:1]))["updated"] == 1
    assert (await api.good("POST", UPSERT, json=changed[1:4]))["updated"] == 3


async def test_each_job_of_a_batch_that_changes_schedules_has_the_steps_of_one(api: ApiClient) -> None:
    """Not what the jobs before it have left of them: finding a tick in five years costs some 600 steps."""
    rows = [{"name": f"n{number}", "schedule": "every 1h", "target": HTTP} for number in range(100)]
    await api.good("POST", BATCH, json=rows)
    year = datetime.now(UTC).year + 5
    changed = [{**row, "schedule": f"0 {number % 60} 9 1 6 * {year}"} for number, row in enumerate(rows)]
    assert (await api.good("POST", UPSERT, json=changed))["updated"] == 100


async def test_a_page_of_long_rules_is_read_by_that_thread_within_the_steps_of_a_batch(
    api: ApiClient, look: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    dates = ",".join(f"{NOW + timedelta(days=index):%Y%m%d}T090000" for index in range(1_000))
    for number in range(30):
        definition = {
            "schedule": f"FREQ=DAILY;BYHOUR=9\nEXDATE:{dates}" if number < 29 else "FREQ=DAILY",
            "target": HTTP,
        }
        await factories.add_job(look, None, definition=definition)
    threads = spending_threads(monkeypatch)
    page = await api.good("GET", "/api/v1/jobs?limit=100")
    described = Counter(job["description"] for job in page["items"])
    long = described["A long recurrence rule"]
    assert 10 < long < 30
    assert described == {
        "Every day at 00:00": 1,
        "Every day at 09:00, except 1,000 dates": 29 - long,
        "A long recurrence rule": long,
    }
    assert threading.main_thread() not in threads


async def test_schedules_are_computed_by_one_thread_and_not_by_the_loops() -> None:
    found = await asyncio.gather(*(compute(threading.current_thread) for _ in range(20)))
    assert len(set(found)) == 1
    assert found[0] is not threading.current_thread()


ATTACKS: dict[str, list[tuple[str, Any]]] = {
    "twelve previews": [(PREVIEW, {"schedule": "0 0 1 1 *", "timezone": "Europe/Berlin", "count": 240})] * 12,
    "a hundred rules in a batch": [(BATCH, batch_of(NEVER, 100))],
    "five batches": [(BATCH, batch_of(RARE, 100))] * 5,
}


def spending_threads(monkeypatch: pytest.MonkeyPatch) -> set[threading.Thread]:
    """The threads that take steps from now on."""
    threads: set[threading.Thread] = set()
    spend = Steps.spend

    def watched(steps: Steps, number: int = 1) -> None:
        threads.add(threading.current_thread())
        spend(steps, number)

    monkeypatch.setattr(Steps, "spend", watched)
    return threads


@pytest.mark.parametrize("attack", ATTACKS)
async def test_no_step_of_an_attack_is_taken_by_the_loop_that_fires(
    api: ApiClient, attack: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API runs on this loop, as a node's does. How late a tick is under such an attack is a scenario of chaos/."""
    threads = spending_threads(monkeypatch)
    await asyncio.gather(*(api.ask("POST", path, json=body) for path, body in ATTACKS[attack]))
    assert len(threads) == 1
    assert threading.main_thread() not in threads


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
