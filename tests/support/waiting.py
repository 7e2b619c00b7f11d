"""Waiting for something to become true, with an end."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any

INTERVAL = 0.02


async def until(predicate: Callable[..., Any], timeout: float = 10.0, what: str = "") -> Any:
    """The first true answer of `predicate`, which may be a coroutine function; fails after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        answer = predicate()
        if inspect.isawaitable(answer):
            answer = await answer
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(_still_waiting(predicate, timeout, what, answer))
        await asyncio.sleep(INTERVAL)


def until_sync(predicate: Callable[..., Any], timeout: float = 10.0, what: str = "") -> Any:
    """As `until`, for tests without an event loop."""
    deadline = time.monotonic() + timeout
    while not (answer := predicate()):
        if time.monotonic() > deadline:
            raise AssertionError(_still_waiting(predicate, timeout, what, answer))
        time.sleep(INTERVAL)
    return answer


def _still_waiting(predicate: Callable[..., Any], timeout: float, what: str, answer: Any) -> str:
    name = what or getattr(predicate, "__qualname__", repr(predicate))
    return f"waited {timeout:g} s for {name}; the last answer was {answer!r}"
