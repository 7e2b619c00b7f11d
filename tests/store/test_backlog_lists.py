"""Lists and counts of runs include the backlog, and read a bounded part of it."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from detent.contract.run import Run
from detent.domain.identity import ON_DEMAND, RunKey, run_id
from detent.domain.states import RunStatus
from detent.store import Store, history
from tests.support import factories

NODE = 7
NOW = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
MINUTE = timedelta(minutes=1)


async def add_waiting(look: Any, job: int, at: datetime, serial: int, **columns: Any) -> RunKey:
    values = {
        "job": job,
        "scheduled_at": at,
        "not_before": at,
        "token": 1 << 22 | 1,
        "serial": ON_DEMAND + serial,
        "queue": 1,
        "revision": 1,
        "priority": 5,
        **columns,
    }
    places = ", ".join(f"${n}" for n in range(1, len(values) + 1))
    await look.execute(f"INSERT INTO backlog ({', '.join(values)}) VALUES ({places})", *values.values())
    return RunKey(job, at, ON_DEMAND + serial)


async def every_page(verbs: Store, limit: int, **filters: Any) -> list[Run]:
    found: list[Run] = []
    after = None
    for _ in range(1000):
        page, after = await verbs.runs.list(limit=limit, after=after, **filters)
        assert len(page) <= limit
        found += page
        if after is None:
            return found
    raise AssertionError("the pages do not end")


async def filled(look: Any, jobs: list[int]) -> dict[RunKey, str]:
    """Runs of every kind, some with equal times, in every table; each with its status."""
    chance = random.Random(19)
    expected: dict[RunKey, str] = {}
    for serial in range(120):
        job, at = chance.choice(jobs), NOW + chance.randrange(-8, 8) * MINUTE
        columns: dict[str, Any] = {"priority": chance.choice([-100, 5, 100]), "queue": chance.choice([1, 2])}
        status = "pending"
        match chance.randrange(5):
            case 0:
                columns |= {"not_before": at + chance.randrange(1, 20) * MINUTE, "attempt": 2}
                status = "retrying"
            case 1:
                columns |= {"keyed": True, "key": chance.choice("ab"), "parked": True}
            case 2:
                columns |= {"keyed": True, "key": chance.choice("ab")}
        expected[await add_waiting(look, job, at, serial, **columns)] = status
    for serial in range(20):
        key = RunKey(chance.choice(jobs), NOW + chance.randrange(-8, 8) * MINUTE, ON_DEMAND + 1000 + serial)
        await factories.add_live_run(
            look, key.job, key.scheduled_at, serial=key.serial, lane=key.serial, owner=NODE if serial % 2 else None
        )
        expected[key] = "running" if serial % 2 else "pending"
        key = key._replace(serial=key.serial + 1000)
        await look.execute(
            "INSERT INTO run_history (job, scheduled_at, token, finished_at, serial, revision, attempt, status)"
            " VALUES ($1, $2, 1, $2, $3, 1, 1, 1)", *key,
        )  # fmt: skip
        expected[key] = "succeeded"
    return expected


def newest_first(keys: Any) -> list[Any]:
    return [run_id(key) for key in sorted(keys, key=lambda key: (key.scheduled_at, key.job, key.serial), reverse=True)]


@pytest.mark.parametrize("limit", [5, 1000])
@pytest.mark.parametrize("read", [2, 2000], ids=["few are read", "many are read"])
@pytest.mark.parametrize("few", [0, 100], ids=["many jobs", "few jobs"])
async def test_every_run_is_listed_once_in_the_order_of_its_time_wherever_it_is(
    verbs: Store, look: Any, monkeypatch: pytest.MonkeyPatch, limit: int, read: int, few: int
) -> None:
    monkeypatch.setattr(history, "WAITING_READ", (read,))
    monkeypatch.setattr(history, "FEW_JOBS", few)
    jobs = [await factories.add_task(look, name=f"task-{n}") for n in range(3)]
    expected = await filled(look, jobs)
    other = await factories.add_task(look, name="other", tenant=await rival(verbs))
    await add_waiting(look, other, NOW, 5000)
    found = await every_page(verbs, limit)
    assert [run.id for run in found] == newest_first(expected)
    assert {run.id: run.status.value for run in found} == {run_id(key): status for key, status in expected.items()}


async def rival(verbs: Store) -> int:
    number = await verbs.tenants.number("rival")
    if number is None:
        await verbs.tenants.add("rival")
        number = await verbs.tenants.number("rival")
    assert number is not None
    return number


@pytest.mark.parametrize("read", [2, 2000], ids=["few are read", "many are read"])
async def test_runs_of_a_job_are_listed_by_status_and_time(
    verbs: Store, look: Any, monkeypatch: pytest.MonkeyPatch, read: int
) -> None:
    monkeypatch.setattr(history, "WAITING_READ", (read,))
    jobs = [await factories.add_task(look, name=f"task-{n}") for n in range(3)]
    expected = await filled(look, jobs)
    job_id = await look.fetchval("SELECT id FROM jobs WHERE job = $1", jobs[1])
    since, until = NOW - 3 * MINUTE, NOW + 3 * MINUTE
    for status in ("pending", "retrying", "running", "succeeded"):
        wanted = [key for key, found in expected.items() if found == status and key.job == jobs[1]]
        found = await every_page(verbs, 3, job=job_id, status=[RunStatus(status)])
        assert [run.id for run in found] == newest_first(wanted)
        wanted = [key for key in wanted if since <= key.scheduled_at <= until]
        found = await every_page(verbs, 3, job=job_id, status=[RunStatus(status)], since=since, until=until)
        assert [run.id for run in found] == newest_first(wanted)


async def test_a_run_that_waits_says_for_what(verbs: Store, look: Any) -> None:
    job = await factories.add_task(look, name="mail")
    later = NOW + timedelta(days=30)
    columns = {"keyed": True, "key": "c1", "parked": True, "payload": '{"n": 1}'}
    run = await verbs.runs.get(await add_waiting(look, job, later, 1, **columns))
    assert run is not None
    assert (run.status, run.reason) == (RunStatus.PENDING, "waiting for its concurrency key")
    assert (run.scheduled_at, run.not_before, run.concurrency_key, run.payload) == (later, later, "c1", {"n": 1})
    (listed,) = (await verbs.runs.list())[0]
    assert listed.reason == "waiting for its concurrency key"
