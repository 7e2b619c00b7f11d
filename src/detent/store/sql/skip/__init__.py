"""Single ticks that are to be skipped."""

from __future__ import annotations

from detent.store.statement import Statement

ADD = Statement(__name__, "add")
LIST_OF_JOB = Statement(__name__, "list_of_job")
PURGE = Statement(__name__, "purge")
REMOVE = Statement(__name__, "remove")
