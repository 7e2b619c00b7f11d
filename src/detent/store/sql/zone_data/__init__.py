"""The release of the time zone data by which ticks were computed."""

from __future__ import annotations

from detent.store.statement import Statement

LIST_OUTDATED_JOBS = Statement(__name__, "list_outdated_jobs")
READ = Statement(__name__, "read")
RECORD = Statement(__name__, "record")
