"""Life-cycle hooks, dependencies and middleware of an app, as a worker's runners call its functions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

import pytest

from detent import Depends, Detent, Run
from detent.domain.job import PythonTarget
from detent.domain.run import Call, Failed, Outcome, Succeeded
from detent.errors import StartupFailed, UsageError
from detent.sdk.serving import ServedApp
from detent.sdk.testing.records import HeldInTest
from detent.targets.python import HandlerThread, PythonTargetRunner
from detent.targets.run import HandlerRun

request: ContextVar[str] = ContextVar("request")


def call_of(app: Detent, name: str, payload: Any = None) -> Call:
    (reference,) = [each for each in app.functions if each.rsplit(".", 1)[-1] == name]
    return Call(
        job_id="j",
        job=name,
        run_id="0199a2b4-0000-7000-8000-000000000001",
        scheduled_at=datetime(2026, 1, 1, tzinfo=UTC),
        attempt=1,
        idempotency_key="key",
        token=1,
        payload=payload,
        target=PythonTarget(reference),
        timeout_seconds=30,
    )


@asynccontextmanager
async def serving(app: Detent) -> AsyncIterator[Callable[..., Any]]:
    """Runs functions of the app as a worker does: on a handlers' loop and in threads."""
    thread, served = HandlerThread(4), ServedApp(app)
    thread.start()
    try:
        await thread.run(served.start())
        runner = PythonTargetRunner(
            served.functions(), thread, lambda call: HandlerRun(call, HeldInTest(None)), max_result_bytes=10_000
        )

        async def run(name: str, payload: Any = None) -> Outcome:
            outcome = await runner(call_of(app, name, payload))
            assert isinstance(outcome, Outcome)
            return outcome

        yield run
    finally:
        await thread.run(served.stop(5))
        await thread.stop()


def results(*outcomes: Outcome) -> list[str | None]:
    assert all(isinstance(each, Succeeded) for each in outcomes), outcomes
    return [each.result for each in outcomes if isinstance(each, Succeeded)]


async def test_hooks_and_the_lifespan_surround_all_runs_on_the_handlers_loop() -> None:
    seen: list[str] = []
    loops: list[asyncio.AbstractEventLoop] = []

    @asynccontextmanager
    async def lifespan(app: Detent) -> AsyncIterator[None]:
        async with asyncio.TaskGroup():  # has to be left in the task that entered it
            seen.append(f"lifespan of {app.name}")
            yield
        seen.append("lifespan ends")

    app = Detent("shop", lifespan=lifespan)

    @app.on_startup
    async def connect() -> None:
        loops.append(asyncio.get_running_loop())
        seen.append("connect")

    @app.on_startup
    def prepare() -> None:
        seen.append("prepare")

    @app.on_shutdown
    def forget() -> None:
        seen.append("forget")

    @app.on_shutdown
    async def disconnect() -> None:
        seen.append("disconnect")
        raise ValueError("already gone")

    @app.task()
    async def work() -> None:
        loops.append(asyncio.get_running_loop())
        seen.append("work")

    async with serving(app) as run:
        await run("work")
    assert seen == ["lifespan of shop", "connect", "prepare", "work", "disconnect", "forget", "lifespan ends"]
    assert loops[0] is loops[1]


async def test_a_start_up_that_fails_ends_the_start_and_leaves_the_lifespan() -> None:
    seen: list[str] = []

    async def lifespan(app: Detent) -> AsyncIterator[None]:
        try:
            yield
        except StartupFailed:
            seen.append("saw it")
            raise

    app = Detent(lifespan=lifespan)

    @app.on_startup
    def connect() -> None:
        raise ConnectionError("no database")

    @app.on_shutdown
    def disconnect() -> None:
        seen.append("nothing was connected")

    with pytest.raises(StartupFailed, match=r"in .*connect \(ConnectionError: no database\)"):
        async with serving(app):
            pass
    assert seen == ["saw it"]


async def test_a_shut_down_that_hangs_is_cancelled() -> None:
    app, cancelled = Detent(), threading.Event()

    @app.on_shutdown
    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    served = ServedApp(app)
    await served.start()
    await served.stop(0.01)
    assert cancelled.is_set()


def pair() -> tuple[Detent, list[str]]:
    """An app with a plain function and a coroutine that depend on every kind of provider."""
    app, seen = Detent(), list[str]()

    def plain() -> str:
        seen.append("plain")
        return "plain"

    async def coroutine(text: str = Depends(plain)) -> str:
        await asyncio.sleep(0)
        return f"coroutine({text})"

    def generator(run: Run, text: str = Depends(coroutine)) -> Iterator[str]:
        try:
            yield f"generator({text}, {run.job})"
        except LookupError as error:
            seen.append(f"saw {error!r}")
            raise
        finally:
            seen.append("generator closed")

    async def pool(text: str = "") -> AsyncIterator[str]:
        seen.append("pool opened")
        yield "pool"
        await asyncio.sleep(0)
        seen.append("pool closed")

    async def connection(pool: str = Depends(pool, scope="worker")) -> AsyncIterator[str]:
        async with asyncio.timeout(60):
            yield f"connection of {pool}"
        seen.append("connection closed")

    @app.task()
    def threaded(run: Run, a: str = Depends(generator), b: str = Depends(connection), c: str = Depends(plain)) -> str:
        if run.payload == "fail":
            raise LookupError("nothing there")
        return f"{a} {b} {c}"

    @app.task()
    async def looped(
        run: Run, a: str = Depends(generator), b: str = Depends(connection), c: str = Depends(plain)
    ) -> str:
        if run.payload == "fail":
            raise LookupError("nothing there")
        return f"{a} {b} {c}"

    return app, seen


