"""Moving the clock as a generator: it calls plain functions itself, and yields the coroutines that have to be awaited.

A test without an event loop runs them on a loop of its test mode; a test that is a coroutine awaits them on its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from contextvars import Context
from typing import Any, NamedTuple, TypeVar

from detent.sdk.steps import Steps

Answer = TypeVar("Answer")


class Work(NamedTuple):
    """What has to be awaited, and the variables that it sees."""

    coroutine: Coroutine[Any, Any, Any]
    context: Context


ClockSteps = Generator[Work, Any, Answer]


def within(steps: Steps[Answer], context: Context) -> ClockSteps[Answer]:
    """Perform the steps in this context."""
    try:
        coroutine = context.run(next, steps)
        while True:
            coroutine = context.run(steps.send, (yield Work(coroutine, context)))
    except StopIteration as end:
        answer: Answer = end.value
        return answer


def drive(steps: ClockSteps[Answer], runner: asyncio.Runner) -> Answer:
    try:
        work = next(steps)
        while True:
            try:
                result = runner.run(work.coroutine, context=work.context)
            except Exception as error:
                work = steps.throw(error)
            else:
                work = steps.send(result)
    except StopIteration as end:
        answer: Answer = end.value
        return answer


async def drive_async(steps: ClockSteps[Answer]) -> Answer:
    loop = asyncio.get_running_loop()
    try:
        work = next(steps)
        while True:
            try:
                result = await loop.create_task(work.coroutine, context=work.context)
            except Exception as error:
                work = steps.throw(error)
            else:
                _check_cancellation()
                work = steps.send(result)
    except StopIteration as end:
        answer: Answer = end.value
        return answer


def _check_cancellation() -> None:
    """The steps treat a cancellation as the end of a handler; one of the test itself ends the test."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
