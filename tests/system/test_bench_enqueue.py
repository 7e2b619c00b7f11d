"""`detent bench enqueue` enqueues, runs and counts what it says, with small numbers."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Sequence

import pytest

from detent.devtools.bench import enqueue, enqueue_load
from detent.devtools.bench.enqueue_columns import (
    BATCH,
    COLUMNS,
    PAYLOAD_BYTES,
    EnqueueColumn,
    Payload,
    encode,
    measure_column,
    payloads,
)

SMALL = enqueue.EnqueuePlan(
    rounds=1,
    seconds=0.05,
    pending=3000,
    delayed=100,
    steady_seconds=0.5,
    rate=100,
    other_rate=50,
    tasks=20,
    runs_per_task=5,
    hot=50,
    other_keys=30,
    paused=500,
)


class CountingClient:
    def __init__(self) -> None:
        self.seen: list[int] = []

    async def single(self, payload: Payload) -> None:
        self.seen.append(payload["order"])
        await asyncio.sleep(0)

    async def batch(self, payloads: Sequence[Payload]) -> None:
        for payload in payloads:
            await self.single(payload)

    transaction = insert = single


@pytest.mark.parametrize("column", [EnqueueColumn("single", 3), EnqueueColumn("batch", 2)])
async def test_every_call_is_counted_and_has_payloads_of_its_own(column: EnqueueColumn) -> None:
    clients = [CountingClient() for _ in range(4)]
    rate = await measure_column(column, clients, 0.01, warm_up=0.01)
    seen = [number for client in clients for number in client.seen]
    assert len(seen) == len(set(seen)) == rate.calls * column.runs_per_call
    assert [bool(client.seen) for client in clients] == [number < column.connections for number in range(4)]
    assert rate.per_second > 0


def test_payloads_have_the_size_that_the_manual_names() -> None:
    assert {len(encode(payload)) for payload in itertools.islice(payloads(), BATCH)} == {PAYLOAD_BYTES}
    assert json.loads(encode(next(payloads())))["gift"] is False


async def test_all_runs_are_enqueued_started_and_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enqueue_load, "WARM_UP_SECONDS", 0.1)
    reported: list[int] = []
    result = await enqueue.bench_enqueue(SMALL, reported.append)
    assert max(reported) == SMALL.steps
    assert [each.name for each in result.columns] == [column.name for column in COLUMNS]
    assert all(each.per_second[0] > 0 and each.wal_bytes_per_run[0] > 0 for each in result.columns)
    assert (result.drain.pending, result.drain.delayed) == (3000, 100)
    assert result.drain.wal_bytes_per_run > 0
    steady, *others = result.lateness
    assert (steady.rate, steady.runs) == (100, 50)
    assert [(each.rate, each.runs) for each in others] == [(50, 25)] * 6
    assert all(0 < each.p50 <= each.p99 <= each.largest for each in result.lateness)
    titles = [row[0] for row in enqueue.as_table(result)]
    assert "20 tasks with 5 runs each" in "\n".join(titles)
