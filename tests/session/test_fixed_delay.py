"""Ticks that count from the end of the run before: however a run ends, and whatever dies, the next tick comes."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from detent.contract.tick import BackfillRequest
from detent.domain.job import JobSpec
from detent.domain.run import Call, Failed, Outcome, Succeeded
from detent.errors import Conflict, UsageError
from detent.jobs import JobOperations
from detent.jobs.audit import LedgerAudit
from detent.jobs.explain import TickExplainer
from detent.jobs.explanation import explain
from detent.store import Store
from tests.support.tenants import HTTP
from tests.support.waiting import until

DELAY = timedelta(seconds=1)


class Target:
    """Calls end when the test says so, and how."""

    def __init__(self) -> None:
        self.calls: list[datetime] = []
        self.gate = asyncio.Event()
        self.outcome: Outcome = Succeeded()

    async def __call__(self, call: Call) -> Outcome:
        self.calls.append(call.scheduled_at)
        await self.gate.wait()
        return self.outcome


async def add(store: Store, tenant: int = 1, **fields: Any) -> Any:
    document = {"schedule": {"every": "1s", "after": "finish"}, "target": HTTP, "name": "poll", **fields}
    (added,) = await JobOperations(store).registration.add([msgspec.convert(document, JobSpec)], tenant=tenant)
    return added


async def history(look: Any) -> list[Any]:
    found: list[Any] = await look.fetch("SELECT * FROM run_history ORDER BY scheduled_at, serial")
    return found


def after_each_end(runs: list[Any]) -> None:
    """Every tick is the end of the run before plus the delay, to the millisecond. A worker reports its end with its
    estimate of the server's clock, and a look may have found the run unfinished a moment later."""
    for before, run in itertools.pairwise(runs):
        wait = run["scheduled_at"] - before["finished_at"]
        assert timedelta(0) <= wait - DELAY < timedelta(milliseconds=300), wait


async def ended(look: Any, count: int) -> bool:
    return bool(await look.fetchval("SELECT count(*) >= $1 FROM run_history WHERE status IN (1, 2, 3)", count))


async def test_each_tick_is_one_delay_after_the_end_of_the_run_before(look: Any, store: Store, start: Any) -> None:
    async def slow(_call: Call) -> Outcome:
        await asyncio.sleep(0.3)  # how long a run takes
        return Succeeded()

    added = await add(store, max_runs=3)
    await start(slow)
    await until(lambda: ended(look, 3), 20)
    runs = await history(look)
    first = runs[0]["scheduled_at"] - added.created_at
    assert DELAY <= first < DELAY + timedelta(milliseconds=2)
    assert [run["status"] for run in runs] == [1, 1, 1]
    after_each_end(runs)
    now = await look.fetchval("SELECT now()")
    ((account,), _) = await LedgerAudit(store).audit((now - timedelta(hours=1), now))
    assert account.account.clean, account
    assert (account.account.expected, account.account.missing_count) == (3, 0)
    statuses = await LedgerAudit(store).ticks(added.id, now - timedelta(hours=1), now, 10)
    assert [tick.status for tick in statuses.ticks] == ["succeeded"] * 3


async def test_a_run_that_takes_longer_than_the_delay_is_waited_for(look: Any, store: Store, start: Any) -> None:
    target = Target()
    added = await add(store)
    await start(target)
    await until(lambda: target.calls)
    moved = await look.fetchval("SELECT next_tick FROM cursors")
    await until(lambda: look.fetchval("SELECT next_tick > $1 FROM cursors", moved + DELAY))  # two looks later
    assert len(target.calls) == 1
    story = await TickExplainer(store).story(added.id, "next")
    assert "at the earliest" in " ".join(explain(story.facts))
    assert not await look.fetchval("SELECT count(*) FROM run_history")
    target.gate.set()
    await until(lambda: len(target.calls) >= 3)
    runs = await history(look)
    after_each_end(runs)
    last = await TickExplainer(store).story(added.id, runs[0]["scheduled_at"].isoformat())
    assert "is a tick of 'poll'" in explain(last.facts)[0]
    assert "1 second after the end of the previous run" in explain(last.facts)[0].lower()


@pytest.mark.parametrize(
    "way",
    [
        *("dead", "cancelled", "given back"),
        *(pytest.param(way, marks=pytest.mark.long) for way in ("retried", "paused", "triggered")),
    ],
)
async def test_the_next_tick_counts_from_the_end_however_the_run_ended(
    way: str, look: Any, store: Store, start: Any
) -> None:
    target = Target()
    added = await add(store, max_retries=1, retry_base_seconds=0.1)
    lifecycle = JobOperations(store).lifecycle
    if way == "triggered":
        await lifecycle.trigger(added.id)
    session = await start(target)
    await until(lambda: target.calls)
    match way:
        case "dead" | "retried":
            target.outcome = Failed("no", retryable=way == "retried")
        case "cancelled":
            await lifecycle.cancel_runs(added.id)
            session.worker.reconciler.loop.wake()
            await until(lambda: ended(look, 1))
        case "given back":
            await session.close(0)
            await start(target)
            await until(lambda: len(target.calls) >= 2)
        case "paused":
            await lifecycle.pause(added.id)
            await lifecycle.resume(added.id)
    target.gate.set()
    await until(lambda: ended(look, 1))
    target.outcome = Succeeded()
    await until(lambda: ended(look, 3))
    runs = await history(look)
    after_each_end(runs)
    expected = {"dead": 2, "retried": 2, "cancelled": 3}
    assert runs[0]["status"] == expected.get(way, 1)
    assert all(run["reason"] != "overlap" for run in runs)


