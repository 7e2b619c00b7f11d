"""Answers to requests with an idempotency key."""

from __future__ import annotations

from detent.store.statement import Statement

LOCK = Statement(__name__, "lock")
PURGE = Statement(__name__, "purge")
READ = Statement(__name__, "read")
STORE = Statement(__name__, "store")
