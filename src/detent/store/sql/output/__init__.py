"""What attempts write while they run: lines, and how far they are."""

from __future__ import annotations

from detent.store.statement import Statement

ADD = Statement(__name__, "add")
ADD_PROGRESS = Statement(__name__, "add_progress")
LIST = Statement(__name__, "list")
LOCK_LEASE = Statement(__name__, "lock_lease")
PURGE_PROGRESS = Statement(__name__, "purge_progress")
READ_PROGRESS = Statement(__name__, "read_progress")
READ_WRITTEN = Statement(__name__, "read_written")
