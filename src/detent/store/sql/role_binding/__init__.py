"""Roles that are bound to keys, people and groups."""

from __future__ import annotations

from detent.store.statement import Statement

ADD = Statement(__name__, "add")
LIST = Statement(__name__, "list")
LIST_OF_PERSON = Statement(__name__, "list_of_person")
REMOVE = Statement(__name__, "remove")
