"""The one thread in which this process computes the ticks of users' schedules.

One, because every thread that computes takes the interpreter's lock for five milliseconds at a time, and the loop that
fires has to wait for each of them: twelve previews in twelve threads made ticks 1.2 seconds late. Its callers wait in
line, and `domain/schedule/steps.py` bounds how long each one takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Answer = TypeVar("Answer")

_THREAD: Final = ThreadPoolExecutor(1, thread_name_prefix="schedules")


async def compute(
    function: Callable[Parameters, Answer], *args: Parameters.args, **kwargs: Parameters.kwargs
) -> Answer:
    """The function's answer, computed off the event loop."""
    return await asyncio.get_running_loop().run_in_executor(_THREAD, partial(function, *args, **kwargs))
