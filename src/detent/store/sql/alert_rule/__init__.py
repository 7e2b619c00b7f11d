"""Alert rules: which events are reported to whom."""

from __future__ import annotations

from detent.store.statement import Statement

ADD = Statement(__name__, "add")
ADD_TEST = Statement(__name__, "add_test")
CHANGE = Statement(__name__, "change")
COUNT = Statement(__name__, "count")
DELETE = Statement(__name__, "delete")
LIST = Statement(__name__, "list")
LIST_ALL = Statement(__name__, "list_all")
LIST_MESSAGES = Statement(__name__, "list_messages")
LOCK = Statement(__name__, "lock")
LOCK_TENANTS = Statement(__name__, "lock_tenants")
