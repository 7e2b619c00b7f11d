"""Partitions held by advisory locks instead of leases in a table."""

from __future__ import annotations

from detent.store.statement import Statement

LIMIT_IDLE_TIME = Statement(__name__, "limit_idle_time")
RELEASE = Statement(__name__, "release")
TAKE = Statement(__name__, "take")
