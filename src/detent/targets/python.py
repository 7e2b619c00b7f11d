"""Python functions of the user's app as targets.

Nothing a user wrote runs on the loop that fires and settles: async functions run on a loop of their own, in a thread
of its own, and plain functions in a pool of threads. A handler that blocks delays other handlers, never a tick.
Only functions registered by the app can be called; a name in a job is looked up, never imported.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

import msgspec

from detent.log import logger
from detent.model import Call, Committed, Failed, Outcome, PythonTarget, Succeeded
from detent.run import Run
from detent.targets.raised import describe, failure_of
from detent.targets.text import storable_text

Result = TypeVar("Result")
MakeRun = Callable[[Call], Run]
MAX_RESULT_BYTES = 16_384

log = logger("python")


class DaemonThreads:
    """A pool whose threads never keep the process alive: a handler that hangs cannot be stopped, only left behind."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._work: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._idle = threading.Semaphore(0)

    def submit(self, work: Callable[[], Result]) -> Future[Result]:
        future: Future[Result] = Future()
        self._work.put((future, work))
        if not self._idle.acquire(blocking=False) and len(self._threads) < self._size:
            name = f"detent-handler_{len(self._threads)}"
            self._threads.append(threading.Thread(target=self._run, name=name, daemon=True))
            self._threads[-1].start()
        return future

    def end(self) -> None:
        """Each thread ends once it is idle: nothing is submitted any more."""
        for _ in self._threads:
            self._work.put(None)

    def _run(self) -> None:
        while (given := self._work.get()) is not None:
            future, work = given
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work())
                except BaseException as error:
                    future.set_exception(error)
            del given, future, work
            self._idle.release()


class HandlerThread:
    """An event loop in a thread, for the user's coroutines."""

    def __init__(self, threads: int) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="detent-handlers", daemon=True)
        self._stopping = False
        self._pool = DaemonThreads(threads)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        """Only `stop` ends it. A handler may stop the loop, and SystemExit out of a task of a handler leaves it;
        were it not run again, every other coroutine would wait for its time limit, uncalled."""
        while not self._stopping:
            try:
                self._loop.run_forever()
            except BaseException as error:
                log.error("a handler's task tried to end the process", error=describe(error))

    async def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """From our loop: run a coroutine over there; cancelling here cancels it there."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def in_thread(self, work: Callable[[], Result]) -> Result:
        """From over there: run a blocking function in the pool."""
        return await asyncio.wrap_future(self._pool.submit(work))

    async def stop(self) -> None:
        self._pool.end()
        self._stopping = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join, 2)
        if not self._thread.is_alive():
            self._loop.close()


class PythonTargetRunner:
    def __init__(
        self,
        functions: Mapping[str, Callable[..., Any]],
        thread: HandlerThread,
        make_run: MakeRun,
        *,
        max_result_bytes: int = MAX_RESULT_BYTES,
    ) -> None:
        self._limit = max_result_bytes
        self._functions = functions
        self._thread = thread
        self._make_run = make_run

    async def __call__(self, call: Call) -> Outcome:
        assert isinstance(call.target, PythonTarget)
        function = self._functions.get(call.target.function)
        if function is None:
            return Failed(f"This worker has no function {call.target.function!r}.", retryable=False)
        run = self._make_run(call)
        result = await self._thread.run(self._invoke(function, run))
        if run.committed:
            if isinstance(result, Raised):
                # The run has succeeded, in the handler's own transaction; what came after can only be logged.
                facts = {"run": call.run_id, "job": call.job, "error": result.failed.error}
                log.error("a handler failed after its run had committed", **facts)
            return Committed()
        return result.failed if isinstance(result, Raised) else Succeeded(as_json(result, self._limit))

    async def _invoke(self, function: Callable[..., Any], run: Run) -> Any:
        """What the handler returned, or `Raised`."""
        try:
            arguments = (run,) if takes_run(function) else ()
            if inspect.iscoroutinefunction(function):
                return await function(*arguments)
            result = await self._thread.in_thread(partial(_returned_or_raised, partial(function, *arguments)))
            return await result if inspect.isawaitable(result) else result
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return Raised(failure_of(error))
        except BaseException as error:
            return Raised(failure_of(error))


class Raised(NamedTuple):
    """The handler raised. Its exceptions are described where they are raised and cross no thread and no loop: a future
    refuses StopIteration and is never done, SystemExit and KeyboardInterrupt end the loop that all handlers share, and
    describing one calls the user's code."""

    failed: Failed


def _returned_or_raised(function: Callable[[], Any]) -> Any:
    try:
        return function()
    except BaseException as error:
        return Raised(failure_of(error))


def takes_run(function: Callable[..., Any]) -> bool:
    return bool(inspect.signature(function).parameters)


def as_json(result: object, limit: int = MAX_RESULT_BYTES) -> str | None:
    """What the handler returned, if it can be written as JSON, otherwise its text; cut off where it is too long."""
    if result is None:
        return None
    try:
        text = msgspec.json.encode(result).decode()
    except (TypeError, ValueError, msgspec.MsgspecError):
        text = msgspec.json.encode(storable_text(str(result))).decode()
    if len(text) > limit:
        text = msgspec.json.encode({"truncated": True, "beginning": text[:limit]}).decode()
    return text.replace("\\u0000", "\\ufffd")
