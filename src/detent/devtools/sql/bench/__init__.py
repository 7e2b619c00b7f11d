"""Statements of the benchmarks."""

from __future__ import annotations

from detent.store.statement import Statement

COMMIT = Statement(__name__, "commit")
COUNT_WAITING = Statement(__name__, "count_waiting")
END = Statement(__name__, "end")
ENQUEUE = Statement(__name__, "enqueue")
ENQUEUE_KEYED = Statement(__name__, "enqueue_keyed")
ENQUEUE_MANY = Statement(__name__, "enqueue_many")
FIGURES = Statement(__name__, "figures")
FORGET_WAITING = Statement(__name__, "forget_waiting")
INSERT_ORDER = Statement(__name__, "insert_order")
MAKE_DUE = Statement(__name__, "make_due")
MAKE_HISTORY = Statement(__name__, "make_history")
PARTITIONS_LED = Statement(__name__, "partitions_led")
RAW_BATCHES = Statement(__name__, "raw_batches")
RAW_FIRE = Statement(__name__, "raw_fire")
RAW_SETTLE = Statement(__name__, "raw_settle")
RAW_TABLE = Statement(__name__, "raw_table")
RAW_TRUNCATE = Statement(__name__, "raw_truncate")
SIZES = Statement(__name__, "sizes")
SUCCEEDED = Statement(__name__, "succeeded")
TRANSACTIONS = Statement(__name__, "transactions")
VACUUM = Statement(__name__, "vacuum")
VACUUM_WAITING = Statement(__name__, "vacuum_waiting")
WAL_POSITION = Statement(__name__, "wal_position")
WAL_SINCE = Statement(__name__, "wal_since")
