"""The questions of `detent doctor`. They only read."""

from __future__ import annotations

from detent.store.statement import Statement

ATTEMPTS = Statement(__name__, "attempts")
BACKEND = Statement(__name__, "backend")
FIND_MARK = Statement(__name__, "find_mark")
HERD = Statement(__name__, "herd")
HISTORY_DAYS = Statement(__name__, "history_days")
HOLD = Statement(__name__, "hold")
JOB = Statement(__name__, "job")
JOBS_OF_SCHEDULES = Statement(__name__, "jobs_of_schedules")
LEAVE_MARK = Statement(__name__, "leave_mark")
LIMIT_TRANSACTION = Statement(__name__, "limit_transaction")
LIVE_AND_FINISHED = Statement(__name__, "live_and_finished")
LONG_TRANSACTIONS = Statement(__name__, "long_transactions")
LOOKALIKES = Statement(__name__, "lookalikes")
LOST_NODES = Statement(__name__, "lost_nodes")
NODES = Statement(__name__, "nodes")
NOT_RUN = Statement(__name__, "not_run")
ORPHANS = Statement(__name__, "orphans")
OVERDUE = Statement(__name__, "overdue")
OVERRUNNING = Statement(__name__, "overrunning")
PARTITIONS = Statement(__name__, "partitions")
REPEATS = Statement(__name__, "repeats")
SCHEDULES = Statement(__name__, "schedules")
SERVER = Statement(__name__, "server")
SET_ASIDE = Statement(__name__, "set_aside")
TABLES = Statement(__name__, "tables")
TWICE_BY_CLOCK = Statement(__name__, "twice_by_clock")
WAITING = Statement(__name__, "waiting")
WITHOUT_SCHEDULE = Statement(__name__, "without_schedule")
