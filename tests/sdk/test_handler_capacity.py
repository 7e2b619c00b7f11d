"""Handlers that block: what they may delay, and what becomes of runs that could not be called meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from detent import Detent, Run
from detent.domain.job import PythonTarget
from detent.domain.run import Call, Failed, Succeeded
from detent.node.readiness import _of_membership
from detent.node.session import Session
from detent.settings.settings import Settings
from detent.store import Database, Store
from detent.store.effects import EffectPool
from detent.store.limits import STANDARD
from detent.targets.python import HandlerThread, PythonTargetRunner
from detent.worker.queues import book
from tests.support import factories
from tests.support.waiting import until

THREADS = 2
BEGIN_WITHIN = 0.05


@pytest.fixture
async def serve(reach: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callable[[Detent], Any]]:
    """A session with two threads for plain functions, in which a call may wait only for a moment."""
    monkeypatch.setattr(book, "READ_EVERY", 1.0)
    database = Database(**reach)
    await database.open()
    thread = HandlerThread(THREADS)
    thread.start()
    effects = EffectPool(database.url, "detent", STANDARD, pooled=database.pooled)
    sessions: list[Session] = []

    async def start(app: Detent) -> Session:
        runner = PythonTargetRunner(
            app.functions,
            thread,
            lambda call: sessions[0].make_run(call, effects),
            begin_within=BEGIN_WITHIN,
        )
        session = Session(
            Store(database), Settings(), ("scheduler", "worker"), {"python": runner}, list(app.functions),
            capacity=runner.capacity,
        )  # fmt: skip
        await session.open()
        sessions.append(session)
        return session

    yield start
    for session in sessions:
        await session.close(1)
    await thread.stop()
    await database.close()


async def due_job(look: Any, function: str, **fields: Any) -> int:
    document = {"schedule": "every 1h", "target": {"type": "python", "function": function}, "max_retries": 0, **fields}
    tick = await look.fetchval("SELECT date_trunc('milliseconds', now())")
    return await factories.add_job(look, tick, definition=document, needs=f"python:{function}")


async def outcome(look: Any, job: int) -> Any:
    return await until(lambda: look.fetchrow("SELECT * FROM run_history WHERE job = $1", job), 30, "the run's end")


async def given_back(session: Session, look: Any, job: int) -> int:
    """The token of a run that waits in its queue because this node could not call it."""
    await until(session.capacity.shortages)
    found = "SELECT token FROM live_runs WHERE job = $1 AND owner IS NULL"
    row = await until(lambda: look.fetchrow(found, job), 30, "the run given back")
    token: int = row["token"]
    return token


class Slow:
    """A model whose text and JSON take until the test has seen that it is asked for."""

    __pydantic_serializer__ = None

    def __init__(self) -> None:
        self.asked, self.answer = threading.Event(), threading.Event()
        self.threads: list[str] = []

    def __str__(self) -> str:
        self.threads.append(threading.current_thread().name)
        self.asked.set()
        self.answer.wait(5)
        return "slow"

    def model_dump_json(self) -> str:
        return f'"{self}"'


async def test_the_text_of_a_result_is_made_where_its_handler_ran(look: Any, serve: Any) -> None:
    app, slow = Detent(), Slow()

    @app.function("plain")
    def plain() -> Slow:
        return slow

    job = await due_job(look, "plain")
    await serve(app)
    await until(slow.asked.is_set)
    slow.answer.set()
    row = await outcome(look, job)
    assert (row["status"], row["result"]) == (1, '"slow"')
    assert all(name.startswith("detent-handler_") for name in slow.threads)


async def test_the_text_of_a_coroutines_result_is_made_on_the_loop_of_handlers(look: Any, serve: Any) -> None:
    app, slow = Detent(), Slow()

    @app.function("coroutine")
    async def coroutine() -> Slow:
        return slow

    job = await due_job(look, "coroutine")
    await serve(app)
    await until(slow.asked.is_set)
    slow.answer.set()
    assert (await outcome(look, job))["result"] == '"slow"'
    assert set(slow.threads) == {"detent-handlers"}


@pytest.mark.parametrize("kind", ["plain", "coroutine"])
async def test_the_text_of_an_error_is_made_where_its_handler_ran(look: Any, serve: Any, kind: str) -> None:
    app, slow = Detent(), Slow()

    class RefusedError(Exception):
        def __str__(self) -> str:
            return str(slow)

    @app.function("plain")
    def plain() -> None:
        raise RefusedError

    @app.function("coroutine")
    async def coroutine() -> None:
        raise RefusedError

    job = await due_job(look, kind)
    await serve(app)
    await until(slow.asked.is_set)
    slow.answer.set()
    assert (await outcome(look, job))["status"] == 2
    assert await look.fetchval("SELECT error FROM attempts WHERE job = $1", job) == "RefusedError: slow"
    assert all(name.startswith("detent-handler") for name in slow.threads)


@pytest.mark.parametrize("mistake", [RuntimeError("no text"), SystemExit(1)])
async def test_a_result_without_a_text_fails_its_attempt_and_nothing_else(
    look: Any, serve: Any, mistake: BaseException
) -> None:
    app = Detent()
    calls: list[int] = []

    class Mute:
        def __str__(self) -> str:
            raise mistake

    @app.function("mute")
    async def mute() -> Mute:
        calls.append(1)
        return Mute()

    @app.function("works")
    async def works() -> str:
        return "still here"

    job = await due_job(look, "mute")
    session = await serve(app)
    assert (await outcome(look, job))["status"] == 2
    second = await due_job(look, "works")
    session.wakeups.jobs_changed(None)
    assert (await outcome(look, second))["result"] == '"still here"'
    assert calls == [1]


class Hanging:
    """Plain functions and a coroutine that block until the test releases them."""

    def __init__(self, app: Detent) -> None:
        self.release = threading.Event()
        self.hanging: list[str] = []
        self.called: list[str] = []

        @app.function("hangs")
        def hangs() -> None:
            self.hanging.append("thread")
            self.release.wait(60)

        @app.function("blocks")
        async def blocks() -> None:
            self.hanging.append("loop")
            self.release.wait(60)

        @app.function("plain")
        def plain() -> str:
            self.called.append("plain")
            return "called"

        @app.function("coroutine")
        async def coroutine() -> str:
            self.called.append("coroutine")
            return "called"


async def test_a_run_that_found_no_thread_is_given_back_and_runs_when_there_is_one(look: Any, serve: Any) -> None:
    app = Detent()
    hanging = Hanging(app)
    for _ in range(THREADS):
        await due_job(look, "hangs", timeout_seconds=60)
    session = await serve(app)
    await until(lambda: len(hanging.hanging) == THREADS)
    job = await due_job(look, "plain", timeout_seconds=0.2, delivery="at_most_once")
    session.wakeups.jobs_changed(None)
    await given_back(session, look, job)
    assert not hanging.called
    hanging.release.set()
    row = await outcome(look, job)
    assert (row["status"], row["attempt"], row["result"]) == (1, 1, '"called"')
    assert hanging.called == ["plain"]
    assert await look.fetchval("SELECT count(*) FROM attempts WHERE job = $1", job) == 0


async def test_a_run_behind_a_blocked_loop_is_given_back_and_plain_functions_go_on(look: Any, serve: Any) -> None:
    app = Detent()
    hanging = Hanging(app)
    await due_job(look, "blocks", timeout_seconds=60)
    session = await serve(app)
    await until(lambda: hanging.hanging == ["loop"])
    job = await due_job(look, "coroutine", timeout_seconds=0.2)
    session.wakeups.jobs_changed(None)
    await given_back(session, look, job)
    neighbour = await due_job(look, "plain")
    session.wakeups.jobs_changed(None)
    assert (await outcome(look, neighbour))["status"] == 1
    assert hanging.called == ["plain"]
    hanging.release.set()
    row = await outcome(look, job)
    assert (row["status"], row["attempt"], row["result"]) == (1, 1, '"called"')


async def test_a_run_that_was_given_back_can_be_cancelled_and_is_not_called(look: Any, serve: Any) -> None:
    app = Detent()
    hanging = Hanging(app)
    for _ in range(THREADS):
        await due_job(look, "hangs", timeout_seconds=60)
    session = await serve(app)
    await until(lambda: len(hanging.hanging) == THREADS)
    job = await due_job(look, "plain")
    session.wakeups.jobs_changed(None)
    await given_back(session, look, job)
    await look.execute("UPDATE live_runs SET cancel = true WHERE job = $1", job)
    hanging.release.set()
    assert (await outcome(look, job))["status"] == 3
    assert not hanging.called


async def test_a_worker_without_threads_leaves_runs_to_others_and_says_so(look: Any, serve: Any) -> None:
    app = Detent()
    hanging = Hanging(app)
    for _ in range(THREADS):
        await due_job(look, "hangs", timeout_seconds=60)
    session = await serve(app)
    await until(lambda: len(hanging.hanging) == THREADS)
    job = await due_job(look, "plain")
    session.wakeups.jobs_changed(None)
    token = await given_back(session, look, job)
    for _ in range(3):
        await session.worker.tick()
    assert await look.fetchval("SELECT token FROM live_runs WHERE job = $1 AND owner IS NULL", job) == token
    assert session.gauges().handlers_short == 1
    assert session.capacity.shortages() == [f"All {THREADS} threads for plain functions are busy."]
    check = dict(_of_membership(session))["handlers"]
    assert not check.ok and not check.needed and "left to other workers" in check.why
    hanging.release.set()
    assert (await outcome(look, job))["status"] == 1
    await until(lambda: not session.capacity.shortages())
    assert session.gauges().handlers_short == 0


@pytest.fixture
async def one_thread() -> AsyncIterator[HandlerThread]:
    thread = HandlerThread(1)
    thread.start()
    yield thread
    await thread.stop()


def call_of(function: str, timeout_seconds: float) -> Call:
    run = "00000000-0000-8000-8000-000000000000"
    instant = datetime(2026, 1, 1, tzinfo=UTC)
    return Call(run, "job", run, instant, 1, "key", 1, None, PythonTarget(function), timeout_seconds)


def run_of(call: Call) -> Any:
    return Run(call, backend=None)  # type: ignore[arg-type]  # never called


async def test_the_time_of_a_run_counts_from_its_call(one_thread: HandlerThread) -> None:
    """It waited for longer than it may take: it is called all the same, and has all its time."""
    app = Detent()
    hanging = Hanging(app)
    runner = PythonTargetRunner(app.functions, one_thread, run_of, begin_within=60)
    first = asyncio.create_task(runner(call_of("hangs", 60)))
    await until(lambda: hanging.hanging)
    second = asyncio.create_task(runner(call_of("plain", 0.05)))
    done, _ = await asyncio.wait({second}, timeout=0.2)
    assert not done and not hanging.called
    hanging.release.set()
    assert (await first, await second) == (Succeeded(None), Succeeded('"called"'))


async def test_a_coroutine_that_blocks_does_not_keep_the_node_from_ending() -> None:
    app, thread = Detent(), HandlerThread(1)
    hanging = Hanging(app)
    thread.start()
    runner = PythonTargetRunner(app.functions, thread, run_of)
    running = asyncio.create_task(runner(call_of("blocks", 60)))
    await until(lambda: hanging.hanging)
    last: list[bool] = []
    await thread.stop(lambda: last.append(True))
    assert not last
    hanging.release.set()
    await running
    await thread.stop()
    assert last


class ListeningThread(HandlerThread):
    """Counts what was handed to its loop."""

    handed = 0

    def on_loop(self, work: Callable[[], object]) -> None:
        super().on_loop(work)
        self.handed += 1


async def test_a_coroutine_of_a_plain_function_that_times_out_before_it_is_started_gives_its_thread_back() -> None:
    """The loop is busy until then, and takes what was handed over in two portions: the end of the coroutine stands in
    the second one, before its first step."""
    app, thread, release = Detent(), ListeningThread(2), threading.Event()

    @app.function("half")
    def half() -> Any:
        thread.on_loop(lambda: thread.on_loop(lambda: None))
        return asyncio.sleep(60)

    @app.function("plain")
    def plain() -> None: ...

    thread.start()
    runner = PythonTargetRunner(app.functions, thread, run_of, begin_within=2.0, tenant_headroom=0.5)
    runner.capacity.share_among({1: 1, 2: 1})
    thread.on_loop(lambda: release.wait(30))
    ended = await runner(call_of("half", 0.1))
    assert isinstance(ended, Failed) and ended.outcome == "timeout"
    await until(lambda: thread.handed == 3)
    release.set()
    for _ in range(2):  # as many as there are threads
        assert await runner(call_of("plain", 60)) == Succeeded(None)
    await thread.stop()


@pytest.mark.parametrize("function", ["hangs", "sleeps"])
async def test_a_call_that_takes_too_long_is_a_timeout(one_thread: HandlerThread, function: str) -> None:
    app = Detent()
    hanging = Hanging(app)
    ended = threading.Event()

    @app.function("sleeps")
    async def sleeps() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    runner = PythonTargetRunner(app.functions, one_thread, run_of)
    assert await runner(call_of(function, 0.05)) == Failed("No answer within 0.05 s.", outcome="timeout")
    hanging.release.set()
    if function == "sleeps":
        await until(ended.is_set)


@pytest.mark.parametrize(
    "error", [StopIteration("plain"), GeneratorExit(), KeyboardInterrupt(), asyncio.CancelledError()]
)
@pytest.mark.parametrize("kind", ["plain", "coroutine"])
async def test_whatever_a_handler_raises_is_one_failed_attempt(
    one_thread: HandlerThread, kind: str, error: BaseException
) -> None:
    app = Detent()

    @app.function("plain")
    def plain() -> None:
        raise error

    @app.function("coroutine")
    async def coroutine() -> None:
        raise error

    app.function("works")(lambda: "still here")
    runner = PythonTargetRunner(app.functions, one_thread, run_of)
    assert isinstance(await runner(call_of(kind, 60)), Failed)
    assert await runner(call_of("works", 60)) == Succeeded('"still here"')


async def test_a_plain_function_may_return_a_coroutine_and_it_is_cancelled_with_its_run(
    one_thread: HandlerThread,
) -> None:
    app = Detent()
    begun, ended = threading.Event(), threading.Event()

    async def work() -> None:
        try:
            begun.set()
            await asyncio.sleep(60)
        finally:
            ended.set()

    app.function("returns a coroutine")(lambda: work())
    runner = PythonTargetRunner(app.functions, one_thread, run_of)
    running = asyncio.create_task(runner(call_of("returns a coroutine", 60)))
    await until(begun.is_set)
    running.cancel()
    await until(ended.is_set)
    await asyncio.wait({running})
    assert running.cancelled()
