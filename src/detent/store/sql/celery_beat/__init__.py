"""Tables of django-celery-beat, which `detent import celery-beat` reads."""

from __future__ import annotations

from detent.store.statement import Statement

LIST_ENTRIES = Statement(__name__, "list_entries")
