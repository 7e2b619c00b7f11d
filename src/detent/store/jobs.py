"""Jobs: what people register, change, pause, trigger and delete."""

from __future__ import annotations

from detent.store.db import Database


class JobStore:
    def __init__(self, database: Database) -> None:
        self._database = database
