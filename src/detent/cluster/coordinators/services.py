"""What the coordinators that ask a service have in common: who stands, how long an answer may take, how one parts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import NamedTuple
from uuid import UUID

from detent.errors import Unavailable
from detent.telemetry.log import logger

log = logger("coordinator")

# Below this a busy machine would be taken for a service that is gone.
SHORTEST_LIMIT = 1.0


class Candidate(NamedTuple):
    """A node of a cluster; what it does not renew within `ttl` seconds goes to others."""

    node: int
    cluster: UUID
    ttl: float

    @property
    def limit(self) -> float:
        """How long the service may take: while it is asked, nobody looks for nodes that are gone."""
        return max(self.ttl / 3, SHORTEST_LIMIT)


@asynccontextmanager
async def answering(service: str, limit: float, *failures: type[Exception]) -> AsyncIterator[None]:
    """Whatever goes wrong with the service, or takes too long, is Unavailable."""
    try:
        async with asyncio.timeout(limit):
            yield
    except TimeoutError as error:
        raise Unavailable(f"{service} did not answer within {limit:g} seconds.") from error
    except failures as error:
        raise Unavailable(f"{service} gave no answer ({str(error) or type(error).__name__}).") from error


@contextmanager
def parting(service: str) -> Iterator[None]:
    """Who leaves does so in any case: what could not be resigned from goes to others after its time to live."""
    try:
        yield
    except Exception as error:
        log.info("left without resigning", coordinator=service, error=str(error))
