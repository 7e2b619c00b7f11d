"""Look-ups of keys and sessions that do not exist, limited for each network.

A look-up of an unknown key is charged to the network it came from, so that guessing is slow and costs the database
little. A valid key costs nothing. When a network has used up its failures, or all networks theirs, keys are compared
with the digests of all valid ones, which are read at most every two seconds for all requests together: a valid key is
still accepted, and any other is refused without a statement. So a network, which many people may share, never locks a
valid key out.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from detent.api.limits import Limiter, network_of, too_many
from detent.errors import DetentError

# All networks together may have so many times the failures of one: one attacker may have many networks.
NETWORKS = 10
# How old the digests may be.
KNOWN_SECONDS = 2.0
# How many digests a process reads: beyond that, those that were used last.
MAX_DIGESTS = 20_000
FAILED = "Too many keys that are not valid came from this network"
ADVICE = "send a valid one"

Found = TypeVar("Found")
Load = Callable[[int], Awaitable[frozenset[bytes]]]
Clock = Callable[[], float]


class Known(Protocol):
    """Says of a digest whether it is that of something valid, without a look-up that costs the database."""

    async def has(self, digest: bytes) -> bool: ...


class ValidDigests:
    """The digests of all valid keys, or of all sessions, as they were a moment ago."""

    def __init__(self, load: Load, now: Clock = time.monotonic) -> None:
        self._load = load
        self._now = now
        self._loading = asyncio.Lock()
        self._read_at = 0.0
        self._digests: frozenset[bytes] | DetentError = frozenset()

    async def has(self, digest: bytes) -> bool:
        async with self._loading:
            if self._now() >= self._read_at:
                self._digests = await self._read()
                self._read_at = self._now() + KNOWN_SECONDS
        if isinstance(self._digests, DetentError):
            raise self._digests.with_traceback(None)  # or each request would add its frames to those of all others
        return digest in self._digests

    async def _read(self) -> frozenset[bytes] | DetentError:
        try:
            return await self._load(MAX_DIGESTS)
        except DetentError as error:  # kept as long as an answer, or each waiting request would try by itself
            return error


class FailedLookups:
    def __init__(self, per_second: float, now: Clock = time.monotonic) -> None:
        """`per_second`: how many failures a network may have; 0 is no limit."""
        self._rate = per_second
        self._failures = Limiter(per_second, now)
        self._of_all = Limiter(per_second * NETWORKS, now)

    async def look_up(
        self, address: str, digest: bytes, find: Callable[[], Awaitable[Found | None]], valid: Known
    ) -> Found | None:
        """What `find` returns. None is charged to the network of the address; one that has used up its failures gets a
        refusal, unless the digest is among the valid ones."""
        network = network_of(address)
        # Charged before, so that look-ups under way count too, and given back if the key is valid.
        own_wait = self._failures.wait(network)
        wait = own_wait or self._of_all.wait("all")
        if wait and not await valid.has(digest):
            raise too_many(self._rate, wait, FAILED, ADVICE)
        found = await find()
        if found is not None and not own_wait:
            self._failures.give_back(network)
        if found is not None and not wait:
            self._of_all.give_back("all")
        return found
