"""`detent bench transports` measures what it says: every queue runs the same jobs, and brokers carry their offers."""

from __future__ import annotations

import pytest

from detent.devtools.bench import transports
from detent.devtools.bench.broker_servers import BROKERS
from detent.devtools.bench.transports import TransportPlan


async def test_each_queue_runs_the_same_jobs_and_a_broker_that_is_not_installed_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transports, "PERIOD", 2)
    monkeypatch.setitem(BROKERS, "redis", BROKERS["redis"]._replace(command=lambda _folder, _port: None))
    told: list[int] = []
    result = await transports.bench_transports(["hand-off", "redis", "nats"], TransportPlan(20, 50, 2), told.append)
    assert told == [1, 2, 3]
    assert result.missing == ["redis"]
    columns = [(each.name, each.workers, each.runs, each.burst) for each in result.columns]
    assert columns == [("hand-off", 1, 40, 50), ("nats", 2, 40, 50)]
    for each in result.columns:
        assert 0 <= each.p50 <= each.p99 <= each.largest
        assert each.transactions_per_run > 0 and each.burst_per_second > 0
    handed_off, offered = result.columns
    assert handed_off.offered == 0
    assert offered.offered > 0.5
    title, first, _, last = transports.as_table(result)
    assert len(title) == len(first)
    assert last == ("not installed: redis",)
