"""Which node a partition belongs to, by rendezvous hashing: every node computes it by itself, with the same result.

Each (node, partition) pair has a score, and the node with the highest score has the partition. A node that joins takes
only the partitions on which it now scores highest, about one share; a node that leaves releases only its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from detent.domain.identity import PARTITIONS


def score(node: int, partition: int) -> int:
    digest = blake2b(node.to_bytes(8) + partition.to_bytes(2), digest_size=8).digest()
    return int.from_bytes(digest)


def share(node: int, nodes: Sequence[int]) -> set[int]:
    """The partitions that belong to `node` among `nodes`; none if it is not one of them."""
    if node not in nodes:
        return set()
    return {
        partition
        for partition in range(PARTITIONS)
        if max(nodes, key=lambda other: (score(other, partition), other)) == node
    }
