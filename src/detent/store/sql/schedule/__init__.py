"""Schedules, shared by the jobs that have them."""

from __future__ import annotations

from detent.store.statement import Statement

ADD = Statement(__name__, "add")
COUNT_IN_PARTITION = Statement(__name__, "count_in_partition")
FIND_NUMBERS = Statement(__name__, "find_numbers")
KEEP = Statement(__name__, "keep")
LIST_BY_USE = Statement(__name__, "list_by_use")
LIST_USED_BY_CURSORS = Statement(__name__, "list_used_by_cursors")
LIST_USED_BY_SEGMENTS = Statement(__name__, "list_used_by_segments")
LIST_USED_BY_WORK = Statement(__name__, "list_used_by_work")
MARK_UNUSED = Statement(__name__, "mark_unused")
PURGE = Statement(__name__, "purge")
READ = Statement(__name__, "read")