async def test_after_an_outage_there_is_nothing_to_catch_up(look: Any, store: Store, start: Any) -> None:
    """Down for three hours, far beyond any grace: the tick that was next runs, once, and then the delay counts."""
    await add(store)
    await look.execute(
        "UPDATE cursors SET next_tick = now() - interval '3 hours', fire_at = now() - interval '3 hours'"
    )
    await start()
    await until(lambda: ended(look, 2))
    runs = await history(look)
    assert {run["status"] for run in runs} == {1}
    after_each_end(runs)


async def test_a_locked_cursor_holds_up_no_other_job(look: Any, sql: Any, store: Store, start: Any) -> None:
    await add(store)
    await add(store, name="beside")
    await look.execute(  # so that a look has to move the cursor of the first
        "INSERT INTO run_history (job, scheduled_at, started_at, finished_at, serial, revision, status, token, node,"
        " attempt) SELECT job, now(), now(), now(), 0, 1, 3, 1 << 22 | 1, 1, 1 FROM jobs WHERE name = 'poll'"
    )

    async def runs(name: str) -> int:
        query = "SELECT count(*) FROM run_history JOIN jobs USING (job) WHERE name = $1 AND run_history.status = 1"
        count: int = await look.fetchval(query, name)
        return count

    with capture_logs() as logged:
        async with sql.transaction():
            await sql.execute("SELECT FROM cursors JOIN jobs USING (job) WHERE name = 'poll' FOR UPDATE OF cursors")
            await start()
            await until(lambda: at_least(runs("beside"), 3), 20)
            assert await runs("poll") == 0
        await until(lambda: at_least(runs("poll"), 1), 20)
    assert not [line for line in logged if line["event"].startswith("batch not fired")]


async def at_least(count: Awaitable[int], least: int) -> bool:
    return await count >= least


async def test_a_paused_job_has_no_tick_and_continues_one_delay_after_the_pause(
    look: Any, store: Store, start: Any
) -> None:
    added = await add(store, schedule={"every": "1h", "after": "finish"})
    lifecycle = JobOperations(store).lifecycle
    await lifecycle.pause(added.id)
    assert await look.fetchval("SELECT next_tick FROM cursors") is None
    resumed = await lifecycle.resume(added.id, on_resume="all")
    now = await look.fetchval("SELECT now()")
    assert resumed.next_run_at is not None
    assert timedelta(minutes=59) < resumed.next_run_at - now <= timedelta(hours=1, milliseconds=1)
    assert await history(look) == []


async def test_the_ticks_of_a_suspended_tenant_are_skipped_one_by_one(look: Any, store: Store, start: Any) -> None:
    await store.tenants.add("acme")
    tenant = await store.tenants.number("acme")
    assert tenant is not None
    await add(store, tenant=tenant)
    await store.tenant_lifecycle.suspend("acme", None, "ada")
    await start()
    await until(lambda: look.fetchval("SELECT count(*) >= 2 FROM run_history WHERE status = 4"), 20)
    assert {run["reason"] for run in await history(look)} == {"tenant suspended"}


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"concurrent_policy": "QUEUE"}, "/concurrent_policy"),
        ({"concurrent_policy": "ALLOW"}, "/concurrent_policy"),
        ({"missed_window": "RUN_ALL"}, "/missed_window"),
        ({"misfire_grace_seconds": 60}, "/misfire_grace_seconds"),
        ({"jitter_seconds": 0.1}, "/jitter_seconds"),
        ({"schedule": {"every": "1s", "after": "start"}}, "/schedule/after"),
        ({"schedule": {"every": "1s", "after": "finish", "anchor": "2030-01-01T00:00:00Z"}}, "/schedule/anchor"),
        ({"schedule": {"every": "1s", "after": "finish", "exclude": ["2030-01-01"]}}, "/schedule"),
        ({"schedule": {"cron": "0 9 * * *", "after": "finish"}}, "/schedule/after"),
    ],
)
async def test_what_makes_no_sense_with_a_fixed_delay_is_refused(
    store: Store, fields: dict[str, Any], pointer: str
) -> None:
    with pytest.raises(UsageError) as refused:
        await add(store, **fields)
    assert refused.value.pointer == pointer
    assert "remove" in refused.value.message or "take" in refused.value.message or ";" in refused.value.message


async def test_a_backfill_and_a_skip_of_ticks_that_nobody_knows_are_refused(look: Any, store: Store) -> None:
    added = await add(store)
    now = await look.fetchval("SELECT now()")
    with pytest.raises(Conflict, match="depend on the end of its runs"):
        await JobOperations(store).lifecycle.skip(added.id, now + timedelta(hours=1))
    with pytest.raises(Conflict, match="depend on the end of its runs"):
        await JobOperations(store).backfills.add(added.id, BackfillRequest(from_=now - timedelta(hours=1)))
