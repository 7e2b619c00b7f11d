"""The cluster as people see it."""

from __future__ import annotations

from datetime import timedelta

from detent.identity import node_name
from detent.shapes import Cluster, ClusterNode, ClusterPartition
from detent.store.db import Database

MILLISECOND = timedelta(milliseconds=1)


class ClusterStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def look(self) -> Cluster:
        """Nodes that are alive or not yet forgotten, from the oldest on, and every partition."""
        nodes = await self._database.fetch("people", "cluster_nodes")
        partitions = await self._database.fetch("people", "cluster_partitions")
        return Cluster(
            nodes=[
                ClusterNode(
                    id=node_name(row["node"]),
                    host=row["host"],
                    roles=row["roles"],
                    alive=row["alive"],
                    started_at=row["started_at"],
                    heartbeat_age_ms=max(row["age"] // MILLISECOND, 0),
                    clock_offset_ms=round(row["clock_offset"] * 1000, 3),
                    version=row["version"],
                    tzdata=row["tzdata"],
                    partitions=row["partitions"],
                )
                for row in nodes
            ],
            partitions=[
                ClusterPartition(
                    partition=row["partition"],
                    node=None if row["holder"] is None else node_name(row["holder"]),
                    term=row["term"],
                    age_ms=None if row["age"] is None else max(row["age"] // MILLISECOND, 0),
                )
                for row in partitions
            ],
        )
