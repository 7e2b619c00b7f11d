"""One bad item must not fail the others of its batch: the batch is halved until that item stands alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
Failure = TypeVar("Failure", bound=Exception)


async def halve_until_alone(
    batch: Sequence[Item],
    send: Callable[[Sequence[Item]], Awaitable[Result]],
    alone: Callable[[Item, Failure], Awaitable[Result]],
    failures: tuple[type[Failure], ...],
) -> list[Result]:
    """Send a batch as one; after one of `failures` send its halves. An item that fails by itself goes to `alone`.

    Any other error is raised, but only after the second half was sent too.
    """
    if not batch:
        return []
    try:
        return [await send(batch)]
    except failures as error:
        if len(batch) == 1:
            return [await alone(batch[0], error)]
    half = len(batch) // 2
    try:
        first = await halve_until_alone(batch[:half], send, alone, failures)
    finally:
        second = await halve_until_alone(batch[half:], send, alone, failures)
    return first + second
