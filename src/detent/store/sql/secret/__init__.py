"""Secrets: encrypted values, and the jobs that refer to them."""

from __future__ import annotations

from detent.store.statement import Statement

ADD_VERSION = Statement(__name__, "add_version")
CHANGE = Statement(__name__, "change")
COUNT = Statement(__name__, "count")
COUNT_BY_KEY = Statement(__name__, "count_by_key")
CREATE_OR_CHANGE = Statement(__name__, "create_or_change")
DELETE = Statement(__name__, "delete")
KEEP = Statement(__name__, "keep")
LIST = Statement(__name__, "list")
LIST_UNDER_OTHER_KEYS = Statement(__name__, "list_under_other_keys")
LIST_USERS = Statement(__name__, "list_users")
LOCK = Statement(__name__, "lock")
NOTE_REFERENCES = Statement(__name__, "note_references")
PURGE = Statement(__name__, "purge")
READ_SIGNING = Statement(__name__, "read_signing")
READ_VALUES = Statement(__name__, "read_values")
RETIRE = Statement(__name__, "retire")
REWRAP = Statement(__name__, "rewrap")
