"""Failures and timeouts of a broker become TransportAwayError, in one sentence with the broker's own words."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from detent.transports.transport import TransportAwayError

# How long a broker may take to answer; a busy machine must not look like a broker that is away.
ANSWER_SECONDS = 4.0

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


@asynccontextmanager
async def answering(peer: str, seconds: float, *failures: type[Exception]) -> AsyncIterator[None]:
    """`peer` is the host and port of the broker, without credentials."""
    caught: tuple[type[Exception], ...] = (*failures, OSError)
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise TransportAwayError(f"{peer} did not answer within {seconds:g} s.") from error
    except caught as error:
        raise TransportAwayError(f"{peer} cannot be used: {words_of(error)}.") from error


def words_of(error: BaseException) -> str:
    """What the broker or its client said, in one line."""
    said = _CONTROL.sub(" ", str(error)).strip().rstrip(".")[:300]
    return said or type(error).__name__
