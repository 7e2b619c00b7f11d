"""What is on record of every tick of a job."""

from __future__ import annotations

from detent.store.statement import Statement

COUNT_AUDITED_JOBS = Statement(__name__, "count_audited_jobs")
FIND_FIRST_AUDITED = Statement(__name__, "find_first_audited")
FIND_NEXT_ENTRY = Statement(__name__, "find_next_entry")
LIST_AUDITED_JOBS = Statement(__name__, "list_audited_jobs")
LIST_SPANS = Statement(__name__, "list_spans")
LIST_TICKS_THAT_RAN = Statement(__name__, "list_ticks_that_ran")
PURGE_SEGMENTS = Statement(__name__, "purge_segments")
READ = Statement(__name__, "read")
RENEW_SPANS = Statement(__name__, "renew_spans")
