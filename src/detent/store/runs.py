"""Runs as people see them: look up, list, cancel."""

from __future__ import annotations

from detent.store.db import Database


class RunStore:
    def __init__(self, database: Database) -> None:
        self._database = database
