"""Python functions as targets: where they run, what they are told, and effects that commit with their run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest

from detent import Detent, Run
from detent.errors import OwnershipLost, UsageError
from detent.node.session import Session
from detent.sdk.fields import schedule_of
from detent.settings.settings import Settings
from detent.store import Database, Store
from detent.store.effects import EffectPool
from detent.store.limits import STANDARD
from detent.targets.python import HandlerThread, PythonTargetRunner
from detent.worker.queues import book
from tests.support import factories
from tests.support.waiting import until


@pytest.fixture
async def serve(reach: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callable[[Detent], Any]]:
    """Run an app's functions in a session of this process. Nobody tells it of queues that a test adds."""
    monkeypatch.setattr(book, "READ_EVERY", 3.0)
    database = Database(**reach)
    await database.open()
    thread = HandlerThread(4)
    thread.start()
    effects = EffectPool(database.url, "detent", STANDARD, pooled=database.pooled)
    sessions: list[Session] = []

    async def start(app: Detent) -> Session:
        runner = PythonTargetRunner(app.functions, thread, lambda call: sessions[0].make_run(call, effects))
        session = Session(Store(database), Settings(), ("scheduler", "worker"), {"python": runner}, list(app.functions))
        await session.open()
        sessions.append(session)
        return session

    yield start
    for session in sessions:
        await session.close(1)
    await thread.run(effects.close())
    await thread.stop()
    await database.close()


async def due_job(look: Any, function: str, **fields: Any) -> int:
    document = {"schedule": "every 1h", "target": {"type": "python", "function": function}, "max_retries": 0, **fields}
    tick = await look.fetchval("SELECT date_trunc('milliseconds', now())")
    return await factories.add_job(look, tick, definition=document, needs=f"python:{function}")


async def outcome(look: Any, job: int) -> Any:
    # Nobody is told of a job that a test puts into the tables: the next sweep finds it.
    return await until(lambda: look.fetchrow("SELECT * FROM run_history WHERE job = $1", job), 30, "the run's end")


async def test_a_plain_function_runs_in_a_thread_and_its_result_is_kept(look: Any, serve: Any) -> None:
    app = Detent()
    threads: list[str] = []

    @app.function("plain")
    def plain(run: Run) -> dict[str, Any]:
        threads.append(threading.current_thread().name)
        return {"payload": run.payload, "attempt": run.attempt}

    job = await due_job(look, "plain", payload={"n": 1})
    await serve(app)
    row = await outcome(look, job)
    assert (row["status"], row["result"]) == (1, '{"payload":{"n":1},"attempt":1}')
    assert threads[0].startswith("detent-handler_")


async def test_what_a_handler_does_to_its_payload_is_not_seen_by_other_runs(look: Any, serve: Any) -> None:
    """Jobs that are alike share what was read of them, and so do the runs of one job."""
    app = Detent()

    @app.function("greedy")
    def greedy(run: Run) -> list[int]:
        taken: list[int] = run.payload["left"]
        before = list(taken)
        run.payload["left"].pop()
        assert len(run.payload["left"]) == len(before) - 1
        return before

    jobs = [await due_job(look, "greedy", payload={"left": [1, 2]}) for _ in range(3)]
    await serve(app)
    assert [(await outcome(look, job))["result"] for job in jobs] == ["[1,2]"] * 3


async def test_a_coroutine_that_blocks_its_loop_does_not_hold_up_the_scheduler(look: Any, serve: Any) -> None:
    app = Detent()
    blocked, release = threading.Event(), threading.Event()

    @app.function("blocks")
    async def blocks() -> None:
        blocked.set()
        release.wait(30)

    @app.function("plain")
    def plain() -> None:
        release.set()

    await due_job(look, "blocks")
    session = await serve(app)
    await until(blocked.is_set)
    assert session.membership.trusted
    release.set()


async def test_an_exception_is_a_failed_attempt_with_its_name_and_words(look: Any, serve: Any) -> None:
    app = Detent()

    @app.function("raises")
    async def raises() -> None:
        raise ValueError("no such\x00 customer")

    job = await due_job(look, "raises")
    await serve(app)
    assert (await outcome(look, job))["status"] == 2
    error = await look.fetchval("SELECT error FROM attempts WHERE job = $1", job)
    assert error == "ValueError: no such\N{REPLACEMENT CHARACTER} customer"


async def test_a_handler_that_exits_fails_alone(look: Any, serve: Any) -> None:
    app = Detent()

    @app.function("exits")
    async def exits() -> None:
        raise SystemExit(3)

    @app.function("works")
    async def works() -> str:
        return "still here"

    first = await due_job(look, "exits")
    await serve(app)
    assert (await outcome(look, first))["status"] == 2
    second = await due_job(look, "works")
    assert (await outcome(look, second))["result"] == '"still here"'


async def test_an_effect_and_the_success_of_its_run_commit_together(look: Any, serve: Any) -> None:
    await look.execute("CREATE TABLE public.payments (key text PRIMARY KEY, amount integer)")
    app = Detent()

    @app.function("pays")
    async def pays(run: Run) -> None:
        async with run.transaction() as connection:
            await connection.execute("INSERT INTO payments VALUES ($1, $2)", run.idempotency_key, 100)

    job = await due_job(look, "pays")
    await serve(app)
    assert (await outcome(look, job))["status"] == 1
    payment = await look.fetchrow("SELECT xmin::text, amount FROM public.payments")
    history = await look.fetchrow("SELECT xmin::text FROM run_history WHERE job = $1", job)
    assert (payment["amount"], payment["xmin"]) == (100, history["xmin"])


