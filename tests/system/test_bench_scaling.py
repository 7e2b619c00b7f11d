"""`detent bench scaling` measures what it says: every cluster runs the same jobs, with all of its nodes."""

from __future__ import annotations

import pytest

from detent.devtools.bench import scaling
from detent.devtools.bench.scaling import BOTH, SCHEDULER, WORKER


async def test_each_cluster_runs_the_same_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    clusters = {"2 nodes": (BOTH, BOTH), "1 scheduler, 1 worker": (SCHEDULER, WORKER)}
    monkeypatch.setattr(scaling, "CLUSTERS", clusters)
    monkeypatch.setattr(scaling, "LEAD_SECONDS", 2.0)
    told: list[int] = []
    result = await scaling.bench_scaling(300, 2, told.append)
    assert told == [1, 2, 3, 4]
    assert [(each.name, len(each.rounds)) for each in result.clusters] == [(name, 2) for name in clusters]
    for cluster in result.clusters:
        for each in cluster.rounds:
            assert each.runs_per_second > 0 and each.node_microseconds >= 0 and each.server_microseconds >= 0
    title, *rows, last = scaling.as_table(result)
    assert [row[0] for row in rows] == list(clusters)
    assert all(len(row) == len(title) for row in rows)
    assert last == ("300 ticks due at one instant, median of 2 rounds",)
