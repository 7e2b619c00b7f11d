"""Queues."""

from __future__ import annotations

from detent.store.statement import Statement

ADD = Statement(__name__, "add")
FIND_NUMBERS = Statement(__name__, "find_numbers")
KEEP = Statement(__name__, "keep")
LIST = Statement(__name__, "list")
LIST_ALL = Statement(__name__, "list_all")
LIST_BY_USE = Statement(__name__, "list_by_use")
LIST_READY = Statement(__name__, "list_ready")
MARK_UNUSED = Statement(__name__, "mark_unused")
PURGE = Statement(__name__, "purge")
READ_DEPTHS = Statement(__name__, "read_depths")
