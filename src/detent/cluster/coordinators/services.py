"""What the coordinators of external services share: the candidate, the time limit of an answer, and how to leave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import NamedTuple
from uuid import UUID

from detent.errors import Unavailable
from detent.telemetry.log import logger

log = logger("coordinator")

# With a shorter limit, a busy machine would look like a failed service.
SHORTEST_LIMIT = 1.0


class Candidate(NamedTuple):
    """A node of a cluster; a nomination that it does not renew within `ttl` seconds goes to other nodes."""

    node: int
    cluster: UUID
    ttl: float

    @property
    def limit(self) -> float:
        """How long the service may take to answer. It is short, because this node detects no lost nodes meanwhile."""
        return max(self.ttl / 3, SHORTEST_LIMIT)


@asynccontextmanager
async def answering(service: str, limit: float, *failures: type[Exception]) -> AsyncIterator[None]:
    """Turn failures and timeouts of the service into Unavailable."""
    try:
        async with asyncio.timeout(limit):
            yield
    except TimeoutError as error:
        raise Unavailable(f"{service} did not answer within {limit:g} seconds.") from error
    except failures as error:
        raise Unavailable(f"The request to {service} failed: {str(error) or type(error).__name__}.") from error


@contextmanager
def ignoring_errors_on_close(service: str) -> Iterator[None]:
    """Log errors instead of raising them: nominations that could not be released end after their lease time."""
    try:
        yield
    except Exception as error:
        log.info("left without resigning", coordinator=service, error=str(error))
