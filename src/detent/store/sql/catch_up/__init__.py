"""Ranges of missed or backfilled ticks, and their release."""

from __future__ import annotations

from detent.store.statement import Statement

ADD_BACKFILL = Statement(__name__, "add_backfill")
ADD_OWED = Statement(__name__, "add_owed")
COUNT_BACKLOG = Statement(__name__, "count_backlog")
DROP = Statement(__name__, "drop")
LIST_DUE = Statement(__name__, "list_due")
LIST_OF_JOB = Statement(__name__, "list_of_job")
LOCK_JOBS = Statement(__name__, "lock_jobs")
RELEASE = Statement(__name__, "release")
