"""What every transport does, whichever broker carries the offers.

A channel is the number of a queue. Offers are delivered at least once: one that is taken and neither `finish`ed nor
`give_back` returns to other workers after `HOLD_SECONDS`, because its worker may be lost. A transport may deliver out
of order; where the broker can, higher priorities come first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from detent.domain.offer import Offer
from detent.errors import DetentError

# How long a taken offer stays with its worker. A claim takes milliseconds; `extend` is for a database that is slow.
HOLD_SECONDS = 30.0

DEFAULT_PRIORITY = 5
# Of priorities, where a broker cannot keep the order of all of them. The highest comes first.
BANDS = ("high", "normal", "low")


def band_of(priority: int) -> str:
    """A job that is given a priority is to come before or after those that have none."""
    return BANDS[(priority <= DEFAULT_PRIORITY) + (priority < DEFAULT_PRIORITY)]


class TransportAwayError(DetentError):
    """The broker cannot be reached, does not answer in time, or refuses. The text is one sentence with the broker's own
    words. Whoever gets it goes on without the transport, through PostgreSQL, and tries again later."""


class TakenOffer(NamedTuple):
    offer: Offer
    receipt: Any
    """By which the transport knows this delivery; no one else looks into it."""


class ChannelDepth(NamedTuple):
    """`offers`: how many wait in a channel, taken ones included where the broker counts them. `oldest_seconds`: the age
    of the first; None where the broker does not know it."""

    offers: int
    oldest_seconds: float | None = None


class Transport(Protocol):
    """One connection of this process to one broker, which it opens and opens again as needed. Every method raises
    TransportAwayError, within a few seconds, rather than wait for a broker that is away. Calls may overlap."""

    name: str
    """As settings name it: redis, nats, …"""
    delays: bool
    """Whether it keeps an offer until it is due. Otherwise the sender keeps it, and sends it then."""

    async def open(self) -> None:
        """Connect, and create what the broker needs. Called again after the broker was away."""
        ...

    async def send(self, offers: Sequence[Offer]) -> None:
        """Returns when the broker has them all. The same offer may be sent again."""
        ...

    async def take(self, queues: Collection[int], limit: int, now: datetime, wait_seconds: float) -> list[TakenOffer]:
        """Up to `limit` offers of these queues that are due at `now`, the time of the database. Waits so long for the
        first, and not for more. Cancelled: nothing is lost, what it had taken returns in time."""
        ...

    async def finish(self, taken: Sequence[TakenOffer]) -> None:
        """They are dealt with: claimed, or found to be claimed by others. They do not return."""
        ...

    async def give_back(self, taken: Sequence[TakenOffer]) -> None:
        """They return to other workers at once."""
        ...

    async def extend(self, taken: Sequence[TakenOffer]) -> None:
        """They stay with this worker for `HOLD_SECONDS` from now."""
        ...

    async def depth(self, queues: Collection[int]) -> Mapping[int, ChannelDepth]: ...

    async def close(self) -> None:
        """What was taken and not finished returns to others, at once where the broker can."""
        ...
