"""A run that waits for the one before it (QUEUE) must not be forgotten when both meet: the fire that makes it wait
commits just after the settle of the one before has looked for runs that wait."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from detent.domain.registration import WAITING_LANES
from detent.domain.run import Call, Outcome, Succeeded
from detent.store import Store
from detent.upkeep import housekeeping
from detent.worker import promotion
from tests.support import factories
from tests.support.waiting import until

QUEUE = {
    "schedule": "every 1h",
    "target": {"type": "http", "url": "http://127.0.0.1:9/"},
    "concurrent_policy": "QUEUE",
}
# The commit of whatever inserts a waiting run is held until the gate opens.
GATE = (
    "CREATE TABLE gate (held boolean NOT NULL)",
    "INSERT INTO gate VALUES (true)",
    "CREATE FUNCTION hold_commit() RETURNS trigger LANGUAGE plpgsql AS $$"
    " BEGIN WHILE (SELECT held FROM gate) LOOP PERFORM pg_sleep(0.01); END LOOP; RETURN NULL; END $$",
    "CREATE CONSTRAINT TRIGGER held AFTER INSERT ON live_runs DEFERRABLE INITIALLY DEFERRED"
    " FOR EACH ROW WHEN (NEW.lane < 0) EXECUTE FUNCTION hold_commit()",
)
HELD = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()"
TICK_NOW = (
    "UPDATE cursors SET generation = generation + 1, next_tick = t, fire_at = t"
    " FROM (SELECT date_trunc('milliseconds', now()) AS t) AS now WHERE job = $1"
)


async def test_a_run_that_begins_to_wait_while_the_one_before_ends_is_promoted(
    look: Any, store: Store, start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "UPKEEP_EVERY", 600.0)  # the looks now and then are not what is tested
    monkeypatch.setattr(promotion, "CHECK_EVERY", 600.0)
    for statement in GATE:
        await look.execute(statement)
    first_may_end, looked = asyncio.Event(), asyncio.Event()
    calls: list[Call] = []

    async def hold_first(call: Call) -> Outcome:
        calls.append(call)
        if len(calls) == 1:
            await first_may_end.wait()
        return Succeeded()

    promote = store.live_runs.promote

    async def noting(jobs: Sequence[int] | None = None) -> bool:
        found = await promote(jobs)
        if first_may_end.is_set() and jobs is not None:
            looked.set()
        return found

    monkeypatch.setattr(store.live_runs, "promote", noting)
    job = await factories.add_job(look, None, definition=QUEUE, lanes=WAITING_LANES["QUEUE"])
    session = await start(hold_first)

    async def tick_now() -> None:
        await look.execute(TICK_NOW, job)
        session.scheduler.jobs_changed({job})

    await tick_now()
    await until(lambda: len(calls) == 1, 20, "the first run")
    await tick_now()
    await until(lambda: look.fetchval(HELD), 20, "the second tick to be fired, but not committed")
    first_may_end.set()
    await asyncio.wait_for(looked.wait(), 10)
    await look.execute("UPDATE gate SET held = false")
    await until(lambda: len(calls) == 2, 5, "the second run, which nothing is in the way of")
