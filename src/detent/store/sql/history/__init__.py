"""Finished runs and attempts, and the partitions they are in."""

from __future__ import annotations

from detent.store.statement import Statement

ADD_DAYS = Statement(__name__, "add_days")
ADD_PARTITION = Statement(__name__, "add_partition")
ARCHIVE_ATTEMPTS = Statement(__name__, "archive_attempts")
ARCHIVE_LOGS = Statement(__name__, "archive_logs")
ARCHIVE_RUNS = Statement(__name__, "archive_runs")
COUNT = Statement(__name__, "count")
DETACH = Statement(__name__, "detach")
DETACH_BY_OWNER = Statement(__name__, "detach_by_owner")
DROP = Statement(__name__, "drop")
FIND_LATE = Statement(__name__, "find_late")
LIST = Statement(__name__, "list")
LIST_EXPIRED = Statement(__name__, "list_expired")
LIST_OF_JOBS = Statement(__name__, "list_of_jobs")
MEASURE = Statement(__name__, "measure")
READ_KEPT_SINCE = Statement(__name__, "read_kept_since")
READ_RETAINED_FROM = Statement(__name__, "read_retained_from")
RECORD_ARCHIVED = Statement(__name__, "record_archived")
RECORD_DETACHED = Statement(__name__, "record_detached")
RECORD_DROPPED = Statement(__name__, "record_dropped")
RESTORE_LATE = Statement(__name__, "restore_late")
