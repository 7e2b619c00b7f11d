"""Whatever a handler raises, the attempt has failed with its name and text, and the next handler is none the worse."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from detent import Run
from detent.domain.effects import NewStep, OnceKey
from detent.domain.job import PythonTarget
from detent.domain.run import Call, Committed, Failed, NotBegun, Outcome, Succeeded
from detent.targets.python import HandlerThread, PythonTargetRunner
from detent.worker.execute import execute
from tests.support.factories import LONG_AGO

SECONDS = 10.0
Invoke = Callable[..., Any]


class Abandoned(BaseException):
    pass


class Unprintable(Exception):  # noqa: N818 - raised by a handler
    def __str__(self) -> str:
        raise Abandoned("no words")


RAISED = [
    (StopIteration("the end"), "StopIteration: the end"),
    (StopAsyncIteration("the end"), "StopAsyncIteration: the end"),
    (GeneratorExit("closed"), "GeneratorExit: closed"),
    (SystemExit(3), "SystemExit: 3"),
    (KeyboardInterrupt(), "KeyboardInterrupt"),
    (Abandoned("half way"), "Abandoned: half way"),
    (Unprintable(), "Unprintable: its text cannot be read: Abandoned: no words"),
    (asyncio.CancelledError("by itself"), "The handler cancelled itself: by itself"),
    (asyncio.InvalidStateError("odd"), "InvalidStateError: odd"),
    (TimeoutError(), "TimeoutError"),
    (
        BaseExceptionGroup("both", [Abandoned("a"), ValueError("b")]),
        "BaseExceptionGroup: both (2 sub-exceptions): Aband",
    ),
]


class Unused:
    """Stands behind a run that asks nothing."""

    def held(self, run_id: str, token: int) -> bool:
        return True

    def transaction(self, run_id: str, token: int) -> Any:
        raise NotImplementedError

    def once(self, run_id: str, token: int, once: OnceKey) -> Any:
        raise NotImplementedError

    async def steps(self, run_id: str, token: int) -> dict[str, str | None]:
        raise NotImplementedError

    async def add_step(self, run_id: str, token: int, step: NewStep) -> None:
        raise NotImplementedError

    def output(self, call: Call) -> None:
        return None

    def progress(self, run_id: str, token: int, fraction: float, message: str) -> None:
        raise NotImplementedError


@pytest.fixture
async def invoke() -> AsyncIterator[Invoke]:
    """Run a function as a worker does, on the real loop and threads of handlers."""
    thread = HandlerThread(1)
    thread.start()

    async def run(function: Callable[..., Any], *, committed: bool = False) -> Outcome | NotBegun:
        def make_run(call: Call) -> Run:
            made = Run(call, Unused())
            made.committed = committed
            return made

        runner = PythonTargetRunner({"f": function}, thread, make_run)
        call = Call(
            "1", "job", "01890000-0000-7000-8000-000000000001", LONG_AGO, 1, "key", 1, None, PythonTarget("f"), 9
        )
        async with asyncio.timeout(SECONDS):
            return await execute(call, {"python": runner})

    yield run
    await thread.stop()


def plain(error: BaseException) -> Callable[[], None]:
    def function() -> None:
        raise error

    return function


def coroutine(error: BaseException) -> Callable[[], Any]:
    async def function() -> None:
        await asyncio.sleep(0)
        raise error

    return function


def awaitable(error: BaseException) -> Callable[[], Any]:
    """A plain function whose result is to be awaited."""
    return lambda: coroutine(error)()


async def still_works(invoke: Invoke) -> None:
    async def works() -> str:
        return threading.current_thread().name

    assert await invoke(works) == Succeeded('"detent-handlers"')
    assert await invoke(lambda: 1) == Succeeded("1")


@pytest.mark.parametrize(("error", "text"), RAISED, ids=[type(error).__name__ for error, _ in RAISED])
@pytest.mark.parametrize("make", [plain, coroutine, awaitable])
async def test_whatever_a_handler_raises_is_a_failed_attempt(
    invoke: Invoke, make: Callable[[BaseException], Any], error: BaseException, text: str
) -> None:
    if isinstance(error, StopIteration) and make is not plain:  # Python itself makes it another
        text = "RuntimeError: coroutine raised StopIteration"
    outcome = await invoke(make(error))
    assert isinstance(outcome, Failed) and outcome.retryable
    assert outcome.error.startswith(text)
    await still_works(invoke)


async def test_what_a_handler_raises_after_its_run_committed_changes_nothing(invoke: Invoke) -> None:
    assert await invoke(plain(StopIteration()), committed=True) == Committed()
    assert await invoke(coroutine(SystemExit(1)), committed=True) == Committed()


async def test_a_handler_that_cancels_its_own_task_has_failed(invoke: Invoke) -> None:
    async def cancels() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(SECONDS)

    outcome = await invoke(cancels)
    assert isinstance(outcome, Failed) and outcome.error == "The handler cancelled itself."
    await still_works(invoke)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=["exit", "interrupt"])
async def test_a_task_of_a_handler_that_exits_ends_its_own_handler_alone(invoke: Invoke, error: BaseException) -> None:
    """Such an exception leaves the loop that all handlers share, whatever the handler does about it."""

    async def groups() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(coroutine(error)())

    outcome = await invoke(groups)
    assert isinstance(outcome, Failed) and outcome.error.startswith(type(error).__name__)
    await still_works(invoke)


async def test_a_handler_cannot_stop_the_loop_of_the_others(invoke: Invoke) -> None:
    async def stops() -> str:
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0)
        return "stopped"

    assert await invoke(stops) == Succeeded('"stopped"')
    await still_works(invoke)


async def test_exceptions_are_described_where_the_handler_runs(invoke: Invoke) -> None:
    """Describing one calls the user's code, which must not run on the loop that fires."""
    threads: list[str] = []

    class Slow(Exception):  # noqa: N818 - raised by a handler
        def __str__(self) -> str:
            threads.append(threading.current_thread().name)
            return "text"

    for make in (plain, coroutine):
        assert (await invoke(make(Slow()))).error == "Slow: text"
    assert threading.current_thread().name not in threads


async def test_a_result_with_half_a_character_is_kept_with_a_replacement(invoke: Invoke) -> None:
    assert await invoke(lambda: "name-\udcff") == Succeeded('"name-\ufffd"')
