"""GET /cluster: who is there and who leads what."""

from __future__ import annotations

from typing import Any

from api_client import ApiClient

from detent.identity import node_name
from factories import add_node


async def test_the_cluster_shows_its_nodes_and_partitions(api: ApiClient, sql: Any) -> None:
    await add_node(sql, 7)
    await add_node(sql, 8, evicted=True)
    await sql.execute("UPDATE nodes SET beat_at = now() - interval '1500 ms', clock_offset = 0.0125 WHERE node = 7")
    assert await api.store.nodes.take(7, 1, dict.fromkeys([3, 4])) == {3: 1 << 22 | 1, 4: 1 << 22 | 1}
    cluster = await api.good("GET", "/api/v1/cluster")
    assert len(cluster["partitions"]) == 256
    taken = cluster["partitions"][3]
    assert (taken["partition"], taken["node"], taken["term"]) == (3, node_name(7), 1 << 22 | 1)
    assert taken["age_ms"] >= 0
    assert cluster["partitions"][5] == {"partition": 5, "node": None, "term": 0, "age_ms": None}
    alive, gone = sorted(cluster["nodes"], key=lambda node: node["id"])
    assert alive["heartbeat_age_ms"] >= 1500
    assert (alive["clock_offset_ms"], alive["partitions"], alive["alive"]) == (12.5, 2, True)
    assert (gone["partitions"], gone["alive"]) == (0, False)
    assert {"id", "roles", "started_at", "version", "tzdata"} <= alive.keys()


async def test_an_empty_cluster_is_shown_too(api: ApiClient) -> None:
    assert (await api.good("GET", "/api/v1/cluster"))["nodes"] == []
