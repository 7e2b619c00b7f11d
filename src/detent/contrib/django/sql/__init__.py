"""Statements on Django's own connections: their parameters have names, and {schema} is detent's schema."""

from __future__ import annotations

from detent.store.statement import Statement

ENQUEUE = Statement("detent.contrib.django.sql", "enqueue")
READ_RESULT = Statement("detent.contrib.django.sql", "read_result")
LIST_ATTEMPTS = Statement("detent.contrib.django.sql", "list_attempts")


def text_of(statement: Statement, schema: str) -> str:
    """The schema comes from the settings, and detent allows only plain lower-case names there."""
    return statement.text.replace("{schema}", schema)


__all__ = ["ENQUEUE", "LIST_ATTEMPTS", "READ_RESULT", "text_of"]
