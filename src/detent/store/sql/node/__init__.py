"""Nodes: joining, heartbeats, eviction."""

from __future__ import annotations

from detent.store.statement import Statement

DELETE = Statement(__name__, "delete")
DISMISS = Statement(__name__, "dismiss")
DRAIN = Statement(__name__, "drain")
EVICT = Statement(__name__, "evict")
FIND_OLDER = Statement(__name__, "find_older")
FIND_SILENT = Statement(__name__, "find_silent")
HEARTBEAT = Statement(__name__, "heartbeat")
JOIN = Statement(__name__, "join")
LEAVE = Statement(__name__, "leave")
LIST = Statement(__name__, "list")
LIST_FIRING = Statement(__name__, "list_firing")
LIST_FORMER = Statement(__name__, "list_former")
LIST_UNSERVED = Statement(__name__, "list_unserved")
LIST_CIRCUITS = Statement(__name__, "list_circuits")
PURGE_FORMER = Statement(__name__, "purge_former")
RECORD_RESCUE = Statement(__name__, "record_rescue")
REPORT_CIRCUITS = Statement(__name__, "report_circuits")
WAIT_FOR_FIRES = Statement(__name__, "wait_for_fires")
