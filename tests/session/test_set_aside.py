"""A job whose tick cannot be fired is not silent: every node says so, and it is tried again by itself."""

from __future__ import annotations

from typing import Any

import pytest

from detent.cluster.operations import ClusterOperations
from detent.runtime.clock import monotonic
from detent.scheduler import scheduler as sweeping
from detent.store import Store
from tests.support import factories
from tests.support.waiting import until

UNREADABLE = '{"kind": "lunar"}'


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep offers such a job again; these tests do not wait ten seconds for it."""
    monkeypatch.setattr(sweeping, "SWEEP_EVERY", 0.3)


async def soon(look: Any, seconds: float = 0.3) -> Any:
    return await look.fetchval("SELECT date_trunc('milliseconds', now() + make_interval(secs => $1))", seconds)


async def unreadable_job(look: Any) -> tuple[int, str]:
    job = await factories.add_job(look, await soon(look), every="every 7h", name="silent")
    stored = await look.fetchval("SELECT stored FROM schedules JOIN cursors USING (schedule) WHERE job = $1", job)
    await look.execute(
        "UPDATE schedules SET stored = $2 WHERE schedule = (SELECT schedule FROM cursors WHERE job = $1)",
        job,
        UNREADABLE,
    )
    return job, stored


async def test_a_job_that_is_set_aside_fires_by_itself_once_it_can(
    look: Any, start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from detent.scheduler import set_aside

    monkeypatch.setattr(set_aside, "FIRST_WAIT", 0.2)
    job, stored = await unreadable_job(look)
    await start()
    why = await until(
        lambda: look.fetchval("SELECT why FROM set_aside_jobs WHERE job = $1", job), what="it is on record"
    )
    assert "A stored schedule of the kind 'lunar'" in why
    await look.execute(
        "UPDATE schedules SET stored = $2 WHERE schedule = (SELECT schedule FROM cursors WHERE job = $1)", job, stored
    )
    await until(lambda: look.fetchval("SELECT count(*) FROM run_history WHERE job = $1", job), what="its run")
    assert await look.fetchval("SELECT count(*) FROM set_aside_jobs") == 0


async def test_every_process_says_that_a_job_is_set_aside(look: Any, store: Store, start: Any) -> None:
    from detent.node.readiness import Readiness

    job, _ = await unreadable_job(look)
    session = await start()
    await until(lambda: look.fetchval("SELECT count(*) FROM set_aside_jobs"), what="it is on record")
    assert (await store.signals.read()).jobs_set_aside == 1
    checks = await Readiness(("api",), lambda: store, lambda: None, lambda: False)()
    assert (checks["jobs"].ok, checks["jobs"].needed) == (False, False)
    assert checks["jobs"].why.startswith("1 job is set aside")
    cluster = await ClusterOperations(store).describe(operator=True)
    assert any("1 job is set aside" in problem for problem in cluster.problems)
    ((name, _, why),) = [each[1:4] for each in await store.set_aside.list(10)]
    assert (name, "lunar" in why) == ("silent", True)
    await look.execute("UPDATE cursors SET generation = generation + 1 WHERE job = $1", job)
    assert (await store.signals.read()).jobs_set_aside == 0  # until it is tried again, as it is now
    await until(lambda: look.fetchval("SELECT count(*) FROM set_aside_jobs"), what="the changed job is set aside")
    assert len(session.scheduler.aside) == 1


async def test_a_tick_that_the_database_refuses_is_set_aside_and_its_neighbours_fire(look: Any, start: Any) -> None:
    await look.execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE check_violation USING MESSAGE = 'no room for it'; END $$"
    )
    at = await soon(look)
    bad = await factories.add_job(look, at, name="refused")
    good = await factories.add_job(look, at, name="fine")
    await look.execute(
        f"CREATE TRIGGER refuse BEFORE INSERT ON live_runs FOR EACH ROW WHEN (NEW.job = {bad})"
        " EXECUTE FUNCTION refuse()"
    )
    await start()
    await until(lambda: look.fetchval("SELECT count(*) FROM run_history WHERE job = $1", good), what="the neighbour")
    why = await until(lambda: look.fetchval("SELECT why FROM set_aside_jobs WHERE job = $1", bad), what="the record")
    assert "no room for it" in why


async def test_a_set_aside_tick_is_retried_less_and_less_often_and_dropped_when_not_offered_again(
    look: Any, store: Store, start: Any
) -> None:
    from detent.scheduler.set_aside import FIRST_WAIT, LONGEST_WAIT, SetAside

    job = await factories.add_job(look, await soon(look, 3600))
    (cursor,) = await store.cursors.load([job])
    aside = SetAside(store, (await start()).membership)
    now = monotonic()
    waits = []
    for _ in range(6):
        aside.add(cursor, ValueError("no"), now=now)
        assert aside.holds(cursor, now=now)
        waits.append(next(wait for wait in range(10_000) if not aside.holds(cursor, now=now + wait)))
        now += waits[-1]
        assert not aside.holds(cursor, now=now)
    assert waits[:2] == [FIRST_WAIT, 2 * FIRST_WAIT]
    assert max(waits) == LONGEST_WAIT
    assert not aside.holds(cursor._replace(generation=cursor.generation + 1), now=now)
    aside.add(cursor, ValueError("no"), now=now)
    aside.drop_old(now + 10 * LONGEST_WAIT)
    assert len(aside) == 0
