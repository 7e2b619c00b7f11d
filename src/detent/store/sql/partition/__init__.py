"""Partitions: which node leads which, and since when."""

from __future__ import annotations

from detent.store.statement import Statement

COUNT_ELECTIONS = Statement(__name__, "count_elections")
FIND_LEADER_AT = Statement(__name__, "find_leader_at")
LIST = Statement(__name__, "list")
LIST_TAKE_OVERS = Statement(__name__, "list_take_overs")
PURGE_ELECTIONS = Statement(__name__, "purge_elections")
READ_SHARE = Statement(__name__, "read_share")
RELEASE = Statement(__name__, "release")
TAKE = Statement(__name__, "take")
