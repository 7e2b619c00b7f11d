"""The nodes, the leader of each of the 256 partitions, and recent leader changes."""

from __future__ import annotations

from typing import Any

from detent.contract.cluster import Cluster
from detent.dashboard.page import PageRequest, PageView
from detent.store.jobs import DEFAULT_TENANT

COLOURS = 8
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


async def load(page: PageRequest) -> dict[str, Any]:
    cluster = await page.api.cluster.describe(operator=page.tenant == DEFAULT_TENANT)
    owners = owners_of(cluster)
    nodes = {node.id: node for node in cluster.nodes}
    return {
        "cluster": cluster,
        "owners": owners,
        "nodes": nodes,
        "columns": 32,
        "cells": [
            {
                "partition": cell.partition,
                "node": cell.node,
                "owner": owners.get(cell.node or ""),
                "term": cell.term,
                "age_ms": cell.age_ms,
                "lease_ms": nodes[cell.node].lease_ms if cell.node in nodes else None,
                "alive": cell.node in nodes and nodes[cell.node].state != "evicted",
            }
            for cell in cluster.partitions
        ],
    }


def owners_of(cluster: Cluster) -> dict[str, dict[str, Any]]:
    """A letter and a colour for each node, oldest first, so that they stay the same when nodes join."""
    return {
        node.id: {"letter": LETTERS[position % len(LETTERS)], "colour": position % COLOURS}
        for position, node in enumerate(cluster.nodes)
    }


view = PageView("cluster", "/cluster", load, ("summary", "nodes", "map", "elections"))
