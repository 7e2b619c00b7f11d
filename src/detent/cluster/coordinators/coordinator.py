"""Who should lead a partition: asked of the database itself, or of a service that a team already runs for this.

A coordinator nominates, no more. What makes a node the leader is the transaction that takes the partition, and what
makes one run of each tick is the compare-and-set of the cursor; so a coordinator that nominates two nodes, forgets
everything or goes away can cost time, never a tick.

A nomination carries a number that grows with every new nomination of a partition. The database keeps the last one it
accepted and refuses smaller ones, however late they come. Where there is no such number (None), the database decides:
it gives a partition only to a node when nobody alive holds it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol


class Coordinator(Protocol):
    name: str
    renews: bool  # whether nominations end unless they are renewed
    numbered: bool  # whether nominations have numbers, so that a newer one takes a partition from who is alive

    async def open(self) -> None:
        """Connect; raises Unavailable when the service cannot be reached."""

    async def campaign(self, wanted: Collection[int]) -> dict[int, int | None]:
        """Stand for these partitions, renew what is held of them, and resign from all others. Returns all that this
        node is nominated for now, with the number of each nomination. Where it `renews`, called at least every third of
        the lease's time to live; what is not renewed for one time to live goes to others. Raises Unavailable, and soon,
        when the service does not answer."""

    async def resign(self, partitions: Collection[int]) -> None:
        """Let others have these, at once. What was not told because the service is away, the next campaign tells."""

    async def close(self) -> None:
        """Resign from everything, if the service can be reached, and disconnect. Never raises."""


class PostgresCoordinator:
    """The default: the lease is the node's own row in the database, and the take-over asks nobody else."""

    name = "postgres"
    renews = False
    numbered = False

    async def open(self) -> None:
        return

    async def campaign(self, wanted: Collection[int]) -> dict[int, int | None]:
        return dict.fromkeys(wanted)

    async def resign(self, partitions: Collection[int]) -> None:
        return

    async def close(self) -> None:
        return
