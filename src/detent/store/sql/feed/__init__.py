"""Hints to the nodes: notifications, and the table for those behind a pooler."""

from __future__ import annotations

from detent.store.statement import Statement

ANNOUNCE_READER = Statement(__name__, "announce_reader")
NOTIFY = Statement(__name__, "notify")
PURGE = Statement(__name__, "purge")
READ = Statement(__name__, "read")
