"""Figures for the dashboard."""

from __future__ import annotations

from detent.store.statement import Statement

COUNT_BY_HOUR = Statement(__name__, "count_by_hour")
COUNT_JOBS_BY_STATUS = Statement(__name__, "count_jobs_by_status")
COUNT_OPEN_BY_STATUS = Statement(__name__, "count_open_by_status")
LIST_LATEST_DEAD = Statement(__name__, "list_latest_dead")
LIST_RECENT_RUNS = Statement(__name__, "list_recent_runs")
LIST_UPCOMING = Statement(__name__, "list_upcoming")
LIST_UPCOMING_OF_FEW = Statement(__name__, "list_upcoming_of_few")
READ_TIMELINE = Statement(__name__, "read_timeline")
