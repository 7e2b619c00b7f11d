"""Counts of finished runs by minute."""

from __future__ import annotations

from detent.store.statement import Statement

AMEND_MINUTES = Statement(__name__, "amend_minutes")
COUNT_JOBS = Statement(__name__, "count_jobs")
FOLD_MINUTES = Statement(__name__, "fold_minutes")
LIST_MINUTES_BY_LATENESS = Statement(__name__, "list_minutes_by_lateness")
LIST_MINUTES_BY_STATUS = Statement(__name__, "list_minutes_by_status")
PURGE_MINUTES = Statement(__name__, "purge_minutes")
READ_MARK = Statement(__name__, "read_mark")
SKIP_AHEAD = Statement(__name__, "skip_ahead")