@pytest.mark.parametrize("kind", ["threaded", "looped"])
async def test_dependencies_of_every_kind_are_made_once_per_run_and_closed_in_reverse(kind: str) -> None:
    app, seen = pair()
    async with serving(app) as run:
        assert seen == ["pool opened"]
        outcome = await run(kind)
        await run(kind)
    assert results(outcome) == [f'"generator(coroutine(plain), {kind}) connection of pool plain"']
    one = ["plain", "connection closed", "generator closed"]
    assert seen == ["pool opened", *one, *one, "pool closed"]


@pytest.mark.parametrize("kind", ["threaded", "looped"])
async def test_a_failure_is_thrown_into_the_generators(kind: str) -> None:
    app, seen = pair()
    async with serving(app) as run:
        outcome = await run(kind, "fail")
    assert isinstance(outcome, Failed) and outcome.error == "LookupError: nothing there"
    assert "saw LookupError('nothing there')" in seen and seen[-2:] == ["generator closed", "pool closed"]


async def test_a_provider_that_fails_or_yields_wrongly_fails_the_attempt() -> None:
    app, seen = Detent(), list[str]()

    def twice() -> Iterator[int]:
        yield 1
        yield 2

    def never() -> Iterator[int]:
        yield from ()

    def first() -> Iterator[int]:
        yield 1
        seen.append("first closed")

    def broken(first: int = Depends(first)) -> int:
        raise KeyError("broken")

    @app.task()
    def a(value: int = Depends(twice)) -> None: ...
    @app.task()
    async def b(value: int = Depends(never)) -> None: ...
    @app.task()
    def c(value: int = Depends(broken)) -> None: ...

    async with serving(app) as run:
        errors = [getattr(await run(name), "error", None) for name in "abc"]
    assert "twice yields more than once" in str(errors[0])
    assert "never ended before its yield" in str(errors[1])
    assert errors[2] == "KeyError: 'broken'"
    assert seen == []


async def test_middleware_surrounds_runs_with_the_first_one_outermost() -> None:
    app, seen = Detent(), list[str]()

    def clock() -> str:
        return "clock"

    @app.middleware
    def outer(run: Run) -> Iterator[None]:
        seen.append(f"outer {run.job}")
        try:
            seen.append(f"outer saw {(yield)}")
        except RuntimeError as error:
            seen.append(f"outer saw {error!r}")

    @app.middleware
    async def inner(run: Run, clock: str = Depends(clock)) -> AsyncIterator[None]:
        await asyncio.sleep(0)
        try:
            result = yield
            seen.append(f"inner saw {result} at the {clock}")
        except KeyError as error:
            raise RuntimeError("replaced") from error

    @app.task()
    def threaded(run: Run) -> int:
        return {"good": 1}[run.payload]

    @app.task()
    async def looped(run: Run) -> int:
        return {"good": 1}[run.payload]

    for name in ("threaded", "looped"):
        seen.clear()
        async with serving(app) as run:
            assert results(await run(name, "good")) == ["1"]
            outcome = await run(name, "bad")
        assert isinstance(outcome, Failed) and outcome.error == "RuntimeError: replaced", "none can hide a failure"
        assert seen == [
            f"outer {name}", "inner saw 1 at the clock", "outer saw 1",
            f"outer {name}", "outer saw RuntimeError('replaced')",
        ]  # fmt: skip


@pytest.mark.parametrize("kind", ["threaded", "looped"])
async def test_a_traceback_shows_the_function_and_nothing_that_surrounds_it(kind: str) -> None:
    app, _ = pair()

    @app.middleware
    async def asynchronous(run: Run) -> AsyncIterator[None]:
        yield

    @app.middleware
    def plain(run: Run) -> Iterator[None]:
        yield

    async with serving(app) as run:
        outcome = await run(kind, "fail")
    assert isinstance(outcome, Failed) and outcome.traceback is not None
    frames = [line for line in outcome.traceback.splitlines() if line.lstrip().startswith("File ")]
    assert len(frames) == 1 and f"in {kind}" in frames[0], outcome.traceback


