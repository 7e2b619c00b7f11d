"""Workers that pull runs over the API."""

from __future__ import annotations

from detent.store.statement import Statement

ACCEPT = Statement(__name__, "accept")
ACCEPT_EARLY = Statement(__name__, "accept_early")
CLAIM = Statement(__name__, "claim")
FIND_RECORDED = Statement(__name__, "find_recorded")
FIND_WORKER = Statement(__name__, "find_worker")
GIVE_BACK = Statement(__name__, "give_back")
HEARTBEAT = Statement(__name__, "heartbeat")
LIST_OVERDUE = Statement(__name__, "list_overdue")
LIST_WORKER_NAMES = Statement(__name__, "list_worker_names")
LOCK_EXPIRED = Statement(__name__, "lock_expired")
PURGE_WORKERS = Statement(__name__, "purge_workers")
READ_EARLY = Statement(__name__, "read_early")
READ_LEASE = Statement(__name__, "read_lease")
READ_WAIT = Statement(__name__, "read_wait")
RECORD_STALE = Statement(__name__, "record_stale")
RESCUE = Statement(__name__, "rescue")
SETTLE = Statement(__name__, "settle")
