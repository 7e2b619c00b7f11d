"""Tokens of the tenants' requests."""

from __future__ import annotations

from detent.store.statement import Statement

TAKE = Statement(__name__, "take")
