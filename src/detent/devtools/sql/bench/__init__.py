"""Statements of the benchmarks."""

from __future__ import annotations

from detent.store.statement import Statement

COMMIT = Statement(__name__, "commit")
END = Statement(__name__, "end")
FIGURES = Statement(__name__, "figures")
MAKE_DUE = Statement(__name__, "make_due")
MAKE_HISTORY = Statement(__name__, "make_history")
RAW_BATCHES = Statement(__name__, "raw_batches")
RAW_FIRE = Statement(__name__, "raw_fire")
RAW_SETTLE = Statement(__name__, "raw_settle")
RAW_TABLE = Statement(__name__, "raw_table")
RAW_TRUNCATE = Statement(__name__, "raw_truncate")
SIZES = Statement(__name__, "sizes")
SUCCEEDED = Statement(__name__, "succeeded")
VACUUM = Statement(__name__, "vacuum")
WAL_POSITION = Statement(__name__, "wal_position")
WAL_SINCE = Statement(__name__, "wal_since")
