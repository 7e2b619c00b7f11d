"""Alerts of rules: their events, their jobs and their messages."""

from __future__ import annotations

from detent.store.statement import Statement

ADD = Statement(__name__, "add")
ADD_JOBS = Statement(__name__, "add_jobs")
ADD_MESSAGE = Statement(__name__, "add_message")
BRING_FORWARD = Statement(__name__, "bring_forward")
CHECK_JOBS = Statement(__name__, "check_jobs")
CLOSE = Statement(__name__, "close")
COUNT_EVENTS = Statement(__name__, "count_events")
DROP_EVENTS = Statement(__name__, "drop_events")
LIST_CATCH_UPS = Statement(__name__, "list_catch_ups")
LIST_DUE = Statement(__name__, "list_due")
LIST_JOBS = Statement(__name__, "list_jobs")
LIST_OPEN = Statement(__name__, "list_open")
LIST_SET_ASIDE = Statement(__name__, "list_set_aside")
LIST_WAITING = Statement(__name__, "list_waiting")
LOCK_DUE = Statement(__name__, "lock_due")
MEASURE_STREAKS = Statement(__name__, "measure_streaks")
PAUSE = Statement(__name__, "pause")
PURGE = Statement(__name__, "purge")
READ_CONTENT = Statement(__name__, "read_content")
REPORT_JOBS = Statement(__name__, "report_jobs")
TAKE_EVENTS = Statement(__name__, "take_events")
TAKE_MESSAGES = Statement(__name__, "take_messages")
