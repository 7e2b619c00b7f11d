"""Nominates the node that should lead a partition: the database itself, or a service that a team already runs.

A coordinator only nominates. The transaction that takes the partition makes a node its leader, and the
compare-and-set of the cursor makes one run of each tick. So a coordinator that nominates two nodes, forgets everything
or fails can cost time, never a tick.

A nomination carries a number that grows with every new nomination of a partition. The database keeps the last one it
accepted and refuses smaller ones, however late they come. Without such a number (None), the database decides: it gives
a partition to a node only when no live node holds it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol


class Coordinator(Protocol):
    name: str
    renews: bool  # whether nominations end unless they are renewed
    numbered: bool  # whether nominations have numbers, so that a newer one takes a partition from a live node

    async def open(self) -> None:
        """Connect; raises Unavailable when the service cannot be reached."""

    async def campaign(self, wanted: Collection[int]) -> dict[int, int | None]:
        """Campaign for these partitions, renew the nominations for them, and resign from all others. Returns all
        partitions that this node is nominated for now, with the number of each nomination. Where it `renews`, call this
        at least every third of the lease time: a nomination that is not renewed for one lease time goes to other nodes.
        Raises Unavailable, soon, when the service does not answer."""

    async def resign(self, partitions: Collection[int]) -> None:
        """Release these nominations at once. If the service does not answer, the next campaign releases them."""

    async def close(self) -> None:
        """Resign from everything, if the service can be reached, and disconnect. Never raises."""


class PostgresCoordinator:
    """The default: the lease is the node's own row in the database; no other service takes part."""

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
