"""Sessions whose only way to the database is a pooler: what is registered fires, runs, retries, ends, changes hands."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from detent import Detent, Run
from detent.api import pull_waiters
from detent.api.pull_waiters import ClaimTerms, PullWaiters
from detent.domain.identity import PARTITIONS
from detent.domain.job import HttpTarget, JobSpec, PythonTarget
from detent.domain.run import Call, Failed, Outcome, Succeeded
from detent.jobs import JobOperations
from detent.node.session import Session
from detent.scheduler import scheduler
from detent.settings.settings import Settings
from detent.store import Store
from detent.store.effects import EffectPool
from detent.store.feed import Feed
from detent.store.limits import STANDARD
from detent.store.pull import Wanted
from detent.targets.python import HandlerThread, PythonTargetRunner
from tests.support.pgbouncer import PgBouncer
from tests.support.waiting import until

# The contract and the connections are in the short profile; whole sessions take their time.
pytestmark = pytest.mark.long

HTTP = HttpTarget(url="http://127.0.0.1:9/")
TTL = 1.0


def spec(**fields: Any) -> JobSpec:
    return JobSpec(**{"name": "job", "schedule": "every 1h", "target": HTTP, "retry_base_seconds": 0.0, **fields})


async def soon(look: Any, seconds: float = 2.0) -> dict[str, str]:
    at = await look.fetchval("SELECT date_trunc('milliseconds', now() + make_interval(secs => $1))", seconds)
    return {"at": at.isoformat()}


async def finished(look: Any, count: int = 1) -> list[Any]:
    async def rows() -> list[Any] | None:
        found = await look.fetch("SELECT * FROM run_history ORDER BY scheduled_at, serial")
        return found if len(found) >= count else None

    return list(await until(rows, 20, "finished runs"))


async def test_a_job_that_is_registered_is_found_by_looking_into_the_feed(
    look: Any, store: Store, start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "SWEEP_EVERY", 3600.0)  # nothing but the feed can tell of it
    session = await start()
    await until(lambda: len(session.leadership.terms) == PARTITIONS)
    await until(lambda: session.scheduler._sweep_next > asyncio.get_running_loop().time() + 60, what="the first sweep")
    await JobOperations(store).registration.add([spec(schedule=await soon(look))])
    (run,) = await finished(look)
    assert (run["status"], run["attempt"]) == (1, 1)


async def test_a_node_behind_a_pooler_reads_the_feed_and_does_not_listen(look: Any, start: Any) -> None:
    session = await start()
    assert isinstance(session.hints._hearing, Feed)
    await until(lambda: look.fetchval("SELECT feed_until > now() FROM cluster"), what="the node to read the feed")
    assert await look.fetchval("SELECT count(*) FROM pg_stat_activity WHERE query ILIKE 'LISTEN%'") == 0


async def test_a_run_that_fails_is_tried_again_under_a_higher_token(look: Any, store: Store, start: Any) -> None:
    calls: list[Call] = []

    async def fails_twice(call: Call) -> Outcome:
        calls.append(call)
        return Failed("not yet") if call.attempt < 3 else Succeeded()

    await start(fails_twice)
    (job,) = await JobOperations(store).registration.add([spec(max_retries=3)])
    await JobOperations(store).lifecycle.trigger(job.id)
    (run,) = await finished(look)
    assert (run["status"], run["attempt"]) == (1, 3)
    assert [call.token for call in calls] == sorted({call.token for call in calls})


async def test_a_run_is_cancelled_while_it_runs(look: Any, store: Store, start: Any) -> None:
    started = asyncio.Event()

    async def hangs(_call: Call) -> Outcome:
        started.set()
        await asyncio.Event().wait()
        return Succeeded()

    await start(hangs)
    (job,) = await JobOperations(store).registration.add([spec()])
    key = await JobOperations(store).lifecycle.trigger(job.id)
    await asyncio.wait_for(started.wait(), 10)
    await JobOperations(store).runs.cancel(key)
    (run,) = await finished(look)
    assert (run["status"], run["reason"]) == (3, "cancelled while it ran")


async def test_what_one_session_led_and_held_is_taken_over_by_another(look: Any, store: Store, start: Any) -> None:
    calls: list[Call] = []
    hanging = asyncio.Event()

    async def hangs_at_first(call: Call) -> Outcome:
        calls.append(call)
        if len(calls) == 1:
            hanging.set()
            await asyncio.Event().wait()
        return Succeeded()

    first = await start(hangs_at_first, lease_ttl_seconds=TTL)
    (job,) = await JobOperations(store).registration.add([spec(max_retries=3)])
    await JobOperations(store).lifecycle.trigger(job.id)
    await asyncio.wait_for(hanging.wait(), 10)
    second = await start(hangs_at_first, lease_ttl_seconds=TTL)
    await until(lambda: first.leadership.terms and second.leadership.terms, 20, "the partitions to be shared")
    await first.abandon()
    await until(lambda: len(second.leadership.terms) == PARTITIONS, 20, "all partitions to be taken over")
    (run,) = await finished(look)
    assert run["status"] == 1
    assert calls[0].token < calls[1].token


async def test_a_session_outlives_a_restart_of_the_pooler(
    look: Any, store: Store, start: Any, pgbouncer: PgBouncer
) -> None:
    session = await start()
    await JobOperations(store).registration.add(
        [spec(name=f"job-{number}", schedule="every 1s") for number in range(5)]
    )
    for round_ in (1, 2):
        await finished(look, 10 * round_)
        await asyncio.to_thread(pgbouncer.restart)
    before = await look.fetchval("SELECT count(*) FROM run_history")
    runs = await finished(look, before + 10)
    assert session.membership.trusted
    assert {run["status"] for run in runs} == {1}
    ticks = Counter((run["job"], run["scheduled_at"]) for run in runs)
    assert set(ticks.values()) == {1}
    await _no_gaps(look)


async def _no_gaps(look: Any) -> None:
    """Every second between the first and the last run of a job has its run, finished or under way."""
    gaps = await look.fetch(
        "SELECT job, scheduled_at FROM (SELECT job, scheduled_at, lag(scheduled_at) OVER (PARTITION BY job ORDER BY "
        "scheduled_at) AS before FROM runs) r WHERE scheduled_at <> before + interval '1 second'"
    )
    assert gaps == []


@pytest.fixture
async def effects(pooled_url: str) -> AsyncIterator[EffectPool]:
    thread = HandlerThread(4)
    thread.start()
    pool = EffectPool(pooled_url, "detent", STANDARD, pooled=True)
    pool.thread = thread  # type: ignore[attr-defined]  # for the test only
    yield pool
    await thread.run(pool.close())
    await thread.stop()


async def handled(look: Any, store: Store, effects: Any, app: Detent) -> Any:
    """The end of a run of the app's only function."""
    (name,) = app.functions
    runner = PythonTargetRunner(app.functions, effects.thread, lambda call: session.make_run(call, effects))
    session = Session(store, Settings(), ("scheduler", "worker"), {"python": runner}, [name])
    await session.open()
    try:
        (job,) = await JobOperations(store).registration.add([spec(target=PythonTarget(function=name), max_retries=0)])
        await JobOperations(store).lifecycle.trigger(job.id)
        return (await finished(look))[0]
    finally:
        await session.close(1)


