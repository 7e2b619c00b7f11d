"""Reads the tables of django-celery-beat, in the database of a Django project."""

from __future__ import annotations

from typing import Any

from detent.store import sql
from detent.store.db import connected


async def list_beat_entries(url: str, schema: str) -> list[dict[str, Any]]:
    """The rows of its entries with their schedules; raises what a statement on a missing table raises. Reads only."""
    async with connected(url, schema) as connection, connection.transaction(readonly=True):
        return [dict(row) for row in await connection.fetch(sql.celery_beat.LIST_ENTRIES.text)]
