"""Statements of the demo."""

from __future__ import annotations

from detent.store.statement import Statement

ADD_INCIDENTS = Statement(__name__, "add_incidents")
ANALYZE = Statement(__name__, "analyze")
CHECK_ELECTIONS = Statement(__name__, "check_elections")
COMPLETE_JOBS = Statement(__name__, "complete_jobs")
COUNT_JOBS = Statement(__name__, "count_jobs")
MOVE_CURSORS = Statement(__name__, "move_cursors")