async def test_an_effect_that_finds_no_partition_of_history_makes_it_and_commits_with_the_next_try(
    look: Any, serve: Any
) -> None:
    await look.execute("CREATE TABLE public.payments (key text PRIMARY KEY)")
    app = Detent()

    @app.function("pays")
    async def pays(run: Run) -> None:
        async with run.transaction() as connection:
            await connection.execute("INSERT INTO payments VALUES ($1)", run.idempotency_key)

    await serve(app)
    for table in await look.fetch("SELECT name FROM history_bounds WHERE since <= now() AND now() < until"):
        await look.execute(f"DROP TABLE {table['name']}")
    job = await due_job(look, "pays", max_retries=1, retry_base_seconds=0)
    run = await outcome(look, job)
    assert run["status"] == 1 and run["attempt"] <= 2  # upkeep may have been there first
    assert await look.fetchval("SELECT count(*) FROM public.payments") == 1


async def test_an_effect_is_rolled_back_when_the_run_was_lost_meanwhile(look: Any, serve: Any) -> None:
    await look.execute("CREATE TABLE public.payments (key text PRIMARY KEY)")
    app = Detent()
    inside, go_on = threading.Event(), threading.Event()
    refused: list[BaseException] = []

    @app.function("pays")
    async def pays(run: Run) -> None:
        try:
            async with run.transaction() as connection:
                await connection.execute("INSERT INTO payments VALUES ($1)", run.idempotency_key)
                inside.set()
                await asyncio.to_thread(go_on.wait, 30)
        except OwnershipLost as error:
            refused.append(error)
            raise

    job = await due_job(look, "pays")
    await serve(app)
    await until(inside.is_set)
    await look.execute("UPDATE live_runs SET token = token + 1 WHERE job = $1", job)
    go_on.set()
    await until(lambda: refused)
    assert await look.fetchval("SELECT count(*) FROM public.payments") == 0
    assert await look.fetchval("SELECT count(*) FROM run_history") == 0


async def test_a_failing_transaction_leaves_nothing_behind_and_fails_the_run(look: Any, serve: Any) -> None:
    await look.execute("CREATE TABLE public.payments (key text PRIMARY KEY)")
    app = Detent()

    @app.function("pays")
    async def pays(run: Run) -> None:
        async with run.transaction() as connection:
            await connection.execute("INSERT INTO payments VALUES ('x')")
            raise RuntimeError("card refused")

    job = await due_job(look, "pays")
    await serve(app)
    assert (await outcome(look, job))["status"] == 2
    assert await look.fetchval("SELECT count(*) FROM public.payments") == 0


async def test_a_long_handler_can_ask_whether_to_go_on(look: Any, serve: Any) -> None:
    app = Detent()
    started = threading.Event()
    stopped: list[bool] = []

    @app.function("long")
    def long(run: Run) -> None:
        run.heartbeat()
        started.set()
        try:
            while True:
                threading.Event().wait(0.01)
                run.heartbeat()
        except OwnershipLost:
            stopped.append(True)

    job = await due_job(look, "long")
    session = await serve(app)
    await until(started.is_set)
    await look.execute("UPDATE live_runs SET cancel = true WHERE job = $1", job)
    session.worker.reconciler.loop.wake()
    await until(lambda: stopped)
    assert (await outcome(look, job))["status"] == 3


def test_a_job_needs_exactly_one_schedule() -> None:
    app = Detent()
    with pytest.raises(UsageError, match="exactly one of cron=, every=, rrule= and at=; 2 were given"):
        app.job(cron="* * * * *", every="5s")


def test_two_jobs_of_one_name_are_refused() -> None:
    app = Detent()

    @app.job(every="5s", name="twice")
    def first() -> None: ...

    with pytest.raises(UsageError, match="two jobs named 'twice'"):

        @app.job(every="5s", name="twice")
        def second() -> None: ...


async def test_a_result_that_is_too_long_is_cut_off_and_says_so(look: Any, serve: Any) -> None:
    app = Detent()

    @app.function("talks")
    def talks() -> str:
        return "x" * 100_000

    job = await due_job(look, "talks")
    await serve(app)
    result = (await outcome(look, job))["result"]
    assert result.startswith('{"truncated":true,"beginning":"\\"xxx')
    assert len(result) < 17_000


async def test_what_fails_after_the_commit_leaves_the_run_succeeded(look: Any, serve: Any) -> None:
    app = Detent()

    @app.function("fails late")
    async def fails_late(run: Run) -> None:
        async with run.transaction():
            pass
        raise RuntimeError("too late to matter")

    job = await due_job(look, "fails late")
    session = await serve(app)
    assert (await outcome(look, job))["status"] == 1
    await until(lambda: session.worker.free_capacity == 200)
    assert await look.fetchval("SELECT count(*) FROM attempts") == 0


def test_an_interval_is_registered_as_people_write_it() -> None:
    for length, text in ((timedelta(minutes=15), "15m"), (timedelta(minutes=90), "1h30m")):
        assert schedule_of({"every": length}) == {"every": text}