async def test_a_handlers_effects_commit_with_its_run_and_see_its_own_tables(
    look: Any, store: Store, effects: Any
) -> None:
    await look.execute("CREATE TABLE public.payments (key text)")
    app = Detent()

    @app.function("pays")
    async def pays(run: Run) -> None:
        async with run.transaction() as connection:
            await connection.execute("INSERT INTO payments VALUES ($1)", run.idempotency_key)
            rows = [row async for row in connection.cursor("SELECT * FROM generate_series(1, 100)")]
            assert len(rows) == 100
            assert await connection.fetchval("SHOW search_path") == '"$user", public'
            assert await connection.fetchval("SHOW plan_cache_mode") == "auto"

    run = await handled(look, store, effects, app)
    assert run["status"] == 1, await look.fetchval("SELECT error FROM attempts")
    (effect,) = await look.fetch("SELECT xmin::text FROM public.payments")
    assert effect["xmin"] == await look.fetchval("SELECT xmin::text FROM run_history")


async def test_a_handler_sees_the_search_path_that_the_database_gives_to_all(
    look: Any, store: Store, effects: Any, pgbouncer: PgBouncer, database_url: str
) -> None:
    name = await look.fetchval("SELECT current_database()")
    await look.execute("CREATE SCHEMA shop; CREATE TABLE shop.orders (number integer)")
    await look.execute(f"ALTER DATABASE {name} SET search_path = shop, public")
    await pgbouncer.reconnect(database_url)
    app = Detent()

    @app.function("orders")
    async def orders(run: Run) -> None:
        async with run.transaction() as connection:
            await connection.execute("INSERT INTO orders VALUES (1)")

    run = await handled(look, store, effects, app)
    assert run["status"] == 1, await look.fetchval("SELECT error FROM attempts")


async def test_a_worker_that_pulls_is_served_when_the_feed_says_so(
    look: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull_waiters, "POLL_EVERY", 3600.0)  # nothing but the feed can tell of it
    (job,) = await JobOperations(store).registration.add([spec(queue="mail")])
    window = PullWaiters(store, max_waiting=1)
    asking = ClaimTerms(1, "js-1", Wanted("mail", ("", "task:"), False), 1, timedelta(seconds=30))
    try:
        hung_up: Any = asyncio.Event().wait
        waiting = asyncio.create_task(window.claim(asking, 20, hung_up))
        await until(
            lambda: look.fetchval("SELECT feed_until > now() FROM cluster"), what="the waiters to read the feed"
        )
        key = await JobOperations(store).lifecycle.trigger(job.id)
        (run,) = await waiting
        assert run.claim.key == key
    finally:
        await window.close()


async def test_steps_and_effects_of_a_handler_go_through_the_pooler(look: Any, store: Store, effects: Any) -> None:
    await look.execute("CREATE TABLE public.payments (key text)")
    app = Detent()

    @app.function("pays")
    async def pays(run: Run) -> list[object]:
        firsts = []
        for _ in range(2):
            async with run.once("invoice-42") as effect:
                firsts.append(effect.first)
                if effect.first:
                    await effect.connection.execute("INSERT INTO payments VALUES ($1)", run.id)
                    assert await effect.connection.fetchval("SHOW search_path") == '"$user", public'
        return [*firsts, await run.step("count", lambda: 7)]

    run = await handled(look, store, effects, app)
    assert run["result"] == "[true,false,7]", await look.fetchval("SELECT error FROM attempts")
    assert await look.fetchval("SELECT count(*) FROM public.payments") == 1
    assert await look.fetchval("SELECT name || result FROM run_steps") == "count7"
