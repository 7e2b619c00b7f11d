"""Limits of queues and tenants."""

from __future__ import annotations

from detent.store.statement import Statement

DROP = Statement(__name__, "drop")
LIST_OF_QUEUE = Statement(__name__, "list_of_queue")
LOCK = Statement(__name__, "lock")
MARK_ALL_RUNS = Statement(__name__, "mark_all_runs")
MARK_RUNS = Statement(__name__, "mark_runs")
MEASURE_CAPACITY = Statement(__name__, "measure_capacity")
READ = Statement(__name__, "read")
SET = Statement(__name__, "set")
USE = Statement(__name__, "use")
