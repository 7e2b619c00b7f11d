"""POST /cluster/pause and /cluster/resume."""

from __future__ import annotations

from tests.api.api_client import ApiClient


async def test_the_cluster_is_paused_for_a_reason_and_resumed(api: ApiClient) -> None:
    paused = await api.good("POST", "/api/v1/cluster/pause", json={"reason": "the shop moves"})
    assert paused["held"]["reason"] == "the shop moves"
    assert paused["held"]["by"] == "this machine"
    cluster = await api.good("GET", "/api/v1/cluster")
    assert cluster["held"] == paused["held"]
    assert any("the shop moves" in problem for problem in cluster["problems"])
    assert await api.good("POST", "/api/v1/cluster/resume") == {"held": None}
    assert (await api.good("GET", "/api/v1/cluster"))["held"] is None
    assert await api.good("POST", "/api/v1/cluster/resume") == {"held": None}


async def test_pausing_everything_needs_a_reason(api: ApiClient) -> None:
    for body in ({}, {"reason": ""}, {"reason": None}, {"reason": "x" * 1001}, {"reason": "x", "more": 1}):
        await api.problem("POST", "/api/v1/cluster/pause", 422, json=body)
    assert (await api.good("GET", "/api/v1/cluster"))["held"] is None
