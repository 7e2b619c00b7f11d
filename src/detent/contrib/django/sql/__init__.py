"""Statements on Django's own connections: their parameters have names, and {schema} is detent's schema.

They are no statements of the store, which have numbered parameters and a search path.
"""

from __future__ import annotations

from functools import cache
from importlib import resources

ENQUEUE = "enqueue.sql"
READ_RESULT = "read_result.sql"
LIST_ATTEMPTS = "list_attempts.sql"


@cache
def text_of(statement: str, schema: str) -> str:
    """The schema comes from the settings, and detent allows only plain lower-case names there."""
    return resources.files(__name__).joinpath(statement).read_text("utf-8").replace("{schema}", schema)
