"""Figures of the whole cluster, for metrics and pings."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from time import monotonic

from detent.store import sql
from detent.store.db import Database, PoolName
from detent.telemetry.metrics import ClusterSignals, QueueDepth

MAX_COUNTED = 20_000
MAX_DUE_OF_PARTITION = 80
MAX_QUEUES = 100


class SignalStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(self) -> ClusterSignals:
        """Counted up to `MAX_COUNTED` of each kind: beyond that the exact number does not matter, and counting would
        slow the database down."""
        began = monotonic()
        (row,) = await self._database.fetch(
            PoolName.REQUEST, sql.cluster.READ_SIGNALS, MAX_COUNTED, MAX_DUE_OF_PARTITION
        )
        depths = await self._database.fetch(PoolName.REQUEST, sql.queue.READ_DEPTHS, MAX_COUNTED, MAX_QUEUES)
        return ClusterSignals(
            queues={
                name: QueueDepth(runs, _seconds(oldest)) for name, runs, oldest in (depth.values() for depth in depths)
            },
            ticks_due=row["ticks_due"],
            oldest_due=_seconds(row["oldest_due"]),
            runs_ready=row["runs_ready"],
            oldest_ready=_seconds(row["oldest_ready"]),
            jobs_overdue=row["jobs_overdue"],
            dead_letters=row["dead_letters"],
            catch_up_ticks=row["catch_up_ticks"],
            nodes=Counter(row["nodes"]),
            zone_data_releases=row["zone_data_releases"],
            versions=row["versions"],
            partitions_without_leader=row["partitions_without_leader"],
            partition_elections=row["partition_elections"],
            incidents_open=row["incidents_open"],
            answer_seconds=monotonic() - began,
            jobs_set_aside=row["jobs_set_aside"],
        )


def _seconds(span: timedelta | None) -> float:
    return 0.0 if span is None else max(span.total_seconds(), 0.0)