async def test_variables_of_the_context_reach_the_function_and_no_other_run() -> None:
    app = Detent()
    tenant: ContextVar[str] = ContextVar("tenant")
    user: ContextVar[str] = ContextVar("user", default="nobody")
    locale: ContextVar[str] = ContextVar("locale", default="none")

    @app.on_startup
    async def start() -> None:
        tenant.set("acme")

    @app.middleware
    async def who(run: Run) -> AsyncIterator[None]:
        token = user.set(f"{user.get()}+{run.payload}")
        yield
        user.reset(token)

    async def language() -> AsyncIterator[str]:
        token = locale.set(f"{locale.get()}+de")
        yield "de"
        locale.reset(token)

    def seen() -> str:
        return f"{tenant.get()} {user.get()} {locale.get()}"

    @app.task()
    def threaded(run: Run, language: str = Depends(language)) -> str:
        tenant.set(f"{tenant.get()}?") if run.payload == "leaks" else None
        return seen()

    @app.task()
    async def looped(run: Run, language: str = Depends(language)) -> str:
        tenant.set(f"{tenant.get()}?") if run.payload == "leaks" else None
        return await asyncio.to_thread(seen)

    async with serving(app) as run:
        for name in ("threaded", "looped"):
            many = await asyncio.gather(*(run(name, f"u{number}") for number in range(8)))
            assert results(*many) == [f'"acme nobody+u{number} none+de"' for number in range(8)]
            assert results(await run(name, "leaks"), await run(name, "x")) == [
                '"acme? nobody+leaks none+de"', '"acme nobody+x none+de"',
            ]  # fmt: skip


async def test_what_a_function_sets_in_its_context_is_not_seen_by_the_next_one_in_its_thread() -> None:
    app = Detent()
    user: ContextVar[str] = ContextVar("user", default="nobody")

    def log_in(run: Run) -> str:
        before = user.get()
        user.set(str(run.payload))
        return before

    @app.task()
    def threaded(run: Run) -> str:
        return log_in(run)

    @app.task()
    async def looped(run: Run) -> str:
        return log_in(run)

    @app.task()
    def half(run: Run) -> Any:
        async def rest() -> str:
            return f"{before} {user.get()}"

        before = log_in(run)
        return rest()

    async with serving(app) as run:
        for name in ("threaded", "looped"):
            for number in range(8):  # more than there are threads
                assert results(await run(name, f"u{number}")) == ['"nobody"']
        for number in range(8):
            assert results(await run("half", f"u{number}")) == [f'"nobody u{number}"']


def test_an_app_without_anything_around_it_serves_its_functions_as_they_are() -> None:
    app = Detent()

    @app.task()
    def work() -> None: ...

    assert ServedApp(app).functions() == app.functions


def test_dependencies_that_cannot_be_made_are_refused_where_they_are_registered() -> None:
    app = Detent()

    def of_run(run: Run) -> str:
        return run.id

    def of_worker(of_run: str = Depends(of_run)) -> str:
        return of_run

    def circular(other: str = "") -> str:
        return other

    def needy(what: int) -> int:
        return what

    circular.__defaults__ = (Depends(circular),)
    for provider, scope, message in (
        (of_run, "worker", "of_run is made once per worker and needs the run"),
        (of_worker, "worker", "needs .*of_run, which is made for each run"),
        (circular, "run", "form a circle: .*circular → .*circular"),
        (needy, "run", "has the parameter 'what', which nothing fills in"),
    ):

        def work(value: Any = Depends(provider, scope=scope)) -> None: ...  # type: ignore[call-overload] # any scope

        with pytest.raises(UsageError, match=message):
            app.task()(work)
    with pytest.raises(UsageError, match="the scope is 'run' or 'worker'"):
        Depends(of_run, scope="job")  # type: ignore[call-overload] # wrong on purpose
    assert app.jobs == []


def test_hooks_and_middleware_with_wrong_signatures_are_refused() -> None:
    app = Detent()
    with pytest.raises(UsageError, match="is not a generator"):
        app.middleware(lambda run: None)
    with pytest.raises(UsageError, match="a hook takes no argument"):
        app.on_startup(lambda app: None)  # type: ignore[type-var] # wrong on purpose

    def generator() -> Iterator[None]:
        yield

    with pytest.raises(UsageError, match="lifespan"):
        app.on_startup(generator)


async def test_providers_are_replaced_in_a_block_only() -> None:
    app = Detent()

    def real() -> str:
        return "real"

    async def fake() -> str:
        return "fake"

    def around(value: str = Depends(real)) -> str:
        return f"around {value}"

    @app.task()
    def work(value: str = Depends(around), kept: str = Depends(real, scope="worker")) -> str:
        return f"{value} {kept}"

    with app.override(real, fake):
        async with serving(app) as run:
            assert results(await run("work")) == ['"around fake fake"']
    async with serving(app) as run:
        assert results(await run("work")) == ['"around real real"']
    with pytest.raises(UsageError, match="form a circle"), app.override(real, around):
        pass
    assert app.overrides == {}


async def test_a_start_up_that_exits_does_not_end_the_loop() -> None:
    app = Detent()

    @app.on_startup
    def leave() -> None:
        raise SystemExit(3)

    with pytest.raises(StartupFailed, match="SystemExit: 3"):
        async with serving(app):
            pass
