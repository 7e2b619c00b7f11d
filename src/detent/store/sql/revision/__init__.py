"""Former definitions of jobs."""

from __future__ import annotations

from detent.store.statement import Statement

COMPARE = Statement(__name__, "compare")
COMPARE_MANY = Statement(__name__, "compare_many")
FIND_AT = Statement(__name__, "find_at")
LIST = Statement(__name__, "list")
PURGE = Statement(__name__, "purge")
READ_DEFINITIONS = Statement(__name__, "read_definitions")
