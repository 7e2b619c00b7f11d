"""Migrations of the schema."""

from __future__ import annotations

from detent.store.statement import Statement

CHECK_NODES_TABLE = Statement(__name__, "check_nodes_table")
CHECK_OLDER_TABLE = Statement(__name__, "check_older_table")
CREATE_TABLE = Statement(__name__, "create_table")
LIFT_LIMITS = Statement(__name__, "lift_limits")
LIST_APPLIED = Statement(__name__, "list_applied")
LIST_INCOMPATIBLE_NODES = Statement(__name__, "list_incompatible_nodes")
LOCK = Statement(__name__, "lock")
LOCK_FOR_JOIN = Statement(__name__, "lock_for_join")
LOCK_OUT_JOINS = Statement(__name__, "lock_out_joins")
READ_SCHEMA = Statement(__name__, "read_schema")
RECORD = Statement(__name__, "record")
RESTORE_LIMITS = Statement(__name__, "restore_limits")
UNLOCK = Statement(__name__, "unlock")
UPGRADE_TABLE = Statement(__name__, "upgrade_table")
