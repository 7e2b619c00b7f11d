"""Calls of user code as steps that the caller performs where it is: in a thread, on a loop, in a test.

A generator of steps calls plain functions itself and yields the coroutines that have to be awaited; whoever drives it
sends back how each ended. So the same code surrounds plain functions in threads and coroutines on the handlers' loop.
What user code raises is passed as a value: a generator would replace StopIteration, a loop would end at SystemExit.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextvars import Context
from typing import Any, NamedTuple, TypeVar

from detent.errors import UsageError

Answer = TypeVar("Answer")


class Ended(NamedTuple):
    """How user code ended."""

    result: Any = None
    error: BaseException | None = None


Steps = Generator[Coroutine[Any, Any, Ended], Ended, Answer]
_NOTHING = object()


def called(function: Callable[..., Any], *arguments: Any, **named: Any) -> Ended:
    try:
        return Ended(function(*arguments, **named))
    except BaseException as error:
        return Ended(error=error)


async def awaited(work: Any) -> Ended:
    try:
        return Ended(await work)
    except BaseException as error:
        return Ended(error=error)


class HalfWay:
    """A generator of the user that stops at its only `yield`, and continues when what it surrounds has ended.

    It sees an exception at the `yield` and may raise another one. It cannot turn an exception into a success: a run
    that failed would otherwise look as if it had done its work.
    """

    def __init__(self, generator: Any, name: str, *, sees_result: bool = False) -> None:
        self._generator = generator
        self._name = name
        self._sees_result = sees_result
        self._asynchronous = isinstance(generator, AsyncGenerator)

    def open(self) -> Steps[Ended]:
        """Up to the `yield`: the result is what it yields."""
        if self._asynchronous:
            ended: Ended = yield awaited(anext(self._generator, _NOTHING))
        else:
            ended = called(next, self._generator, _NOTHING)
        return Ended(error=UsageError(f"{self._name} ended before its yield.")) if ended.result is _NOTHING else ended

    def close(self, inner: Ended) -> Steps[Ended]:
        """From the `yield` to the end; how the whole ended."""
        trace = None if inner.error is None else inner.error.__traceback__
        own = yield from self._continue(inner)
        if own.error is None:
            yield from self._continue(Ended(error=GeneratorExit()))
            return Ended(error=UsageError(f"{self._name} yields more than once: it may yield once."))
        if isinstance(own.error, StopIteration | StopAsyncIteration) or _is_same(own.error, inner.error):
            if inner.error is not None:  # without the frames of the way through here, which say nothing
                BaseException.with_traceback(inner.error, trace)
            return inner
        return own

    def _continue(self, inner: Ended) -> Steps[Ended]:
        value = inner.result if self._sees_result else None
        if not self._asynchronous:
            if inner.error is None:
                return called(self._generator.send, value)
            return called(self._generator.throw, inner.error)
        if inner.error is None:
            ended: Ended = yield awaited(self._generator.asend(value))
        else:
            ended = yield awaited(self._generator.athrow(inner.error))
        return ended


def _is_same(error: BaseException, thrown: BaseException | None) -> bool:
    """A generator that lets StopIteration pass raises a RuntimeError instead, with that as its cause."""
    replaced = isinstance(thrown, StopIteration | StopAsyncIteration) and isinstance(error, RuntimeError)
    return error is thrown or (replaced and error.__cause__ is thrown)


async def perform(steps: Steps[Answer]) -> Answer:
    """Drive the steps on the running loop."""
    try:
        work = next(steps)
        while True:
            work = steps.send(await work)
    except StopIteration as end:
        answer: Answer = end.value
        return answer


def perform_in_thread(steps: Steps[Answer], context: Context, loop: asyncio.AbstractEventLoop) -> Answer:
    """Drive the steps in this thread and await their coroutines on the loop, all in the same context.

    A context cannot be entered twice: this thread has left it whenever the loop works in it."""
    await_there: _LoopTask | None = None
    try:
        work = context.run(next, steps)
        while True:
            await_there = await_there or _LoopTask(loop, context)
            work = context.run(steps.send, await_there.wait_for(work))
    except StopIteration as end:
        answer: Answer = end.value
        return answer
    finally:
        if await_there is not None:
            await_there.end()


class _LoopTask:
    """One task on a loop that awaits everything a thread gives it: task groups and timeouts have to be left in the task
    that entered them."""

    def __init__(self, loop: asyncio.AbstractEventLoop, context: Context) -> None:
        self._loop = loop
        self._given: asyncio.Queue[Coroutine[Any, Any, Ended] | None] = asyncio.Queue()
        self._ended = threading.Event()
        self._how = Ended()
        self._task: asyncio.Task[None] | None = None  # a loop holds only weak references to its tasks
        loop.call_soon_threadsafe(self._begin, context)

    def wait_for(self, work: Coroutine[Any, Any, Ended]) -> Ended:
        self._ended.clear()
        self._loop.call_soon_threadsafe(self._given.put_nowait, work)
        self._ended.wait()
        return self._how

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._given.put_nowait, None)

    def _begin(self, context: Context) -> None:
        self._task = self._loop.create_task(self._serve(), context=context)

    async def _serve(self) -> None:
        while (work := await self._given.get()) is not None:
            self._how = await work
            del work
            self._loop.call_soon(self._ended.set)  # when this task is suspended and has left the context
